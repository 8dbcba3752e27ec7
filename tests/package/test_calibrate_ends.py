"""
How `dynspec calibrate` ends: what a signal leaves behind, and which file is refused.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from sglang_dynspec.errors import ConfigError
from sglang_dynspec_hooks import client
from sglang_dynspec_hooks.client import Client
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
        client,
        "Client",
        lambda url, **more: Client(url, transport=httpx.MockTransport(made), **more),
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
