"""
How `dynspec calibrate` ends: what a signal leaves behind, and where the file goes.
"""

import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from sglang_dynspec.errors import ConfigError, ServerError
from sglang_dynspec.estimates.calibration import Calibration, CostCell
from sglang_dynspec_hooks.commands import _server
from sglang_dynspec_hooks.commands._server import Server
from sglang_dynspec_hooks.commands.calibrate import command
from sglang_dynspec_hooks.commands.signals import terminable
from tests.package.make_believe import MakeBelieve

#: What arrives, by when: a signal at a request of this path, with this many depths forced before.
Arrival = tuple[str, int]


class Disturbed(MakeBelieve):
    """
    Signals this process in the middle of a request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signals: dict[Arrival, signal.Signals] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        arrival = (request.url.path, len(self.forcings))
        if arrival in self.signals:
            # The process has been told once this returns: it is the thread that handles signals.
            os.kill(os.getpid(), self.signals.pop(arrival))
        return super().__call__(request)


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """
    Let Ctrl-C interrupt this process, although one in the background of a shell ignores it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Disturbed:
    made = Disturbed()
    monkeypatch.setattr(
        _server,
        "Server",
        lambda url, **more: Server(url, transport=httpx.MockTransport(made), **more),
    )
    return made


@pytest.fixture
def calibrate(tmp_path: Path) -> Callable[..., Any]:
    app = typer.Typer()
    app.command()(command)

    def run(out: Path = tmp_path / "costs.json") -> Any:
        return CliRunner().invoke(app, ["--url", "http://server", "--out", str(out)])

    return run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_decision_back(
    server: Disturbed, calibrate: Any, tmp_path: Path, number: signal.Signals
) -> None:
    # A default that would end the tests with the command.
    before = signal.signal(number, lambda *_: None)
    try:
        server.signals = {("/generate", 6): number}
        assert calibrate().exit_code == 128 + number
    finally:
        signal.signal(number, before)
    assert len(server.forcings) == 7
    assert server.forcings[-1] == -1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_one_does_not_keep_it(
    server: Disturbed, calibrate: Any, second: signal.Signals
) -> None:
    server.signals = {("/generate", 6): signal.SIGINT, ("/set_internal_state", 6): second}
    assert calibrate().exit_code == 130
    assert server.signals == {}
    assert server.forcings[-1] == -1


def test_what_nohup_ignores_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_directory_is_refused_first(server: Disturbed, calibrate: Any, tmp_path: Path) -> None:
    done = calibrate(tmp_path)
    assert isinstance(done.exception, ConfigError)
    assert done.exception.found == f"a directory, {tmp_path}"
    assert server.forcings == []


def test_so_is_what_may_not_be_written(
    server: Disturbed, calibrate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    done = calibrate()
    assert isinstance(done.exception, ConfigError)
    assert done.exception.found == "no permission to write there"
    assert server.forcings == []


@pytest.mark.parametrize("url", ["http://[::1", "http://\x00"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ServerError, match="correct --url or --api-key"):
        Server(url)


def test_what_is_no_key() -> None:
    with pytest.raises(ServerError, match="correct --url or --api-key"):
        Server("http://server", api_key="é")


CALIBRATION = Calibration(cells=(CostCell(depth=0, batch_size=1, seconds=0.01, rounds=8),))


class TestSaving:
    """
    Saving a calibration.
    """

    def test_a_link_stays_one(self, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        link, file = tmp_path / "costs.json", tmp_path / "there" / "costs.json"
        file.write_text("old")
        link.symlink_to(file)
        CALIBRATION.save(link)
        assert link.is_symlink()
        assert Calibration.load(file) == CALIBRATION
        assert list(file.parent.iterdir()) == [file]

    def test_a_device_stays_one(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            CALIBRATION.save(pipe)
            assert stat.S_ISFIFO(pipe.stat().st_mode)
            assert b'"batch_size": 1' in os.read(reader, 4096)
        finally:
            os.close(reader)

    def test_a_fault_leaves_the_old_file_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "costs.json"
        file.write_text("old")

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space left"):
            CALIBRATION.save(file)
        assert [each.name for each in tmp_path.iterdir()] == ["costs.json"]
        assert file.read_text() == "old"

    def test_processes_do_not_write_to_one_another(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "costs.json"
        replace = Path.replace
        other = CALIBRATION.model_copy(update={"created": "later"})

        def overtaken(partial: Path, target: Path) -> Path:
            monkeypatch.setattr(Path, "replace", replace)
            monkeypatch.setattr("os.getpid", lambda: -1)
            other.save(file)
            return replace(partial, target)

        monkeypatch.setattr(Path, "replace", overtaken)
        CALIBRATION.save(file)
        assert Calibration.load(file) == CALIBRATION
        assert [each.name for each in tmp_path.iterdir()] == ["costs.json"]
