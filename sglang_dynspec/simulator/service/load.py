"""
Load by the clock: clients that wait for their answers, and requests that come whatever happens.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """
    A number that moves with the clock.

    Attributes:
        knots: Second and value, ascending in seconds; the first is of second 0. The last value
            stays.

        sloping: Whether values between two knots lie on a line; otherwise each is held until the
            next.

        every: Seconds after which it begins anew, or None.
    """

    knots: tuple[tuple[float, float], ...]
    sloping: bool = False
    every: float | None = None

    def at(self, second: float) -> float:
        """
        Give the value at a moment.
        """
        knots = self.knots
        if self.every is not None:
            second %= self.every
        place = bisect_right(knots, (second, _NEVER)) - 1
        begin, value = knots[place]
        if not self.sloping or place + 1 == len(knots):
            return value
        end, after = knots[place + 1]
        return value + (after - value) * (second - begin) / (end - begin)

    def over(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Give the values at many moments.

        Args:
            seconds: The moments; shape (n,).

        Returns:
            Shape (n,).
        """
        if self.every is not None:
            seconds = seconds % self.every
        begins, values = np.array(self.knots).T
        if self.sloping:
            sloped: NDArray[np.float64] = np.interp(seconds, begins, values)
            return sloped
        held: NDArray[np.float64] = values[np.searchsorted(begins, seconds, "right") - 1]
        return held

    def next_change(self, second: float) -> float:
        """
        Give the first knot after a moment, or infinity.
        """
        start = 0.0 if self.every is None else second - second % self.every
        for begin, _ in self.knots:
            if start + begin > second:
                return start + begin
        return _NEVER if self.every is None else start + self.every


def held(value: float) -> Moves:
    """
    Make a number that does not move.

    Args:
        value: The number.
    """
    return Moves(knots=((0.0, value),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """
    Who asks, and when. Either or both.

    Attributes:
        clients: Clients of a closed loop: each asks again as soon as it has its answer. Where their
            number falls, those that have theirs stay away; nobody hangs up.

        rate: Requests per second of Poisson arrivals, above 0.
    """

    clients: Moves | None = None
    rate: Moves | None = None


class Arrivals:
    """
    Requests as they come.

    Args:
        load: Says when.

        rng: Decides what is random.
    """

    def __init__(self, load: Load, rng: np.random.Generator) -> None:
        self._load = load
        self._rng = rng
        self._next = _NEVER if load.rate is None else self._after(0.0)

    def due(self, now: float, present: int) -> int:
        """
        Take the requests that have come.

        Args:
            now: Seconds on the clock.

            present: Requests that run or wait.

        Returns:
            How many are new.
        """
        count = 0
        while self._next <= now:
            count += 1
            self._next = self._after(self._next)
        if self._load.clients is not None:
            count = max(count, round(self._load.clients.at(now)) - present)
        return count

    def next_moment(self, now: float) -> float:
        """
        Give the earliest moment after now at which a request may come while none runs or waits.
        """
        clients = self._load.clients
        return min(self._next, _NEVER if clients is None else clients.next_change(now))

    def _after(self, second: float) -> float:
        rate = self._load.rate
        # The rate at the moment of one arrival decides the wait for the next one.
        return _NEVER if rate is None else second + self._rng.exponential(1.0 / rate.at(second))
