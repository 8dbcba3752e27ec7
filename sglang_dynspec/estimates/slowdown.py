"""
Slowdowns of a server: everything takes longer, or no longer does.
"""

from math import exp, log

#: Unusual rounds in a row, all longer or all shorter, that are no chance but a change.
_CHANGED = 6


class Slowdown:
    """
    Finds slowdowns, and their ends, in rounds that are unusual for their depth and batch size.

    Clocks drop, another process takes a share: rounds of every depth and batch size change by about
    the same factor, whichever run while it happens.

    Attributes:
        since: Index of the first of the unusual rounds.
    """

    __slots__ = ("_count", "_side", "_sum", "since")

    def __init__(self) -> None:
        self._side = 0
        self._count = 0
        self._sum = 0.0
        self.since = 0

    def changed(self, index: int, side: int, ratio: float) -> float:
        """
        Take note of a round.

        Args:
            index: Its index.

            side: 1 if it was unusually long, -1 if unusually short, 0 if neither.

            ratio: Its period relative to the usual one, above 0.

        Returns:
            By what factor rounds have been found to take longer; 1.0 for no change.
        """
        if side != self._side:
            self._side = side
            self._count = 0
            self._sum = 0.0
            self.since = index
        if not side:
            return 1.0
        self._count += 1
        self._sum += log(ratio)
        if self._count < _CHANGED:
            return 1.0
        factor = exp(self._sum / _CHANGED)
        self._side = 0
        return factor
