"""
Many runs at once: a map over processes, and a count of what is done.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any

#: Told how many tasks are done, and of how many.
Progress = Callable[[int, int], None]


@contextmanager
def workers(jobs: int | None) -> Iterator[Callable[..., Iterator[Any]]]:
    """
    Give a map over processes, whose results come as they are ready.

    Args:
        jobs: Processes; None for one a core. 1 stays in this process, and keeps the order.

    Yields:
        The map.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield map
        return
    pool = ProcessPoolExecutor(
        jobs,
        # Not forked: a progress bar has a thread.
        mp_context=get_context("spawn"),
        initializer=_prepare_worker,
    )
    with pool:

        def unordered(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            futures = [pool.submit(function, item) for item in items]
            return (future.result() for future in as_completed(futures))

        try:
            yield unordered
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """
    Let a process of the pool end with the one that started it.
    """
    # Ctrl-C reaches every process of a terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        # However it ended: a pool whose owner was killed waits for work forever.
        parent.join()
        os._exit(1)


class Count:
    """
    Counts what passes, and tells.

    Args:
        total: How many will pass.

        progress: Told of each.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        """
        Let items pass.
        """
        for item in items:
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, self._total)
            yield item
