"""
SGLang's processes, forked from one that has imported SGLang already.

Most of a small engine's start is two processes that import SGLang, for 8 seconds of a core each.
Python's fork server imports it once for all engines of the calling process. Each of their
processes gets the caller's environment, standard output and error as they are at its start. But
SGLang reads some variables of its own at import: where the caller has changed one of them since the
fork server started, or calls from another thread than the main one, processes are spawned as ever.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.reduction import DupFd
from typing import Any
from unittest import mock

from sglang_dynspec_hooks.process import ENABLED

#: SGLang's variables at the start of the fork server, once there is one, and names of those that
#: are not the caller's.
_imported_with: list[dict[str, str]] = []
_set_at_starts = {ENABLED}


@contextlib.contextmanager
def forked_processes() -> Iterator[None]:
    """Let SGLang's launcher in this process fork its processes, instead of spawning them."""
    before = _variables()
    # The fork server, and every process forked from it, ends with the thread that started it.
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and not _imported_with:
        _imported_with.append(before)
    forks = is_main and not _differing(before, _imported_with[0])
    try:
        with _forked() if forks else contextlib.nullcontext():
            yield
    finally:
        # The launcher puts what it has resolved there, for its children to read.
        _set_at_starts.update(_differing(_variables(), before))


def _variables() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith("SGLANG_")}


def _differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    """Names of variables that differ and that only a caller sets."""
    return {name for name, _ in one.items() ^ other.items()} - _set_at_starts


@contextlib.contextmanager
def _forked() -> Iterator[None]:
    multiprocessing.set_forkserver_preload(["sglang_dynspec_cpu.preloaded"])
    # Before the import that follows in this process: they take 10 seconds each.
    forkserver.ensure_running()
    with mock.patch("sglang.srt.entrypoints.engine.mp", _Context()):
        yield


class _Process(ForkServerProcess):
    """A process that finds itself as if it had been spawned."""

    def start(self) -> None:
        # What an object holds is pickled at its start and so gets there.
        self._environment = dict(os.environ)
        self._output = _Output()
        super().start()

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self._environment)
        # The fork server hands it on to the launcher; see there.
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        # OpenMP has read the variable before the fork.
        import torch

        torch.set_num_threads(int(self._environment["OMP_NUM_THREADS"].partition(",")[0]))
        try:
            super().run()
        finally:
            # Python would end a forked process without them; ours write the end of a trace.
            atexit._run_exitfuncs()


class _Context(ForkServerContext):
    """What SGLang's launcher knows as the module `multiprocessing`."""

    Process = _Process

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """Keep to this one, whatever SGLang sets."""


class _Output:
    """The standard output and error of the process that pickles it, adopted where it arrives."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _adopted_output, (DupFd(1), DupFd(2))


def _adopted_output(*received: Any) -> _Output:
    for number, descriptor in enumerate(received, start=1):
        copy = descriptor.detach()
        os.dup2(copy, number)
        os.close(copy)
    return _Output()
