"""How long rounds take: the time between the moments at which they are settled."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Periods:
    """
    Measures rounds without waiting for the device.

    Both scheduler loops settle a round as soon as it is complete, so the time between two
    settlements is what the later round added to the server's clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[int, float] | None = None

    def settled(self, scheduler: Any | None, batch: Any) -> float | None:
        """
        Note that a round has been settled just now.

        Returns:
            Seconds since the decode round before was, or None where the two are not comparable: a
            prefill, an idle gap or a pause of the engine came between.
        """
        now = self._clock()
        before, self._last = self._last, (batch.forward_iter, now)
        if before is None or batch.after_idle_gap or before[0] + 1 != batch.forward_iter:
            return None
        # SGLang does not count a pause that keeps the batch as an idle gap.
        pauses = () if scheduler is None else scheduler._pause_intervals
        if pauses and pauses[-1][1] > before[1]:
            return None
        return now - before[1]
