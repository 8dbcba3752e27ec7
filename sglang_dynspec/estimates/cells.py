"""
The measured cost of rounds that are alike.
"""

from collections.abc import Iterator
from math import log2

#: Rounds a cell's mean remembers.
_MEMORY = 64.0

#: Rounds in a cell, a first round of a depth counting half, that are more than one.
TWICE = 1.5

#: Rounds before a cell knows what is usual.
USUAL = 3.0

#: What an unusual round is: this many mean deviations off, and at least this share of the mean.
_DEVIATIONS = 5.0
_SHARE = 0.08

#: Rounds a mean is worth that was not measured but scaled: few enough for one that is measured to
#: replace it where they disagree.
_DOUBTED = 2.0

#: By what factor a mean may be scaled, up or down, until it is measured again.
_SCALED = 3.0

#: Rounds that the first round of a depth, which also pays for the change, is worth.
HALF = 0.5

#: Batch sizes up to this have a bucket each; above it there are this many to a doubling.
_EXACT = 16
_PER_OCTAVE = 4

#: Deviation of a single round from the mean, relative, before any was measured.
FIRST_NOISE = 0.05


def bucket_of(batch_size: int) -> int:
    """
    Group padded batch sizes: exactly up to 16, then four groups to a doubling.
    """
    if batch_size <= _EXACT:
        return batch_size
    return _EXACT + round(_PER_OCTAVE * log2(batch_size / _EXACT))


class Cell:
    """
    The mean period of one depth's rounds at about one batch size.

    A round far from the mean counts as if it were less far, so that an outlier moves nothing much.
    Several in a row are a slowdown of the server, or its end, which `Slowdown` finds.

    Attributes:
        seconds: Mean period.

        rounds: Rounds in the mean, at most 64.

        batch_size: Mean padded batch size of those rounds.

        tokens: Mean sum of committed lengths of those rounds.

        noise: Mean absolute deviation of a round from the mean, relative.

        round: Index of the round measured last.

        born: Index of the round measured first.

        scaled: By what factor the mean was scaled since it was measured last.
    """

    __slots__ = (
        "batch_size",
        "born",
        "noise",
        "round",
        "rounds",
        "scaled",
        "seconds",
        "tokens",
    )

    def __init__(
        self, seconds: float, batch_size: float, tokens: float, *, rounds: float, born: int = 0
    ) -> None:
        self.seconds = seconds
        self.batch_size = batch_size
        self.tokens = tokens
        self.rounds = rounds
        self.noise = FIRST_NOISE
        self.scaled = 1.0
        self.round = self.born = born

    def add(self, seconds: float, batch_size: float, tokens: float) -> int | None:
        """
        Count a round.

        Args:
            seconds: Its period, finite and above 0.

            batch_size: Its padded batch size.

            tokens: Sum of the committed lengths of its batch.

        Returns:
            1 if it was unusually long, -1 if unusually short, 0 if neither, and None where too few
            were measured to tell.
        """
        mean = self.seconds
        off = seconds - mean
        self.scaled = 1.0
        side: int | None = None
        if self.rounds <= HALF:
            # Two that agree are worth more than one; of the first, nothing is kept but that.
            agree = abs(off) < mean / 3
            self.seconds, self.rounds = seconds, 1.0 + HALF * agree
            self.batch_size, self.tokens = batch_size, tokens
            return None
        if self.rounds < USUAL:
            # What disturbs a round makes it longer, so of two that disagree the shorter is right.
            limit = 0.5 * mean
            if off < -mean / 3:
                self.seconds, self.rounds = seconds, 1.0
                off = 0.0
            off = min(off, limit)
        else:
            limit = max(_DEVIATIONS * self.noise, _SHARE) * mean
            side = (off > limit) - (off < -limit)
            off = min(max(off, -limit), limit)
            self.noise += (min(abs(off) / mean, 0.5) - self.noise) / _MEMORY
        self.rounds = min(self.rounds + 1.0, _MEMORY)
        weight = 1.0 / self.rounds
        self.seconds += off * weight
        self.batch_size += (batch_size - self.batch_size) * weight
        self.tokens += (tokens - self.tokens) * weight
        return side

    def scale(self, factor: float) -> None:
        """
        Follow a slowdown found elsewhere: multiply the mean, and trust it less.

        Factors that add up, found in pulses whose ends were not, are bounded.
        """
        scaled = min(max(self.scaled * factor, 1.0 / _SCALED), _SCALED)
        self.seconds *= scaled / self.scaled
        self.scaled = scaled
        self.rounds = min(self.rounds, _DOUBTED)


class Row:
    """
    The cells of one depth, by batch size bucket.

    Attributes:
        cells: The cells; as many as there are buckets at most.
    """

    __slots__ = ("_order", "cells")

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self._order: list[int] = []

    def put(self, bucket: int, cell: Cell) -> None:
        """
        Add a cell, in place of one of its bucket.
        """
        self.cells[bucket] = cell
        self._order = sorted(self.cells)

    def around(self, bucket: int) -> tuple[Cell | None, Cell | None, Cell | None]:
        """
        Find a bucket's own cell and the nearest ones below and above it.

        A neighbour that rests on a single round is passed over where one further off does not.
        """
        below = above = None
        for key in self._order:
            cell = self.cells[key]
            if key < bucket:
                if below is None or cell.rounds >= TWICE or below.rounds < TWICE:
                    below = cell
            elif key > bucket:
                if above is None or cell.rounds >= TWICE:
                    above = cell
                if above.rounds >= TWICE:
                    break
        return below, self.cells.get(bucket), above

    @property
    def is_sure(self) -> bool:
        """
        Whether more than a single round was measured in some cell.
        """
        return any(cell.rounds >= TWICE for cell in self.cells.values())

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells.values())

    def __len__(self) -> int:
        return len(self.cells)
