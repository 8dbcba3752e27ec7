"""
What a round costs: seconds by depth, batch size and length of context.
"""

from math import exp, isfinite, log, log2, sqrt
from typing import NamedTuple

from sglang_dynspec._cells import Cell, Row, bucket_of
from sglang_dynspec._step_time import StepTime
from sglang_dynspec.calibration import Calibration, CostCell, Identity
from sglang_dynspec.observation import Outcome

__all__ = ["Calibration", "CostCell", "CostModel", "Identity"]

#: Rounds a calibrated cell counts for: what is measured while serving soon outweighs it.
_CALIBRATED = 8.0

#: Rounds between two fits of the linear model, and after a new cell appeared.
_REFIT = 128
_REFIT_NEW = 8

#: Relative error of extrapolating, per doubling of the batch size, and to a depth never run.
_PER_OCTAVE = 0.06
_NEW_DEPTH = 0.15

#: Rounds in a cell, a first round counting half, that are more than one; and the square of the share
#: of its contradiction to the linear model that a single one may be wrong by.
_TWICE = 1.5
_DOUBT = 0.25

#: Relative error that even many rounds leave.
_FLOOR = 0.004

#: Rounds after which a measurement weighs half.
_STALE = 4000.0

#: Share of plain rounds that pay an upkeep pass, before it was seen.
_UPKEEP_SHARE = 0.25

#: Plain rounds that this share, and upkeep passes that their cost remembers.
_SHARE_MEMORY = 256.0
_UPKEEP_MEMORY = 64.0

#: Passes at other batch sizes that weigh as much as so many at the own one, and how many times the
#: usual a single one may count as.
_UPKEEP_PRIOR = 4.0
_UPKEEP_CLIP = 3.0

#: Cost of an upkeep pass before one was measured, as a share of a plain round.
_FIRST_UPKEEP = 0.06

#: Longest period that is believed, in seconds.
_LONGEST = 600.0


class Cost(NamedTuple):
    """
    What a round is expected to cost.

    Attributes:
        seconds: Its period. That of a plain round includes its usual share of an upkeep pass.

        error: Relative standard error of that.

        rounds: Rounds measured at that depth and batch size bucket, at most 64.

        age: Timed rounds since the last of them; all timed rounds where there is none.
    """

    seconds: float
    error: float
    rounds: float
    age: int


class CostModel:
    """
    Estimates what rounds cost from their periods.

    A robust mean per depth and batch size bucket (`Cell`), over a linear model of all of them
    (`StepTime`) that carries over to batch sizes and depths that were not measured. The estimate is
    monotone in the batch size.

    Upkeep is kept apart: a plain cell holds rounds without a pass, the cost of a pass is a mean of
    its own, and a plain round is charged its usual share of one. A speculative round with a pass is
    a re-entry and counts for the pass alone.

    Args:
        depths: Candidate depths, ascending, beginning with 0.

    Attributes:
        untimed: Rounds without a usable period.

        timed: Rounds counted.
    """

    __slots__ = (
        "_last_depth",
        "_new_cell",
        "_rows",
        "_since_fit",
        "_step_time",
        "_upkeep",
        "_upkeep_ratio",
        "_upkeep_share",
        "timed",
        "untimed",
    )

    def __init__(self, depths: tuple[int, ...]) -> None:
        self._rows = {depth: Row() for depth in depths}
        self._step_time = StepTime()
        # Seconds and rounds, by batch size bucket.
        self._upkeep: dict[int, tuple[float, float]] = {}
        self._upkeep_share = _UPKEEP_SHARE
        self._upkeep_ratio = _FIRST_UPKEEP
        self._last_depth: int | None = None
        self._since_fit = 0
        self._new_cell = False
        self.timed = 0
        self.untimed = 0

    def load(self, calibration: Calibration) -> None:
        """
        Start from measured costs.

        Args:
            calibration: The costs. Depths that are no candidates are left out.
        """
        for measured in calibration.cells:
            row = self._rows.get(measured.depth)
            if row is not None:
                rounds = min(float(measured.rounds), _CALIBRATED)
                cell = Cell(
                    measured.seconds, measured.batch_size, measured.seq_len_sum, rounds=rounds
                )
                row.put(bucket_of(measured.batch_size), cell)
        for batch_size, seconds in calibration.upkeep.items():
            self._upkeep[bucket_of(batch_size)] = (seconds, _CALIBRATED)
        self._fit()

    def observe(self, outcome: Outcome) -> bool:
        """
        Count a round.

        Args:
            outcome: What it did. Without a usable period it is counted in `untimed` alone.

        Returns:
            Whether it was counted as a measurement of its depth.
        """
        depth, period = outcome.depth, outcome.period
        # The first round of a depth also pays for the change: used only where nothing else is.
        first = depth != self._last_depth
        self._last_depth = depth
        row = self._rows.get(depth)
        if period is None or row is None or not (isfinite(period) and 0.0 < period < _LONGEST):
            self.untimed += 1
            return False
        batch_size = outcome.padded_batch_size or outcome.batch_size
        if batch_size < 1:
            self.untimed += 1
            return False
        self.timed += 1
        bucket = bucket_of(batch_size)
        self._since_fit += 1
        if depth == 0 and not first:
            self._upkeep_share += (outcome.upkeep - self._upkeep_share) / _SHARE_MEMORY
        cell = row.cells.get(bucket)
        if outcome.upkeep:
            if cell is not None:
                self._count_upkeep(cell, bucket, batch_size, period)
                return False
            # Better than nothing, less what the pass is expected to have taken.
            period -= min(self.upkeep_seconds(batch_size), period / 2)
            first = True
        if cell is None:
            cell = Cell(period, batch_size, outcome.seq_len_sum, rounds=0.5 if first else 1.0)
            row.put(bucket, cell)
            self._new_cell = True
        elif not first or cell.rounds < 1.0:
            cell.add(period, batch_size, outcome.seq_len_sum)
        cell.round = self.timed
        due = _REFIT_NEW if self._new_cell else _REFIT
        if self._since_fit >= due or not self._step_time.fitted:
            self._fit()
        return not first

    def predict(self, depth: int, batch_size: int, tokens: float) -> Cost | None:
        """
        Estimate the cost of a round.

        Args:
            depth: A candidate depth.

            batch_size: The padded batch size.

            tokens: Sum of committed lengths in the batch.

        Returns:
            The estimate, or None before anything was measured.
        """
        if not self._step_time.fitted or batch_size < 1:
            return None
        seconds = max(self._step_time.seconds(depth, batch_size, tokens), 1e-9)
        bucket = bucket_of(batch_size)
        below, own, above = self._rows[depth].around(bucket)
        rounds, age = 0.0, self.timed
        if own is not None:
            rounds, age = own.rounds, self.timed - own.round
        evidence = weighted = 0.0
        for cell in (below, own, above):
            if cell is not None:
                ratio = self._ratio(depth, cell)
                weight = self._weight(cell, batch_size)
                if cell.rounds < _TWICE:
                    # A single round that contradicts the model may have been an outlier.
                    weight = 1.0 / (1.0 / weight + _DOUBT * ratio * ratio)
                evidence += weight
                weighted += weight * ratio
        if not evidence:
            weighted, evidence = self._nearest_depth(depth, bucket, batch_size)
        seconds *= exp(weighted / evidence)
        error = sqrt(1.0 / evidence + _FLOOR * _FLOOR)
        for cell, side in ((below, 1.0), (above, -1.0)):
            # A neighbour that contradicts is pooled with: isotonic regression, one to each side.
            if cell is not None:
                there = self._carried(depth, cell, tokens / batch_size)
                if side * (there - seconds) > 0.0:
                    weight = self._weight(cell, cell.batch_size)
                    here = 1.0 / (error * error)
                    seconds = (seconds * here + there * weight) / (here + weight)
        if depth == 0:
            seconds += self._upkeep_share * self.upkeep_seconds(batch_size)
        return Cost(seconds, error, rounds, age)

    def upkeep_seconds(self, batch_size: int) -> float:
        """
        Estimate what an upkeep pass adds to a round: a re-entry pays one.

        Args:
            batch_size: The padded batch size.

        Returns:
            Seconds, from passes measured at that batch size bucket and, where those are few, from
            their usual share of a plain round.
        """
        plain = self._step_time.seconds(0, batch_size, 0.0)
        seconds, rounds = self._upkeep.get(bucket_of(batch_size), (0.0, 0.0))
        total = rounds + _UPKEEP_PRIOR
        return (seconds * rounds + _UPKEEP_PRIOR * self._upkeep_ratio * plain) / total

    def _count_upkeep(self, cell: Cell, bucket: int, batch_size: int, period: float) -> None:
        plain = self._step_time.seconds(0, batch_size, 0.0)
        usual = self.upkeep_seconds(batch_size)
        # An outlier counts as if it were not so far off.
        excess = min(max(period - cell.seconds, 0.0), _UPKEEP_CLIP * usual)
        self._upkeep_ratio += (excess / plain - self._upkeep_ratio) / _UPKEEP_MEMORY
        seconds, rounds = self._upkeep.get(bucket, (0.0, 0.0))
        rounds = min(rounds + 1.0, _UPKEEP_MEMORY)
        self._upkeep[bucket] = (seconds + (excess - seconds) / rounds, rounds)

    def _weight(self, cell: Cell, batch_size: float) -> float:
        """Give the inverse variance of a cell's estimate carried over to a batch size."""
        stale = 0.5 ** ((self.timed - cell.round) / _STALE)
        distance = log2(batch_size / cell.batch_size)
        noise = 1.25 * cell.noise
        return 1.0 / (
            noise * noise / (cell.rounds * stale + 1e-3) + (_PER_OCTAVE * distance) ** 2 + 1e-8
        )

    def _ratio(self, depth: int, cell: Cell) -> float:
        model = self._step_time.seconds(depth, cell.batch_size, cell.tokens)
        return log(cell.seconds / max(model, 1e-9))

    def _nearest_depth(self, depth: int, bucket: int, batch_size: int) -> tuple[float, float]:
        """For a depth never run: how far the model is off at the nearest depth that was."""
        known = min(
            (other for other, row in self._rows.items() if len(row)),
            key=lambda other: abs(other - depth),
        )
        weighted = evidence = 0.0
        for cell in self._rows[known].around(bucket):
            if cell is not None:
                weight = self._weight(cell, batch_size)
                evidence += weight
                weighted += weight * self._ratio(known, cell)
        evidence_here = 1.0 / (1.0 / evidence + _NEW_DEPTH * _NEW_DEPTH)
        return weighted / evidence * evidence_here, evidence_here

    def _carried(self, depth: int, cell: Cell, length: float) -> float:
        """Give a cell's seconds at its own batch size, for requests of a mean length."""
        tokens = length * cell.batch_size
        seconds = self._step_time.seconds(depth, cell.batch_size, tokens)
        seconds *= exp(self._ratio(depth, cell))
        return seconds

    def _fit(self) -> None:
        self._step_time.fit(self._rows)
        self._since_fit = 0
        self._new_cell = False
