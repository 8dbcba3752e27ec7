"""
`dynspec demo`, whole, and what it makes of servers that fail or answer wrongly.
"""

import json
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_dynspec import ConfigError
from sglang_dynspec.trace import Trace, TraceHeader, TraceRound
from sglang_dynspec.trace.phases import Phase
from sglang_dynspec_cpu.answers import EngineDiedError
from sglang_dynspec_cpu.demo import command as demo_command
from sglang_dynspec_cpu.demo import result as demo_result
from sglang_dynspec_cpu.demo.load import Answer, Ramp
from sglang_dynspec_cpu.demo.result import Estimate, _estimate, _estimate_table, _faults
from sglang_dynspec_cpu.demo.tiny import tiny_ramp
from sglang_dynspec_cpu.server import CpuServer, free_port
from tests.package.conftest import run

_PNG = b"\x89PNG"


@pytest.mark.engine
@pytest.mark.slow
def test_the_demo_succeeds(tmp_path: Path) -> None:
    script = str(Path(sysconfig.get_path("scripts")) / "dynspec")
    done = run([script, "demo", "--json", "--out", "demo"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"], result
    assert result["equal"] == result["requests"] > 0
    rows = result["phases"]
    assert [row["name"].split()[-1] for row in rows] == ["1", "8", "48", "8", "1"]
    # Which depth pays is measured, on a machine that may have other work: that both ran is certain.
    ran = {depth for row in rows for depth, share in row["shares"].items() if share > 0}
    assert ran == {"0", "5"}
    assert all(row["accepted_length"] is None or 2 < row["accepted_length"] < 4 for row in rows)
    assert Path(result["picture"]).read_bytes().startswith(_PNG)
    assert "concurrency 48" in done.stderr
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, check=False)
    assert not left.stdout, "the demo left processes behind"


def _ramp() -> Ramp:
    """
    A ramp whose answers all equal the plain ones.
    """
    ramp = tiny_ramp()
    for phase in ramp.phases:
        phase.answers = {request.number: Answer((5, 6), "ab") for request in phase.requests}
    ramp.plain_answers = {request.number: Answer((5, 6), "ab") for request in ramp.requests}
    return ramp


def test_the_ramp_rises_and_falls_and_repeats_no_request() -> None:
    ramp = tiny_ramp()
    assert [phase.concurrency for phase in ramp.phases] == [1, 8, 48, 8, 1]
    bodies = [json.dumps(request.body["messages"]) for request in ramp.requests]
    assert len(set(bodies)) == len(bodies)
    assert len({request.length for request in ramp.phases[2].requests}) > 8


def test_equal_answers_are_equal() -> None:
    assert _ramp().differing() == []


@pytest.mark.parametrize("other", [Answer((5, 7), "ab"), Answer((5, 6), "a"), Answer((5,), "a")])
def test_a_different_answer_is_found(other: Answer) -> None:
    ramp = _ramp()
    ramp.plain_answers[17] = other
    assert ramp.differing() == [17]


def test_a_missing_answer_is_found() -> None:
    ramp = _ramp()
    del ramp.plain_answers[3]
    assert ramp.differing() == [3]


def _state(plain: int = 5, speculative: int = 5, mismatches: int = 0) -> dict[str, Any]:
    by_depth = {"0": {"rounds": plain}, "1": {"rounds": 0}, "3": {"rounds": speculative}}
    return {"by_depth": by_depth, "mismatches": mismatches}


@pytest.mark.parametrize(
    ("differing", "state", "expected"),
    [
        ([], _state(), None),
        ([4, 9], _state(), "2 outputs differ, first that of request 4"),
        ([], _state(plain=0), "no plain round ran"),
        ([], _state(speculative=0), "no speculative round ran"),
        ([], _state(mismatches=2), "2 rounds ran at another depth than planned"),
    ],
)
def test_faults_are_named(
    differing: list[int], state: dict[str, Any], expected: str | None
) -> None:
    assert _faults(differing, state) == ([] if expected is None else [expected])


def _trace(*rounds: tuple[float, int, tuple[float, ...]]) -> Trace:
    """
    A trace of rounds, each a time, a batch size and what was predicted.
    """
    unused = {"waiting": 0, "seq_len_sum": 0, "seq_len_max": 0, "kv_free": 1.0, "period": None}
    plan = {"depth": 0, "planned": 0, "reason": "", "accepted": (), "tokens": 1}
    made = [
        TraceRound(
            round=number,
            t=t,
            batch_size=size,
            padded_batch_size=size,
            running=size,
            predicted=predicted,
            **unused,
            **plan,
        )
        for number, (t, size, predicted) in enumerate(rounds)
    ]
    return Trace(header=TraceHeader(depths=(0, 5), policy="goodput"), rounds=made)


def test_an_estimate_is_of_the_last_full_batch_of_its_phase() -> None:
    trace = _trace(
        (0.9, 4, (9.0, 8.0)),
        (1.0, 4, (1.0, 2.0)),
        (1.5, 4, (10.0, 25.0)),
        (1.6, 4, ()),
        (1.7, 3, (7.0, 7.0)),
        (2.0, 4, (5.0, 6.0)),
    )
    phase = Phase(name="concurrency 4", start=1.0, end=2.0)
    assert _estimate(trace, phase, 4).rates == {0: 10.0, 5: 25.0}
    assert _estimate(trace, phase, 5).rates == {}


def test_estimates_are_laid_out_with_their_ratios() -> None:
    known = Estimate(phase="one", rates={0: 1000.0, 5: 2499.9})
    table = _estimate_table(_trace().header, [known, Estimate(phase="two", rates={})])
    cells = [list(column.cells) for column in table.columns]
    assert [column.header for column in table.columns] == [
        "phase",
        "plain",
        "depth 5",
        "depth 5 / plain",
    ]
    assert cells == [["one", "two"], ["1,000", "-"], ["2,500", "-"], ["2.50", "-"]]


@pytest.mark.parametrize(("switches", "said"), [(0, True), (4, False)])
def test_a_run_without_a_switch_says_why(
    switches: int, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("print_table", "phase_table", "_estimate_table"):
        monkeypatch.setattr(demo_result, name, lambda *_: None)
    shown = dict.fromkeys(("trace_path", "picture", "out"), "file")
    result: Any = SimpleNamespace(
        **shown,
        trace=SimpleNamespace(header=None),
        rows=[],
        estimates=[],
        kinds=[],
        switches=switches,
        faults=[],
        requests=3,
        equal=3,
        seconds=1.0,
    )
    demo_result.print_result(result)
    printed = capsys.readouterr().out
    assert f"switches   {switches}" in printed
    assert ("one depth paid best" in printed) is said


@pytest.fixture
def fake_sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    A script that is run in place of ``sglang``; it does what the test writes into it.
    """
    path = tmp_path / "sglang"
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    return path


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(0o755)


def test_a_server_that_ends_is_an_error_with_its_log(fake_sglang: Path, tmp_path: Path) -> None:
    _script(fake_sglang, "print('one'); print('no such model'); raise SystemExit(78)")
    with CpuServer({}, log=tmp_path / "log") as server:
        with pytest.raises(EngineDiedError, match="found exit status 78"):
            server.wait(30)
        assert server.has_ended
        assert server.tail(1) == "no such model"


def test_a_server_that_never_answers_is_given_up(fake_sglang: Path, tmp_path: Path) -> None:
    _script(fake_sglang, "import time; time.sleep(60)")
    with (
        CpuServer({}, log=tmp_path / "log") as server,
        pytest.raises(EngineDiedError, match="answers after 1 s; found none"),
    ):
        server.wait(1)


def test_stopping_ends_what_the_server_started(fake_sglang: Path, tmp_path: Path) -> None:
    # A launcher that ends when asked to, and leaves a child that does not.
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    _script(
        fake_sglang,
        f"import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"print(child.pid, flush=True)\ntime.sleep(60)\n",
    )
    server = CpuServer({}, log=tmp_path / "log").start()
    while not server.tail(1):
        time.sleep(0.05)
    child_pid = int(server.tail(1))
    server.stop()
    assert server.has_ended
    deadline = time.monotonic() + 10
    while _runs(child_pid):
        assert time.monotonic() < deadline, "the server's child still runs"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie is dead; reaping it is init's business.
    return state != "Z"


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = CpuServer({}, log=tmp_path / "log", port=port)
        with pytest.raises(OSError, match=rf"port {port} of 127.0.0.1 cannot be used"):
            server.start()
    assert not (tmp_path / "log").exists()


def test_free_ports_differ_and_are_free() -> None:
    assert 1024 < free_port() < 65536


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(demo_command, "_run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(ConfigError, match=r"pip install 'sglang-dynspec\[report\]'"):
        demo_command.command(out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
