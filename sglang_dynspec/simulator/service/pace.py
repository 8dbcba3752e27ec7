"""
How fast a server is: times at which it, or one depth, is slower; and rounds of two kinds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """
    A time at which rounds take longer.

    Attributes:
        begin: Second at which it begins.

        end: Second at which it ends.

        factor: How many times as long rounds take; below 1 for a time at which they are faster.

        depths: The depths concerned; empty for the whole server, prefills included.

        every: Seconds after which it comes again, or None: a pulse.
    """

    begin: float
    end: float
    factor: float
    depths: tuple[int, ...] = ()
    every: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """
    Rounds of two kinds, by chance: the usual ones, and others that take longer.

    Noise as far as anyone can know; what rounds take on average counts.

    Attributes:
        factor: How many times as long the others take.

        share: Share of rounds that are others, 0.0 to 1.0.

        length: Mean number of others on end.

        depths: The depths concerned; empty for all.
    """

    factor: float
    share: float
    length: float = 1.0
    depths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """
    Everything that moves what rounds take.

    Attributes:
        slow: Times at which rounds take longer. Those that overlap multiply.

        modes: Rounds of two kinds, or None.
    """

    slow: tuple[Slow, ...] = ()
    modes: Modes | None = None

    def factor(self, depth: int | None, now: float) -> float:
        """
        Give the factor on a round that begins now, its mode aside.

        Args:
            depth: Its depth; None for a prefill.

            now: Seconds on the clock.
        """
        factor = 1.0
        for slow in self.slow:
            if not slow.depths or depth in slow.depths:
                at = now if slow.every is None else now % slow.every
                if slow.begin <= at < slow.end:
                    factor *= slow.factor
        return factor

    def over(self, depths: tuple[int, ...], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Give the factor on rounds of every depth at many moments, modes on average included.

        Args:
            depths: The depths.

            seconds: The moments; shape (rounds,).

        Returns:
            Shape (depths, rounds).
        """
        factors = np.ones((len(depths), len(seconds)))
        for slow in self.slow:
            at = seconds if slow.every is None else seconds % slow.every
            now = (at >= slow.begin) & (at < slow.end)
            for row, depth in enumerate(depths):
                if not slow.depths or depth in slow.depths:
                    factors[row, now] *= slow.factor
        if self.modes is not None:
            for row, depth in enumerate(depths):
                factors[row] *= self.mean_mode(depth)
        return factors

    def mean_mode(self, depth: int) -> float:
        """
        Give what modes add to rounds of a depth on average, as a factor.
        """
        modes = self.modes
        if modes is None or (modes.depths and depth not in modes.depths):
            return 1.0
        return 1.0 + modes.share * (modes.factor - 1.0)


class ModeNoise:
    """
    Draws which rounds are of the other kind: a chain of two states.

    Args:
        modes: The modes, or None.

        rng: Decides.
    """

    def __init__(self, modes: Modes | None, rng: np.random.Generator) -> None:
        self._modes = modes
        self._rng = rng
        self._other = False

    def factor(self, depth: int) -> float:
        """
        Draw the factor on the next round.

        Args:
            depth: Its depth.
        """
        modes = self._modes
        if modes is None:
            return 1.0
        leaves = 1.0 / modes.length
        # As often entered as left, so that the share comes out.
        enters = min(1.0, leaves * modes.share / max(1.0 - modes.share, 1e-9))
        self._other = self._rng.random() < (1.0 - leaves if self._other else enters)
        concerned = not modes.depths or depth in modes.depths
        return modes.factor if self._other and concerned else 1.0
