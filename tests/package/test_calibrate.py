"""
`dynspec calibrate`, against SGLang on the CPU and against servers that are not as they should be.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from sglang_dynspec.errors import ConfigError, ServerError
from sglang_dynspec.estimates.calibration import Calibration
from sglang_dynspec_cpu.environment import engine_args
from sglang_dynspec_cpu.models import build
from sglang_dynspec_cpu.server import CpuServer
from sglang_dynspec_hooks import client
from sglang_dynspec_hooks.client import Client
from sglang_dynspec_hooks.commands._measurement import batch_sizes, measure
from sglang_dynspec_hooks.commands.calibrate import command
from tests.package.make_believe import PASS, SECONDS, MakeBelieve

URL = "http://server"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> MakeBelieve:
    """
    A server that is not there, which every client reaches.
    """
    made = MakeBelieve()

    def build_client(url: str, **arguments: Any) -> Client:
        return Client(url, transport=httpx.MockTransport(made), **arguments)

    monkeypatch.setattr(client, "Client", build_client)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return made


@pytest.fixture
def calibrate(tmp_path: Path) -> Callable[..., Any]:
    """
    Run the command.
    """
    app = typer.Typer()
    app.command()(command)

    def run(*arguments: str) -> Any:
        out = tmp_path / "costs.json"
        return CliRunner().invoke(app, ["--url", URL, "--out", str(out), *arguments])

    return run


def test_what_is_measured_is_what_rounds_took(server: MakeBelieve, calibrate: Any) -> None:
    done = calibrate("--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    calibration = Calibration.load(Path(result["file"]))
    assert calibration.model_dump(mode="json") == result["calibration"]
    costs = {(cell.depth, cell.batch_size): cell.seconds for cell in calibration.cells}
    assert sorted(costs) == [(depth, size) for depth in (0, 1, 3) for size in (1, 2, 4, 6)]
    for (depth, size), seconds in costs.items():
        assert seconds == pytest.approx(SECONDS[depth] * size)
    assert calibration.upkeep == pytest.approx(dict.fromkeys((1, 2, 4, 6), PASS))
    assert {cell.seq_len_sum for cell in calibration.cells if cell.batch_size == 4} == {400.0}
    assert (calibration.identity.gpu, calibration.identity.tensor_parallel) == ("NVIDIA H200", 1)
    assert result["pays_above"]["4"] == pytest.approx({"1": 1.3, "3": 1.9})
    assert result["skipped"] == []


def test_rounds_are_found_at_the_size_they_are_padded_to(
    server: MakeBelieve, calibrate: Any
) -> None:
    """A cap of 6 where there are CUDA graphs for 4 and 8."""
    server.graph_sizes = (1, 2, 4, 8)
    result = json.loads(calibrate("--json").stdout)
    assert result["skipped"] == []
    cells = {(cell["depth"], cell["batch_size"]) for cell in result["calibration"]["cells"]}
    assert cells == {(depth, size) for depth in (0, 1, 3) for size in (1, 2, 4, 8)}


def test_the_table_and_the_progress(server: MakeBelieve, calibrate: Any) -> None:
    done = calibrate("--max-batch-size", "2")
    assert done.exit_code == 0, done.stderr
    assert "NVIDIA H200" in done.stdout
    row = next(line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["2"])
    assert row == ["2", "20.00", "26.00", "38.00", "1.30", "1.90", "2.00"]
    assert "5 of 6: batch size 2, depth 3" in done.stderr


def test_about_as_many_rounds_are_run_as_asked_for(server: MakeBelieve, calibrate: Any) -> None:
    done = calibrate("--json", "--rounds", "40", "--max-batch-size", "1")
    rounds = {c["depth"]: c["rounds"] for c in json.loads(done.stdout)["calibration"]["cells"]}
    # A quarter of the plain rounds hold an upkeep pass.
    assert rounds == {0: 30, 1: 40, 3: 40}


@pytest.mark.parametrize("before", [None, 3])
def test_the_decision_is_given_back_as_it_was(
    server: MakeBelieve, calibrate: Any, before: int | None
) -> None:
    server.forced = before
    assert calibrate("--max-batch-size", "1").exit_code == 0
    assert server.forced == before
    assert set(server.forcings) == {0, 1, 3, -1 if before is None else 3}


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), SystemExit(143), ValueError()])
def test_also_when_it_is_interrupted(
    server: MakeBelieve, calibrate: Any, tmp_path: Path, fault: BaseException
) -> None:
    server.interrupt = fault
    assert calibrate().exit_code != 0
    assert len(server.forcings) > 5
    assert server.forcings[-1] == -1
    assert not (tmp_path / "costs.json").exists()


def refusal(done: Any, kind: type[Exception] = ServerError) -> str:
    assert isinstance(done.exception, kind), done.exception
    return str(done.exception)


def test_a_busy_server_is_left_alone(server: MakeBelieve, calibrate: Any) -> None:
    server.running = 2
    assert "expected no requests but our own; found 2 running" in refusal(calibrate())
    assert server.forcings == []


def test_traffic_meanwhile_is_noticed(server: MakeBelieve, calibrate: Any) -> None:
    server.others = 500
    assert "tokens more than were asked for" in refusal(calibrate())
    assert server.forcings[-1] == -1


def test_what_does_not_fit_is_skipped(server: MakeBelieve, calibrate: Any) -> None:
    server.capacity = 340
    done = calibrate("--json", "--rounds", "16")
    result = json.loads(done.stdout)
    assert {cell["batch_size"] for cell in result["calibration"]["cells"]} == {1}
    assert "batch size 2, depth 0: the KV pool is too small" in result["skipped"]


def test_nothing_measured_is_a_refusal(server: MakeBelieve, calibrate: Any) -> None:
    server.capacity = 1
    assert "the KV pool is too small" in refusal(calibrate())


@pytest.mark.parametrize(
    ("path", "answer", "expected"),
    [
        (
            "/server_info",
            httpx.Response(200, json={"internal_states": [{}]}),
            "one scheduler with dynspec enabled at http://server; found one without it",
        ),
        (
            "/server_info",
            httpx.Response(200, json={"internal_states": [{}, {}]}),
            "found 2 schedulers",
        ),
        (
            "/server_info",
            httpx.Response(200, text="<html>"),
            "in another way; give its address",
        ),
        ("/server_info", httpx.Response(200, json=[]), "in another way; give its address"),
        ("/server_info", httpx.Response(200, json={"internal_states": 1}), "in another way"),
        (
            "/server_info",
            httpx.Response(200, json={"internal_states": [1]}),
            "found one without it",
        ),
        ("/set_internal_state", httpx.Response(200, text=""), "found None"),
        ("/server_info", httpx.Response(401, text="no"), "give its key (--api-key)"),
        ("/generate", httpx.Response(500, text="broken"), "found HTTP 500: broken"),
        ("/set_internal_state", httpx.Response(200, json=[False]), "found [False]"),
        ("/set_internal_state", httpx.Response(200, json=[]), "found []"),
    ],
)
def test_a_server_that_is_not_as_it_should_be(
    server: MakeBelieve, calibrate: Any, path: str, answer: httpx.Response, expected: str
) -> None:
    server.answers[path] = answer
    assert expected in refusal(calibrate())


def test_a_file_that_cannot_be_written_is_refused_first(
    server: MakeBelieve, calibrate: Any, tmp_path: Path
) -> None:
    done = calibrate("--out", str(tmp_path / "none" / "costs.json"))
    assert "create it, or choose another file" in refusal(done, ConfigError)
    assert server.forcings == []


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, [1]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_batch_sizes(largest: int, sizes: list[int]) -> None:
    assert batch_sizes(largest) == sizes


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuServer]:
    directory = tmp_path_factory.mktemp("calibrate")
    models = build("noisy", directory / "models")
    arguments = engine_args(
        models.target, algorithm="STANDALONE", draft_path=models.draft("STANDALONE")
    )
    flags = ["--enable-plugin", "dynspec", "--dynspec-policy", "never", "--warmups", "dynspec"]
    log = directory / "server.log"
    with CpuServer(arguments | {"sleep_on_idle": True}, flags=flags, log=log) as server:
        server.wait()
        yield server


@pytest.mark.engine
@pytest.mark.slow
def test_a_real_server_was_warmed_up(real: CpuServer) -> None:
    with Client(real.url) as server:
        account = server.info()["dynspec"]
    # 1, 2, 4, 8 and 16 requests: without CUDA graphs, as many as may run.
    assert re.search(r"dynspec warm-up, batch sizes: 100%.* 5/5 ", real.log.read_text())
    # Re-entry was among it: upkeep ran. Nothing of it is in the account.
    assert account["upkeep"]["passes"]["reentry"] > 10
    assert account["upkeep"]["faults"] == account["mismatches"] == account["rounds"] == 0
    assert (account["depth"], account["depth_age"]) == (0, 0)
    assert [each["rounds"] for each in account["by_depth"].values()] == [0, 0, 0]


@pytest.mark.engine
@pytest.mark.slow
def test_a_real_server_is_measured(real: CpuServer) -> None:
    with Client(real.url) as server:
        said: list[str] = []
        measured = measure(
            server,
            largest=4,
            rounds=24,
            prompt_tokens=32,
            tell=lambda done, total, what: said.append(f"{done}/{total} {what}"),
        )
        account = server.info()["dynspec"]
    assert measured.skipped == []
    assert said[0] == "0/9 batch size 1, plain"
    cells = {(cell.depth, cell.batch_size): cell for cell in measured.cells}
    assert sorted(cells) == [(depth, size) for depth in (0, 1, 3) for size in (1, 2, 4)]
    assert all(1e-3 < cell.seconds < 2.0 for cell in cells.values())
    # Requests with luckier drafts end sooner, so that not all rounds are at the full size.
    assert all(cell.rounds >= 8 for cell in cells.values())
    # Three drafts and a verification of four cost more than one token on any machine.
    assert all(cells[3, size].seconds > cells[0, size].seconds for size in (1, 2, 4))
    assert account["forced"] is None
    assert account["mismatches"] == 0
    assert Path(measured.identity.model).is_dir()
    assert Path(measured.identity.draft).is_dir()
    assert measured.identity.attention_backend == "torch_native"
    calibration = measured.calibration()
    assert calibration.check(measured.identity) == {}
