"""Which engines' processes are forked, and what a forked process still does."""

import contextlib
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from sglang_dynspec_cpu import fork_server, process
from sglang_dynspec_cpu.fork_server import forked_processes

NAME = "SGLANG_READ_AT_IMPORT"


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Whether each start was one of forked processes; no engine is started."""
    starts = []

    @contextlib.contextmanager
    def noted():
        starts[-1] = True
        yield

    monkeypatch.setattr(fork_server, "_forked", noted)
    monkeypatch.setattr(fork_server, "_imported_with", [])
    monkeypatch.setattr(fork_server, "_set_at_starts", {"SGLANG_DYNSPEC"})
    monkeypatch.delenv(NAME, raising=False)
    return starts


def start(forked, launch=lambda: None):
    forked.append(False)
    with forked_processes():
        launch()


def test_all_are_while_nothing_changes_but_our_own_configuration(forked, monkeypatch):
    start(forked)
    monkeypatch.setenv("SGLANG_DYNSPEC", "another")
    monkeypatch.setenv("UNRELATED", "another")
    start(forked)
    assert forked == [True, True]


def test_none_is_that_would_miss_a_variable(forked, monkeypatch):
    start(forked)
    monkeypatch.setenv(NAME, "1")
    start(forked)
    monkeypatch.delenv(NAME)
    start(forked)
    assert forked == [True, False, True]


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_launcher_sets_is_no_change(forked, monkeypatch, fails):
    """Nor where its start fails."""

    def launch():
        monkeypatch.setenv("SGLANG_RESOLVED", "1")
        if fails:
            raise RuntimeError("no engine")

    with contextlib.suppress(RuntimeError):
        start(forked, launch)
    start(forked)
    assert forked == [True, True]


def test_none_is_that_would_end_with_another_thread(forked):
    thread = threading.Thread(target=start, args=[forked])
    thread.start()
    thread.join()
    start(forked)
    assert forked == [False, True]


#: Text of a program that forks one process, whose exit handler and environment it shows.
PROGRAM = """
import atexit, os
from sglang_dynspec_cpu.fork_server import _Process

def main():
    atexit.register(lambda: os.write(1, b"at exit"))
    os.write(1, (os.environ["LATE"] + " ").encode())

if __name__ == "__main__":
    first = _Process(target=print, args=["first"])
    first.start()
    first.join()
    os.environ["LATE"] = "later"
    second = _Process(target=main)
    second.start()
    second.join()
"""


def test_a_forked_process_has_its_callers_environment_and_its_own_exit(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={"OMP_NUM_THREADS": "2,1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "first\nlater at exit"


def test_nobody_is_killed_in_the_place_of_a_dead_child():
    """The number of a forked process that died may be given to another one."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        process._kill(SimpleNamespace(pid=stranger.pid, is_alive=lambda: False))
        stranger.communicate(b"\n")
    assert stranger.returncode == 0
