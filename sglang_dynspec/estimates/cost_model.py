"""
What a round costs: seconds by depth, batch size and length of context.
"""

from math import exp, log, log2, sqrt

from sglang_dynspec.estimates.calibration import Calibration
from sglang_dynspec.estimates.cells import HALF, TWICE, USUAL, Cell, Row, bucket_of
from sglang_dynspec.estimates.cost import Cost
from sglang_dynspec.estimates.slowdown import Slowdown
from sglang_dynspec.estimates.step_time import StepTime
from sglang_dynspec.estimates.upkeep_cost import UpkeepCost
from sglang_dynspec.observation import Outcome

#: Rounds a calibrated cell counts for: what is measured while serving soon outweighs it.
_CALIBRATED = 8.0

#: Timed rounds between two fits of the linear model, and to one that has a new cell.
_REFIT = 128
_REFIT_NEW = 8

#: Relative error of extrapolating, per doubling of the batch size, and to a depth never run.
_PER_OCTAVE = 0.06
_NEW_DEPTH = 0.15

#: Evidence below which other depths are asked: that of a relative error of a tenth.
_SLIGHT = 100.0

#: Variance of a single round per square of its contradiction to the linear model, and of two per
#: fourth power: they may have stalled, but if so for much longer than anything really takes.
_DOUBT = 0.25
_DOUBT_TWICE = 0.02

#: Relative error that even many rounds leave.
_FLOOR = 0.004

#: Timed rounds after which a measurement weighs half.
_STALE = 4000.0

#: Rounds of a cell that are news: what it says of them is not what was expected.
_NEWS = 4.0

#: Standard deviation of a normal distribution with a mean absolute deviation of 1.
_SPREAD = 1.25

_TINY = 1e-9


class CostModel:
    """
    Estimates what rounds cost from their periods.

    A robust mean per depth and batch size bucket (`Cell`), over a linear model of all of them
    (`StepTime`) that carries over to batch sizes and depths that were not measured: each cell says
    by what factor the linear model is off near it. The estimate is monotone in the batch size.

    Upkeep is kept apart: a plain cell holds rounds without a pass, the cost of a pass is a mean of
    its own (`UpkeepCost`), and a plain round is charged its usual share of one. A speculative round
    with a pass is a re-entry and counts for the pass alone. So does the first round of a depth
    count for nothing, as it also pays for the change, unless nothing else is known.

    Where several rounds on end show that the server has become slower or faster (`Slowdown`),
    what was measured before, at whatever depth and batch size, is taken to have changed alike.

    Args:
        depths: Candidate depths, ascending, beginning with 0.

    Attributes:
        untimed: Rounds without a usable period.

        timed: Rounds counted.

        has_news: Whether the last round counted was one of the first at its depth and batch size.
    """

    __slots__ = (
        "_last_depth",
        "_new_cell",
        "_rows",
        "_since_fit",
        "_slowdown",
        "_step_time",
        "_upkeep",
        "has_news",
        "timed",
        "untimed",
    )

    def __init__(self, depths: tuple[int, ...]) -> None:
        self._rows = {depth: Row() for depth in depths}
        self._step_time = StepTime()
        self._upkeep = UpkeepCost()
        self._slowdown = Slowdown()
        self._last_depth: int | None = None
        self._since_fit = 0
        self._new_cell = False
        self.has_news = False
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
                row.put(
                    bucket_of(measured.batch_size),
                    Cell(
                        measured.seconds, measured.batch_size, measured.seq_len_sum, rounds=rounds
                    ),
                )
        for batch_size, seconds in calibration.upkeep.items():
            self._upkeep.set(batch_size, seconds, _CALIBRATED)
        self._fit()

    def observe(self, outcome: Outcome) -> bool:
        """
        Count a round.

        Args:
            outcome: What it did. Without a usable period it is counted in `untimed` alone.

        Returns:
            Whether it was counted as a measurement of its depth.
        """
        depth, period = outcome.depth, outcome.usable_period
        first = depth != self._last_depth
        self._last_depth = depth
        row = self._rows.get(depth)
        batch_size = max(outcome.padded_batch_size, outcome.batch_size)
        if row is None or period is None:
            self.untimed += 1
            return False
        self.timed += 1
        self._since_fit += 1
        if depth == 0 and not first:
            self._upkeep.count_plain(paid=outcome.upkeep)
        cell = row.cells.get(bucket_of(batch_size))
        if outcome.upkeep and cell is not None:
            self._upkeep.count(batch_size, period - cell.seconds, self._plain(batch_size))
            return False
        if outcome.upkeep:
            # Better than nothing, less what the pass is expected to have taken.
            period -= min(self.upkeep_seconds(batch_size), period / 2)
            first = True
        self._measure(row, batch_size, max(outcome.seq_len_sum, 0), period, first=first)
        return True

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
        tokens = max(tokens, 0.0)
        below, own, above = around = self._rows[depth].around(bucket_of(batch_size))
        evidence, weighted = self._evidence(depth, around, batch_size)
        if evidence < _SLIGHT:
            # What other depths say outweighs a single round, and one at a batch size far off.
            other, others = self._nearest_depth(depth, batch_size)
            evidence, weighted = evidence + other, weighted + others
        seconds = self._step_time.seconds(depth, batch_size, tokens) * exp(weighted / evidence)
        here = 1.0 / (1.0 / evidence + _FLOOR * _FLOOR)
        for cell, side in ((below, 1.0), (above, -1.0)):
            # A neighbour that contradicts is pooled with: isotonic regression, one to each side.
            if cell is not None:
                there = self._carried(depth, cell, tokens / batch_size)
                if side * (there - seconds) > 0.0:
                    weight = self._weight(cell, cell.batch_size, self._ratio(depth, cell))
                    seconds = (seconds * here + there * weight) / (here + weight)
        if depth == 0:
            seconds += self._upkeep.share * self.upkeep_seconds(batch_size)
        rounds = 0.0 if own is None else own.rounds
        return Cost(max(seconds, _TINY), sqrt(1.0 / here), rounds)

    def upkeep_seconds(self, batch_size: int) -> float:
        """
        Estimate what an upkeep pass adds to a round: a re-entry pays one.

        Args:
            batch_size: The padded batch size.

        Returns:
            Seconds, from passes measured at that batch size bucket and, where those are few, from
            their usual share of a plain round.
        """
        return self._upkeep.seconds(batch_size, self._plain(batch_size))

    def _plain(self, batch_size: int) -> float:
        return max(self._step_time.seconds(0, batch_size, 0.0), _TINY)

    def _measure(
        self, row: Row, batch_size: int, tokens: float, period: float, *, first: bool
    ) -> None:
        bucket = bucket_of(batch_size)
        cell = row.cells.get(bucket)
        if cell is None:
            rounds = HALF if first else 1.0
            cell = Cell(period, batch_size, tokens, rounds=rounds, born=self.timed)
            row.put(bucket, cell)
        elif not first:
            single, ratio = cell.rounds < TWICE, period / cell.seconds
            side = cell.add(period, batch_size, tokens)
            # From its second round on a cell counts for the linear model.
            self._new_cell = self._new_cell or (single and cell.rounds >= TWICE)
            if side is not None:
                factor = self._slowdown.changed(self.timed, side, ratio)
                if factor != 1.0:
                    self._scale(factor)
        cell.round = self.timed
        self.has_news = cell.rounds <= _NEWS
        due = _REFIT_NEW if self._new_cell else _REFIT
        if self._since_fit >= due or not self._step_time.fitted:
            self._fit()

    def _scale(self, factor: float) -> None:
        for row in self._rows.values():
            for cell in row:
                # What was measured since then for the first time was measured after it.
                if cell.born < self._slowdown.since:
                    cell.scale(factor)
        self._since_fit = _REFIT

    def _evidence(
        self, depth: int, cells: tuple[Cell | None, ...], batch_size: int
    ) -> tuple[float, float]:
        """Weigh what cells say of ln(seconds / linear model) at a batch size, and add it up."""
        evidence = weighted = 0.0
        for cell in cells:
            if cell is not None:
                ratio = self._ratio(depth, cell)
                weight = self._weight(cell, batch_size, ratio)
                evidence += weight
                weighted += weight * ratio
        return evidence, weighted

    def _nearest_depth(self, depth: int, batch_size: int) -> tuple[float, float]:
        """Ask the cells of the nearest other depth that ever ran."""
        others = [other for other, row in self._rows.items() if len(row) and other != depth]
        if not others:
            return 0.0, 0.0
        known = min(others, key=lambda at: (not self._rows[at].is_sure, abs(at - depth)))
        around = self._rows[known].around(bucket_of(batch_size))
        evidence, weighted = self._evidence(known, around, batch_size)
        here = 1.0 / (1.0 / evidence + _NEW_DEPTH * _NEW_DEPTH)
        return here, weighted / evidence * here

    def _weight(self, cell: Cell, batch_size: float, ratio: float) -> float:
        """Give the inverse variance of a cell's ratio carried over to a batch size."""
        rounds: float = cell.rounds * 0.5 ** ((self.timed - cell.round) / _STALE)
        noise = _SPREAD * cell.noise
        distance = _PER_OCTAVE * log2(batch_size / cell.batch_size)
        variance = noise * noise / (rounds + 1e-3) + distance * distance
        if cell.rounds < USUAL:
            # A few rounds that contradict the linear model may have been outliers.
            off = ratio * ratio
            variance += _DOUBT * off if cell.rounds < TWICE else _DOUBT_TWICE * off * off
        return 1.0 / (variance + 1e-8)

    def _ratio(self, depth: int, cell: Cell) -> float:
        model = self._step_time.seconds(depth, cell.batch_size, cell.tokens)
        return log(cell.seconds / max(model, _TINY))

    def _carried(self, depth: int, cell: Cell, length: float) -> float:
        """Give a cell's seconds at its own batch size, for requests of a mean length."""
        tokens = length * cell.batch_size
        factor: float = exp(self._ratio(depth, cell))
        return factor * self._step_time.seconds(depth, cell.batch_size, tokens)

    def _fit(self) -> None:
        self._step_time.fit(self._rows)
        self._since_fit = 0
        self._new_cell = False
