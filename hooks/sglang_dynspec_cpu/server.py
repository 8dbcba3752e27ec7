"""
`CpuServer`: a real ``sglang serve`` on the CPU engine, as a child process on loopback.

The server's launcher, scheduler and detokenizer run in a session of their own: a Ctrl-C on the
terminal reaches the caller alone, and the caller ends the whole session.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sysconfig
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sglang_dynspec_cpu.answers import EngineDiedError
from sglang_dynspec_cpu.environment import command_line, prepare_environment
from sglang_dynspec_hooks.client import Client

#: Seconds between two looks at a server that is starting.
_POLL = 0.5


class CpuServer:
    """
    A server with its log; as a context manager it is started, and stopped for certain.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        *,
        log: Path,
        flags: Sequence[str] = (),
        port: int | None = None,
        threads: int = 1,
    ) -> None:
        """
        Describe a server; `start` starts it.

        Args:
            arguments: Of `environment.engine_args`.
            log: File for everything the server prints; replaced.
            flags: Further command-line arguments, as they are typed.
            port: Where it listens; None for a free port.
            threads: For its arithmetic, where the caller's environment does not say.
        """
        self.port = free_port() if port is None else port
        self.log = log
        self._threads = threads
        listening = {"host": "127.0.0.1", "port": self.port, "skip_server_warmup": True}
        self.command = ["sglang", "serve", *command_line({**arguments, **listening}), *flags]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a final slash."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """
        Start the processes and return at once; `wait` waits until it serves.

        Raises:
            OSError: When somebody listens on the port: SGLang would notice after a minute's work.
        """
        try:
            _bind(self.port)
        except OSError as error:
            text = f"port {self.port} of 127.0.0.1 cannot be used: {error.strerror}"
            raise OSError(error.errno, text) from error
        # SGLang's settings of the caller's shell, such as a list of plugins, are not meant for us.
        env = {name: text for name, text in os.environ.items() if not name.startswith("SGLANG_")}
        script = Path(sysconfig.get_path("scripts")) / self.command[0]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [str(script), *self.command[1:]],
                env=prepare_environment(env, threads=self._threads),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    @property
    def has_ended(self) -> bool:
        """Whether its launcher has ended, by itself or by `stop`."""
        return self._process is None or self._process.poll() is not None

    def is_serving(self) -> bool:
        """
        Tell whether the server answers.

        Raises:
            EngineDiedError: When its launcher has ended.
        """
        if self.has_ended:
            status = None if self._process is None else self._process.returncode
            raise EngineDiedError(
                f"expected a running server; found exit status {status}; read {self.log}"
            )
        with Client(self.url) as client:
            return client.is_serving()

    def wait(self, seconds: float = 300) -> None:
        """
        Wait until the server answers; takes 20 seconds on an idle machine.

        Args:
            seconds: How long to wait at most.

        Raises:
            EngineDiedError: When its launcher ends, or the time is up.
        """
        deadline = time.monotonic() + seconds
        while not self.is_serving():
            if time.monotonic() > deadline:
                raise EngineDiedError(
                    f"expected a server that answers after {seconds:.0f} s; found none; "
                    f"read {self.log}"
                )
            time.sleep(_POLL)

    def tail(self, lines: int = 30) -> str:
        """Return the last lines of the log."""
        try:
            with self.log.open(errors="replace") as file:
                return "".join(deque(file, maxlen=lines)).rstrip()
        except FileNotFoundError:
            return ""

    def terminate(self) -> None:
        """Ask the server to end, and return at once."""
        if self._process is not None and not self.has_ended:
            # The launcher alone: it takes the end of a child that it did not ask for as a crash.
            self._process.terminate()

    def stop(self, seconds: float = 15) -> None:
        """
        End the server and everything it started; does nothing when it is not running.

        Args:
            seconds: How long it may take to end by itself.
        """
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.poll() is None:
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        finally:
            # Also when this was interrupted: the session must not outlive the caller.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        # After a failure there is nothing left to say to it.
        self.stop(15 if error is None else 0)


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on at the moment."""
    return _bind(0)


def _bind(port: int) -> int:
    """Bind a port, 0 for any, and let go of it again."""
    with socket.socket() as probe:
        # As the server will do: a port whose last connections are fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return int(probe.getsockname()[1])
