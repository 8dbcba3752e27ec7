"""
Measured tokens per second, by depth and batch size.
"""

import math

from sglang_dynspec.observation import Outcome

#: Batch sizes from here on share a bucket.
_LARGEST = 1024

#: Bucket of each batch size, two to an octave: sizes within a bucket differ by at most 41 %.
_BUCKETS = bytes(round(2 * math.log2(max(size, 1))) for size in range(_LARGEST + 1))

#: Rounds after which a measurement says nothing about now.
RECENT = 512

#: Rounds over which a cell averages.
_WINDOW = 64

#: A period this many times the mean is a stall, which is no depth's fault, and counts no more.
_STALL = 4.0

#: Rounds from which a mean is known well enough to tell a stall.
_KNOWN = 4.0

#: Weight of a new measurement of an upkeep pass.
_PASS_WEIGHT = 0.125


class Cell:
    """
    What rounds of one depth did at one bucket of batch sizes; older rounds count for less.

    Attributes:
        rounds: Rounds averaged over.

        tokens: Tokens of those rounds.

        seconds: Their periods.

        requests: Their counted requests.

        last: Index of the newest.
    """

    __slots__ = ("last", "requests", "rounds", "seconds", "tokens")

    def __init__(self) -> None:
        self.last = 0
        self.clear()

    def clear(self) -> None:
        """
        Forget everything.
        """
        self.rounds = self.tokens = self.seconds = self.requests = 0.0

    def known(self, round_index: int, rounds: float) -> bool:
        """
        Tell whether there is enough recent evidence.

        Args:
            round_index: Index of a round that is now.

            rounds: Rounds that are enough.
        """
        return self.rounds >= rounds and abs(round_index - self.last) < RECENT

    def clipped(self, period: float) -> float:
        """
        Cut a period that is a stall down to the longest that is none.

        Args:
            period: Seconds.
        """
        if self.rounds >= _KNOWN:
            return min(period, _STALL * self.seconds / self.rounds)
        return period

    def add(self, round_index: int, tokens: int, requests: int, period: float) -> None:
        """
        Add a round.

        Args:
            round_index: Its index.

            tokens: Tokens it delivered.

            requests: Requests it counted.

            period: Its seconds.
        """
        gap = abs(round_index - self.last)
        keep = (1.0 - 1.0 / _WINDOW) * (1.0 - gap / RECENT) if gap < RECENT else 0.0
        period = self.clipped(period) if keep else period
        self.last = round_index
        self.rounds = self.rounds * keep + 1.0
        self.tokens = self.tokens * keep + tokens
        self.seconds = self.seconds * keep + period
        self.requests = self.requests * keep + requests


class Rates:
    """
    Cells by depth and batch size, and what an upkeep pass takes.

    Plain rounds that hold an upkeep pass are kept out of the plain cells and counted through the
    mean pass instead: a probe of plain would otherwise show plain without its upkeep.

    Args:
        depths: Candidate depths.

    Attributes:
        upkeep_window: Plain rounds between two upkeep passes, as it is set now; 0 for no upkeep.
    """

    __slots__ = ("_cells", "_passes", "upkeep_window")

    def __init__(self, depths: tuple[int, ...]) -> None:
        buckets = _BUCKETS[-1] + 1
        self._cells = {depth: [Cell() for _ in range(buckets)] for depth in depths}
        self._passes = [0.0] * buckets
        self.upkeep_window = 0

    def cell(self, depth: int, batch_size: int) -> Cell | None:
        """
        Get the cell of a depth and a batch size, or None if the depth is no candidate.

        Args:
            depth: The depth.

            batch_size: Requests in the batch.
        """
        cells = self._cells.get(depth)
        return None if cells is None else cells[bucket_of(batch_size)]

    def add(self, outcome: Outcome) -> None:
        """
        Add a round whose period is usable.

        Args:
            outcome: What the round did.
        """
        cell = self.cell(outcome.depth, outcome.batch_size)
        period = outcome.period
        if cell is None or period is None:
            return
        if outcome.upkeep and cell.known(outcome.round, _KNOWN):
            self._measure_pass(outcome.batch_size, cell, period)
            if outcome.depth == 0:
                return
        cell.add(outcome.round, outcome.tokens, outcome.batch_size, period)

    def measure_pass(self, outcome: Outcome) -> None:
        """
        Take a round only for what its upkeep pass took, over the mean of its cell.

        Args:
            outcome: A round with an upkeep pass and a usable period.
        """
        cell = self.cell(outcome.depth, outcome.batch_size)
        if cell is not None and outcome.period is not None and cell.known(outcome.round, _KNOWN):
            self._measure_pass(outcome.batch_size, cell, outcome.period)

    def plain_rate(self, batch_size: int, requests: float) -> float:
        """
        Get the least tokens/s that plain rounds would deliver, upkeep included.

        The time of a plain round lies between constant and proportional in the batch size, so that
        its rate at a larger batch is at least the rate measured, and at a smaller one at least that
        rate times the ratio of the sizes.

        Args:
            batch_size: Gives the bucket.

            requests: The batch size to give the rate for, a mean within that bucket.

        Returns:
            Tokens per second; 0.0 where nothing was measured.
        """
        bucket = bucket_of(batch_size)
        cell = self._cells[0][bucket]
        if not cell.rounds:
            return 0.0
        seconds = cell.seconds
        if self.upkeep_window:
            seconds += cell.rounds * self._passes[bucket] / self.upkeep_window
        smaller = min(1.0, requests * cell.rounds / cell.requests)
        return cell.tokens * smaller / seconds

    def _measure_pass(self, batch_size: int, cell: Cell, period: float) -> None:
        bucket = bucket_of(batch_size)
        took = max(cell.clipped(period) - cell.seconds / cell.rounds, 0.0)
        self._passes[bucket] += _PASS_WEIGHT * (took - self._passes[bucket])


def bucket_of(batch_size: int) -> int:
    """
    Get the bucket of a batch size.

    Args:
        batch_size: Requests in the batch.

    Returns:
        Two to an octave, from 0.
    """
    return _BUCKETS[min(max(batch_size, 0), _LARGEST)]


def sizes_of(bucket: int) -> tuple[int, int]:
    """
    Get the smallest and the largest batch size of a bucket.

    Args:
        bucket: From 0 on.
    """
    return max(_BUCKETS.find(bucket), 1), _BUCKETS.rfind(bucket)
