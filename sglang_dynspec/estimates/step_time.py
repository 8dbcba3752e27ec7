"""
A linear model of a round's cost, fitted over all depths and batch sizes.
"""

from collections.abc import Mapping
from math import log
from operator import mul

from sglang_dynspec.estimates.cells import TWICE, USUAL, Cell, Row

#: Target tokens in a round from which each further one costs more, and up to which the first ones
#: cost more than later ones (more experts are touched, more kernels fill up).
_KNEES = (32.0, 64.0, 128.0, 256.0)
_FILLS = (16.0,)

#: What is assumed of each coefficient before anything was measured, as a share of the shortest
#: round: its mean and standard deviation. A draft step costs a little, the rest may cost anything.
_DRAFT_STEP = (0.06, 0.06)
_DRAFT_PASS = (0.0, 0.05)
_ANYTHING = (0.0, 2.0)

#: Relative error of a cell's mean that the assumptions are weighed against.
_ERROR = 0.02

#: Rounds a cell needs to weigh in fully.
_FULL = 8.0

#: Logarithm of the factor by which one or two rounds may be off the fit and count for a half.
_BELIEVED = 0.7

_SWEEPS = 20

#: Seconds that are taken for none.
_TINY = 1e-9

_FEATURES = 5 + len(_KNEES) + len(_FILLS)


def features(depth: int, batch_size: float, tokens: float) -> list[float]:
    """
    Describe a round by what its cost is made of.

    Returns:
        Its kernel launches and weights (1), whether there is a draft pass, draft steps, target
        tokens (depth + 1) x batch size, the same beyond each knee and up to each fill, and cached
        tokens. Target tokens are in hundreds, cached ones in hundred thousands.
    """
    target = (depth + 1) * batch_size
    return [
        1.0,
        1.0 if depth else 0.0,
        float(depth),
        target / 100.0,
        *[max(target - knee, 0.0) / 100.0 for knee in _KNEES],
        *[min(target, fill) / 100.0 for fill in _FILLS],
        tokens / 1e5,
    ]


class StepTime:
    """
    t(k, B, S) as a sum of the `features`, none with a negative coefficient.

    So a round never gets cheaper by more depth, more requests or longer contexts, wherever the
    model is asked, and what was measured at one depth says something about the others: a round of
    depth k at batch size B puts (k + 1) x B tokens through the target, as a plain round of a larger
    batch does.

    Attributes:
        fitted: Whether it has seen a measurement.
    """

    __slots__ = ("_coefficients", "fitted")

    def __init__(self) -> None:
        self._coefficients = [0.0] * _FEATURES
        self.fitted = False

    def seconds(self, depth: int, batch_size: float, tokens: float) -> float:
        """
        Predict the cost of a round, in seconds.
        """
        described = features(depth, batch_size, tokens)
        seconds: float = sum(map(mul, self._coefficients, described))
        return seconds

    def fit(self, rows: Mapping[int, Row]) -> None:
        """
        Fit to all cells, each weighing by its relative error.

        Cells that rest on a single round are left out where others do not.

        Coordinate descent on the normal equations with non-negative coefficients (Franc, Hlavac,
        Navara, "Sequential Coordinate-Wise Algorithm for the Non-negative Least Squares Problem",
        2005), from where the last fit ended.

        Args:
            rows: The cells, by depth.
        """
        gram = [[0.0] * _FEATURES for _ in range(_FEATURES)]
        target = [0.0] * _FEATURES
        # A single round may have been an outlier, and this fit carries everywhere.
        least = TWICE if any(row.is_sure for row in rows.values()) else 0.0
        known = {
            depth: [cell for cell in row if cell.rounds >= least] for depth, row in rows.items()
        }
        base = min((cell.seconds for cells in known.values() for cell in cells), default=0.0)
        if not base:
            return
        for depth, cells in known.items():
            for cell in cells:
                _accumulate(gram, target, depth, cell, self._trust(depth, cell))
        self._descend(gram, target, base)
        self.fitted = True

    def _trust(self, depth: int, cell: Cell) -> float:
        """Weigh a cell by its rounds. A few that contradict the fit so far may have stalled."""
        trust = min(cell.rounds / _FULL, 1.0)
        if self.fitted and cell.rounds < USUAL:
            model = max(self.seconds(depth, cell.batch_size, cell.tokens), _TINY)
            off = log(cell.seconds / model) / _BELIEVED
            trust /= 1.0 + off * off * off * off
        return trust

    def _descend(self, gram: list[list[float]], target: list[float], base: float) -> None:
        coefficients = self._coefficients
        assumed = [_DRAFT_PASS, _DRAFT_STEP, *[_ANYTHING] * (_FEATURES - 3)]
        prior = [0.0, *[mean * base for mean, _ in assumed]]
        strength = [0.0, *[(_ERROR / (deviation * base)) ** 2 for _, deviation in assumed]]
        for _ in range(_SWEEPS):
            for index, row in enumerate(gram):
                curvature = row[index] + strength[index]
                if curvature <= 0.0:
                    continue
                slope = (
                    target[index]
                    - sum(map(mul, row, coefficients))
                    + strength[index] * (prior[index] - coefficients[index])
                )
                coefficients[index] = max(coefficients[index] + slope / curvature, 0.0)


def _accumulate(
    gram: list[list[float]], target: list[float], depth: int, cell: Cell, trust: float
) -> None:
    weight = trust / cell.seconds
    described = features(depth, cell.batch_size, cell.tokens)
    for index, value in enumerate(described):
        if value:
            scaled = value * weight / cell.seconds
            row = gram[index]
            for other, factor in enumerate(described):
                row[other] += scaled * factor
            target[index] += value * weight
