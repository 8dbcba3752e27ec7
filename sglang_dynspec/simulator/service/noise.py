"""
What disturbs a world: noise, first rounds that compile kernels, and drafts that have grown stale.
"""

import math
import zlib

import numpy as np

from sglang_dynspec.simulator.service.world import World

#: Outliers take so many times as long.
_OUTLIER = (2.0, 6.0)

#: Factors drawn at a time.
_BLOCK = 512

#: Plain rounds without upkeep after which drafts are two thirds of the way to stale.
_AGEING = 16.0


class Noise:
    """
    Draws the factor by which noise lengthens each round.

    Args:
        deviation: Standard deviation of its logarithm.

        outliers: Share of rounds that take 2 to 6 times as long.

        rng: Decides.
    """

    def __init__(self, deviation: float, outliers: float, rng: np.random.Generator) -> None:
        self._deviation = deviation
        self._outliers = outliers
        self._rng = rng
        self._left: list[float] = []

    def factor(self) -> float:
        """
        Draw the next factor.
        """
        if not self._left:
            noise = self._rng.lognormal(0.0, self._deviation, _BLOCK)
            outlying = self._rng.random(_BLOCK) < self._outliers
            slowed = noise * self._rng.uniform(*_OUTLIER, _BLOCK)
            self._left = np.where(outlying, slowed, noise).tolist()
        return self._left.pop()


class Stalls:
    """
    Remembers which kernels have been compiled.

    Args:
        seconds: What compiling takes, from half to twice as much by depth and size; 0 for nothing.

        name: Decides which take how long, so that they do in every run.
    """

    def __init__(self, seconds: float, name: str) -> None:
        self._seconds = seconds
        self._name = name
        self._compiled: set[tuple[int, int, bool]] = set()

    def first(self, depth: int, column: int, *, upkeep: bool) -> float:
        """
        Note a round, and give the seconds that it compiles.

        Args:
            depth: Its depth.

            column: Place of its padded batch size.

            upkeep: Whether it has an upkeep pass.
        """
        kernels = (depth, column, upkeep)
        if not self._seconds or kernels in self._compiled:
            return 0.0
        self._compiled.add(kernels)
        drawn = zlib.crc32(f"{self._name} {kernels}".encode()) / 2**32
        return float(self._seconds * 2.0 ** (2.0 * drawn - 1.0))


class Staleness:
    """
    How stale drafts are where there is no upkeep: what plain rounds leave out of the draft's cache.

    They grow stale in plain rounds and fresh in speculative ones, and requests that come are fresh.

    Args:
        world: Says whether there is upkeep, how stale they get and how soon they are fresh.
    """

    def __init__(self, world: World) -> None:
        self._ages = 0.0 if world.window else 1.0 - math.exp(-1.0 / _AGEING)
        self._keeps = math.exp(-1.0 / world.freshening)
        self._stale = world.stale
        self._share = 0.0

    @property
    def level(self) -> float:
        """
        Factor on acceptance.
        """
        return 1.0 - self._share * (1.0 - self._stale)

    def note(self, depth: int) -> None:
        """
        Note a round.

        Args:
            depth: Its depth.
        """
        if depth:
            self._share *= self._keeps
        else:
            self._share += self._ages * (1.0 - self._share)

    def admit(self, count: int, running: int) -> None:
        """
        Note requests that come.

        Args:
            count: How many.

            running: How many run already.
        """
        self._share *= running / (running + count)
