"""
Writing a trace without holding up the server.
"""

import atexit
import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.trace.format import VERSION, VERSION_KEY, TraceHeader

#: Seconds between two writes to the file.
FLUSH_INTERVAL = 1.0

#: Records that may wait for the disk, some minutes' worth. Past that the disk counts as stuck.
BACKLOG = 100_000

#: Seconds that `TraceWriter.close` waits for a write that is under way.
PATIENCE = 5.0

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode


class TraceWriter:
    """
    Records rounds in a file.

    Lines are collected in memory and written by a thread of its own once a second, so that a slow
    disk delays no token. Whole lines are written at a time: a process killed without warning loses
    the last second and leaves at most one cut line, which readers skip.

    Args:
        path: The file; replaced if it exists.

        header: What goes into its first line.

        flush_interval: Seconds between two writes.

        clock: Gives seconds.

    Raises:
        ConfigError: The file cannot be written, or another server is writing it.
    """

    def __init__(
        self,
        path: Path,
        header: TraceHeader,
        *,
        flush_interval: float = FLUSH_INTERVAL,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_trace_path(path)
        self._clock = clock
        self._started = clock()
        # A deque, because one thread appends while another takes away.
        self._lines = deque([_encode({VERSION_KEY: VERSION, **asdict(header)})])
        self._fault: OSError | None = None
        self._write_lock = threading.Lock()
        self._closing = threading.Event()
        try:
            # Not "wb": the file may turn out to be another server's.
            self._file = path.open("ab", buffering=0)
            _claim(self._file, path)
        except OSError as error:
            raise _unusable(path, f"{type(error).__name__}: {error.strerror}") from error
        self._flusher = threading.Thread(
            target=self._flush_every, args=(flush_interval,), name="dynspec-trace", daemon=True
        )
        self._flusher.start()
        atexit.register(self._close_at_exit)

    def write(self, observation: Observation, plan: Plan, outcome: Outcome) -> None:
        """
        Record a round. It reaches the file within the flush interval.

        Args:
            observation: What its decision was based on.

            plan: Its plan.

            outcome: What it did.

        Raises:
            OSError: An earlier write failed, or the disk is stuck.

            TypeError: A field holds something JSON cannot, predictions aside.

            ValueError: A field is NaN or infinite, predictions aside.
        """
        if self._fault is not None:
            raise self._fault
        if len(self._lines) >= BACKLOG:
            raise OSError(errno.EAGAIN, "the disk does not keep up with the trace")
        record: dict[str, Any] = {
            "round": outcome.round,
            "t": round(self._clock() - self._started, 6),
            "batch_size": observation.batch_size,
            "padded_batch_size": observation.padded_batch_size,
            "running": observation.running,
            "waiting": observation.waiting,
            "seq_len_sum": observation.seq_len_sum,
            "seq_len_max": observation.seq_len_max,
            "kv_free": round(observation.kv_free, 6),
            "depth": outcome.depth,
            "planned": outcome.planned,
            "reason": _text(plan.reason),
            "accepted": outcome.accepted,
            "tokens": outcome.tokens,
            "period": outcome.period,
        }
        # Left out where it is nothing.
        more = {
            "probe": plan.probe,
            "blocked": _text(plan.blocked),
            "plain_requests": observation.plain_requests,
            "upkeep_window": observation.upkeep_window,
            "seq_lens": outcome.seq_lens,
            "upkeep": outcome.upkeep,
            "guesses": outcome.guesses,
            "right_guesses": outcome.right_guesses,
        }
        record |= {name: value for name, value in more.items() if value}
        try:
            line = _encode(record | _predictions(plan))
        except (TypeError, ValueError):
            # Nothing checks these, and a policy may be anybody's: they are left out.
            line = _encode(record)
        self._lines.append(line)

    def flush(self) -> None:
        """
        Write what has been collected to the file now.

        Raises:
            OSError: The write failed, now or earlier.
        """
        with self._write_lock:
            if self._fault is not None:
                raise self._fault
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if not lines:
                return
            try:
                self._write_all("\n".join([*lines, ""]).encode())
            except OSError as error:
                self._fault = error
                raise

    def close(self, patience: float = PATIENCE) -> None:
        """
        Write the rest and close the file. Does nothing the second time.

        Args:
            patience: Seconds to wait for a write that is under way.

        Raises:
            OSError: A write failed, now or earlier, or the disk is stuck.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        atexit.unregister(self._close_at_exit)
        self._flusher.join(patience)
        if self._flusher.is_alive():
            # It may never come back, so the file stays open and the rest is lost.
            raise OSError(errno.EAGAIN, "the disk does not keep up with the trace")
        try:
            self.flush()
        finally:
            self._file.close()

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _flush_every(self, interval: float) -> None:
        while not self._closing.wait(interval):
            try:
                self.flush()
            except OSError:
                # Kept in _fault; the next write or close reports it.
                return

    def _close_at_exit(self) -> None:
        # Nobody is left to be told of a fault.
        try:
            self.close()
        except OSError:
            return


def _predictions(plan: Plan) -> dict[str, Any]:
    """
    Give what a plan predicted, as far as it predicted anything.
    """
    record: dict[str, Any] = {}
    if plan.predicted and all(type(rate) in (int, float) for rate in plan.predicted):
        record["predicted"] = plan.predicted
    if type(plan.confidence) in (int, float):
        record["confidence"] = plan.confidence
    return record


def _text(words: str) -> str:
    """
    Replace what no reader takes: halves of characters, which a policy's text may hold.
    """
    return words if words.isascii() else words.encode("utf-8", "replace").decode()


def check_trace_path(path: Path) -> None:
    """
    Check, before anything is loaded, that a trace can be written.

    Args:
        path: The file to write.

    Raises:
        ConfigError: Its directory does not exist or is not writable, it is a directory itself, or
            another server is writing it.
    """
    directory = path.absolute().parent
    try:
        if not directory.is_dir():
            raise _unusable(path, f"no directory {directory}")
        if path.is_dir():
            raise _unusable(path, "a directory of that name")
        if not os.access(path if path.exists() else directory, os.W_OK):
            raise _unusable(path, "no permission to write there")
        if path.is_file():
            with path.open("ab", buffering=0) as file:
                _lock(file, path)
    except OSError as error:
        # Such as a name that is too long, or a link to itself.
        raise _unusable(path, f"{type(error).__name__}: {error.strerror}") from error


def _claim(file: FileIO, path: Path) -> None:
    """
    Empty the file and keep other servers off it until it is closed.

    Raises:
        ConfigError: Another server is writing it.
    """
    # Devices and pipes may be shared, and cannot be emptied.
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return
    try:
        _lock(file, path)
    except ConfigError:
        file.close()
        raise
    file.truncate(0)


def _lock(file: FileIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _unusable(path, "another server that is writing it") from error
    except OSError:
        # A file system without locks.
        return


def _unusable(path: Path, found: str) -> ConfigError:
    return ConfigError(
        expected=f"a writable file for the trace at {path}",
        found=found,
        remedy="create the directory, or choose another file for --dynspec-trace",
    )
