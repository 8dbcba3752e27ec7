"""
What requests are like: their lengths, and how good drafts are for each of them as it goes on.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.drafts import Kind

#: Points at which the distribution of output lengths is integrated.
_QUANTILES = 2000

#: Requests drawn at a time.
_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit(Kind):
    """
    A kind of request whose drafts are better or worse as it goes on.

    Attributes:
        stages: First output token and level of each stage, ascending; the first begins at 0. In a
            stage of level v drafts are right v times as often as `positions` says, at each
            position. Poor first drafts are a first stage below 1.
    """

    stages: tuple[tuple[int, float], ...] = ((0, 1.0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """
    The requests of a world.

    Attributes:
        kinds: Their kinds; the shares add up to 1.

        prompt: Shortest and longest prompt, in tokens; uniformly distributed.

        output: Shortest, median and longest output, in tokens; log-normally distributed, what is
            beyond the ends is put there.

        spread: Standard deviation of the logarithm of an output's length.
    """

    kinds: tuple[Kind, ...]
    prompt: tuple[int, int] = (48, 208)
    output: tuple[int, int, int] = (24, 122, 384)
    spread: float = 0.6

    @property
    def mean_prompt(self) -> float:
        """
        Mean tokens of a prompt.
        """
        return (self.prompt[0] + self.prompt[1]) / 2

    def mean_output(self) -> float:
        """
        Work out the mean tokens of an output.
        """
        shortest, median, longest = self.output
        points = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        normal = NormalDist(0.0, self.spread) if self.spread else None
        logs = [normal.inv_cdf(point) if normal else 0.0 for point in points.tolist()]
        return float(np.clip(np.rint(median * np.exp(logs)), shortest, longest).mean())

    @property
    def stages(self) -> int:
        """
        Most stages that a kind has.
        """
        return max(len(stages_of(kind)) for kind in self.kinds)

    def survival(self, deepest: int) -> NDArray[np.float64]:
        """
        Tabulate how likely drafts survive up to each position.

        Args:
            deepest: The deepest position.

        Returns:
            Shape (kinds x stages, deepest): for each kind, for each of its stages, the probability
            that the drafts up to each position are all right. Kinds with fewer stages repeat their
            last one.
        """
        rows = []
        for kind in self.kinds:
            positions = [kind.positions[min(at, len(kind.positions) - 1)] for at in range(deepest)]
            levels = [level for _, level in stages_of(kind)]
            levels += [levels[-1]] * (self.stages - len(levels))
            rows += [np.cumprod(np.array(positions) * level) for level in levels]
        return np.array(rows)

    def first_tokens(self) -> NDArray[np.int64]:
        """
        Tabulate where stages begin.

        Returns:
            First output token of each stage but the first; shape (kinds, stages - 1). Kinds with
            fewer stages never reach the rest.
        """
        never = np.iinfo(np.int64).max
        begins = np.full((len(self.kinds), self.stages - 1), never, dtype=np.int64)
        for row, kind in enumerate(self.kinds):
            own = [token for token, _ in stages_of(kind)[1:]]
            begins[row, : len(own)] = own
        return begins


def stages_of(kind: Kind) -> tuple[tuple[int, float], ...]:
    """
    Give the stages of a kind; one that has none has one.
    """
    return kind.stages if isinstance(kind, Habit) else ((0, 1.0),)


class Drawn:
    """
    Requests in the order in which they come, the same whatever serves them.

    Args:
        requests: What they are like.

        rng: Decides each.
    """

    def __init__(self, requests: Requests, rng: np.random.Generator) -> None:
        self._requests = requests
        self._rng = rng
        self._left: list[tuple[int, int, int]] = []

    def take(self) -> tuple[int, int, int]:
        """
        Draw the next request.

        Returns:
            Its kind, the tokens of its prompt and those of its output.
        """
        if not self._left:
            self._left = self._draw()
        return self._left.pop()

    def _draw(self) -> list[tuple[int, int, int]]:
        requests, rng = self._requests, self._rng
        shares = np.array([kind.share for kind in requests.kinds])
        kinds = rng.choice(len(shares), size=_BLOCK, p=shares / shares.sum())
        prompts = rng.integers(requests.prompt[0], requests.prompt[1] + 1, _BLOCK)
        shortest, median, longest = requests.output
        logs = rng.normal(0.0, requests.spread, _BLOCK)
        outputs = np.clip(np.rint(median * np.exp(logs)), shortest, longest).astype(np.int64)
        return list(zip(kinds.tolist(), prompts.tolist(), outputs.tolist(), strict=True))
