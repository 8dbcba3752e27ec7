"""
The life of one `sglang.Engine`: started so that a crash is an exception, ended without remains.

SGLang's own end kills every child of the calling process, whoever started it, and its answer to
a dead scheduler is to kill the caller, too. Neither is of use in a test run.
"""

import asyncio
import atexit
import contextlib
import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Coroutine, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn, TypeVar
from unittest import mock

from sglang_dynspec_cpu.answers import EngineDiedError
from sglang_dynspec_cpu.fork_server import forked_processes

T = TypeVar("T")

_SIGNALS = (signal.SIGQUIT, signal.SIGTERM)
_DIED = "expected a running engine; found a dead process of it; read its traceback on stderr"


class EngineProcess:
    """A running `sglang.Engine` with the processes, event loop and signal handlers it brought."""

    def __init__(self, arguments: Mapping[str, Any], *, forks: bool = False) -> None:
        """
        Start an engine; takes 20 seconds.

        Args:
            arguments: As `sglang.Engine` takes them.
            forks: Whether its processes are forked from one that has SGLang imported: 3 seconds,
                but for the first. Not on a GPU, which a forked process cannot use.

        Raises:
            EngineDiedError: When one of its processes dies before it is ready.
            Exception: Whatever SGLang raises for arguments it refuses.
        """
        self._is_dead = False
        self._handlers = _current_handlers()
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        others = set(multiprocessing.active_children())
        self.sgl: Any = None
        try:
            # SGLang's deprecation warnings must not fail a test run that makes warnings errors.
            ignored = warnings.catch_warnings(action="ignore")
            starting = forked_processes() if forks else contextlib.nullcontext()
            with ignored, _quiet_children(), _no_open_sockets_after_failure(), starting:
                import sglang

                self.sgl = sglang.Engine(**arguments, custom_sigquit_handler=_raise_died)
                self.sgl.tokenizer_manager.signal_handler_class = self._make_signal_handler
        except BaseException as error:
            self._children = set(multiprocessing.active_children()) - others
            self.end()
            # SGLang's word for a child that died; whether this or SIGQUIT comes first is chance.
            if type(error) is RuntimeError:
                raise EngineDiedError(_DIED) from error
            raise
        self._children = set(multiprocessing.active_children()) - others

    @property
    def is_alive(self) -> bool:
        """Whether all the processes that the engine started still run."""
        return not self._is_dead and all(child.is_alive() for child in self._children)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """
        Run a coroutine of the engine to its end.

        Raises:
            EngineDiedError: When a process of the engine dies meanwhile.
        """
        try:
            with warnings.catch_warnings(action="ignore"):
                return self._loop.run_until_complete(coroutine)
        except RuntimeError as error:
            if self._is_dead:
                raise EngineDiedError(_DIED) from error
            raise

    def end(self) -> None:
        """End all the engine's processes and put this process back as it was."""
        if self.sgl is not None:
            atexit.unregister(self.sgl.shutdown)
            manager = self.sgl.tokenizer_manager
            # It would take the end for a crash.
            manager._subprocess_watchdog.stop()
        for child in self._children:
            _kill(child)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
        if self.sgl is not None:
            for socket in (
                manager.recv_from_detokenizer,
                manager.send_to_scheduler,
                self.sgl.send_to_rpc,
            ):
                socket.context.destroy(linger=0)
            self.sgl = None
        # Closing the loop resets the signals that it handles, so restore ours after.
        self._loop.close()
        asyncio.set_event_loop(None)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _make_signal_handler(self, tokenizer_manager: Any) -> "_SignalHandler":
        return _SignalHandler(self, tokenizer_manager)

    def _report_death(self) -> None:
        self._is_dead = True
        self._loop.stop()


class _SignalHandler:
    """What SGLang's tokenizer manager does on signals, by its interface ``SignalHandler``."""

    def __init__(self, engine: EngineProcess, tokenizer_manager: Any) -> None:
        self._engine = engine
        self._manager = tokenizer_manager

    def sigterm_handler(self, *_: Any) -> None:
        """Let running requests end, then exit, as SGLang does."""
        self._manager.gracefully_exit = True

    def running_phase_sigquit_handler(self, *_: Any) -> None:
        """Fail the call that is waiting; SGLang sends itself SIGQUIT when a child has died."""
        self._engine._report_death()


def _raise_died(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise EngineDiedError(_DIED)


@contextlib.contextmanager
def _quiet_children() -> Iterator[None]:
    """Start children without warnings; they inherit this interpreter's options for them."""
    options = sys.warnoptions[:]
    sys.warnoptions[:] = ["ignore"]
    try:
        yield
    finally:
        sys.warnoptions[:] = options


@contextlib.contextmanager
def _no_open_sockets_after_failure() -> Iterator[None]:
    """
    Close the sockets that are made meanwhile if it ends in an exception.

    Nobody else does, and a ZeroMQ context that is collected as garbage before its sockets waits for
    them for ever.
    """
    import zmq

    made: list[Any] = []
    make = zmq.Context.socket

    def socket(context: Any, *arguments: Any, **options: Any) -> Any:
        made.append(make(context, *arguments, **options))
        return made[-1]

    try:
        with mock.patch.object(zmq.Context, "socket", socket):
            yield
    except BaseException:
        for each in made:
            each.close(linger=0)
        raise


def _current_handlers() -> dict[signal.Signals, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _kill(child: multiprocessing.process.BaseProcess) -> None:
    """Kill a child and its descendants, and wait for it."""
    import psutil  # type: ignore[import-untyped]  # ships no types

    # A forked one that has died is no child of ours, so its number may be somebody else's.
    if not child.is_alive():
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for descendant in psutil.Process(child.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                descendant.kill()
    child.kill()
    child.join(timeout=30)
