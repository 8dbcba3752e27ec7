"""How long rounds take, measured on the host without waiting for the device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Periods:
    """
    Measures rounds by the times at which they are settled.

    Both scheduler loops settle a round as soon as it is complete and the host gets to it, so the
    time between two settlements is what the later round added to the server's clock. Under overlap
    the host launches the next round before it settles this one. That costs nothing while the device
    is the slower of the two, as the host then waits for the round in any case. Where the host is
    slower, the round is complete before it is looked at, and the time between two settlements holds
    the launch of the next round in place of this one's. The two are exchanged then: launches of
    plain and of speculative rounds differ.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[int, float] | None = None
        self._begun = 0.0
        #: Seconds that the newest launch took; None if it was not that of a decode round.
        self._newest: float | None = None

    def launching(self) -> None:
        """Note that a batch is about to be launched."""
        self._begun = self._clock()
        self._newest = None

    def launched(self) -> float:
        """
        Note that a decode round has been launched.

        Returns:
            Seconds that took, for `settled`.
        """
        self._newest = self._clock() - self._begun
        return self._newest

    def settled(self, scheduler: Any, batch: Any, *, launch: float, ready: bool) -> float | None:
        """
        Note that a round has been settled just now.

        Args:
            scheduler: The scheduler.
            batch: The round's batch.
            launch: What `launched` returned for the round.
            ready: Whether the round was complete before the host looked at its result.

        Returns:
            Seconds since the decode round before, or None where the two are not comparable: a
            prefill, an idle gap or a pause of the engine came between.
        """
        now = self._clock()
        before, self._last = self._last, (batch.forward_iter, now)
        if before is None or batch.after_idle_gap or before[0] + 1 != batch.forward_iter:
            return None
        # SGLang does not count a pause that keeps the batch as an idle gap.
        pauses = scheduler._pause_intervals
        if pauses and pauses[-1][1] > before[1]:
            return None
        period = now - before[1]
        if ready:
            if self._newest is None:
                return None
            period += launch - self._newest
        return period if period > 0 else None


def is_ready(result: Any) -> bool:
    """Whether a result has arrived on the host already; False where that cannot be told."""
    query = getattr(result.copy_done, "query", None)
    return query is not None and bool(query())
