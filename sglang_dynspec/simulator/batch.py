"""
The requests of a synthetic batch: their kinds, their context, and which of their drafts are right.
"""

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.load import Path, Rollouts
from sglang_dynspec.simulator.scenario import Scenario

#: Rounds that uniform numbers are drawn for at a time.
_BLOCK = 256


class SyntheticBatch:
    """
    The requests that run, round by round.

    What is drawn for a round depends on the scenario and the seed alone, not on the depths that
    ran before it, so that policies are compared on the same drafts.

    Args:
        scenario: Describes them.

        path: Batch size of each round; None for `Rollouts`.

        seeds: Two sequences: one decides which drafts are right, one what the requests are like.

    Attributes:
        size: Requests in the batch.

        rows: Row of each request in the table of survival; shape (size,).

        lengths: Context of each request, in tokens; shape (size,).
    """

    def __init__(
        self,
        scenario: Scenario,
        path: Path | None,
        seeds: tuple[np.random.SeedSequence, np.random.SeedSequence],
    ) -> None:
        self._scenario = scenario
        self._drafts_rng, self._rng = (np.random.default_rng(seed) for seed in seeds)
        self._survival = scenario.drafts.survival(scenario.depths[-1])
        self._kinds = len(scenario.drafts.kinds)
        self._shares = np.array([kind.share for kind in scenario.drafts.kinds])
        self._long = scenario.drafts.long_context
        self._one_row = self._kinds == 1 and self._long is None
        self._path = None if path is None else path.tolist()
        load = scenario.load
        self._rollouts = load if isinstance(load, Rollouts) else None
        self._capacity = load.batch_size if isinstance(load, Rollouts) else int(max(path))  # type: ignore[arg-type]
        self._uniform = np.empty((0, 0))
        self._exponents = np.arange(1, scenario.depths[-1] + 1)
        self.size = 0
        self.rows = np.empty(0, dtype=np.int64)
        self.lengths = np.empty(0, dtype=np.int64)
        self._kind = np.empty(0, dtype=np.int64)
        self._until = np.empty(0, dtype=np.int64)

    def begin(self, index: int) -> None:
        """
        Bring the batch to the size of a round.

        Args:
            index: The round.
        """
        if index % _BLOCK == 0:
            self._uniform = self._drafts_rng.random((_BLOCK, self._capacity))
        if self._path is None:
            if self.size == 0:
                self._add(self._capacity)
        else:
            size = self._path[index]
            if size > self.size:
                self._add(size - self.size)
            elif size < self.size:
                self._keep(slice(0, size))
        self.rows = self._kind
        if self._long is not None:
            self.rows = self._kind + self._kinds * (self.lengths > self._long)

    def right_drafts(self, index: int, depth: int, level: float) -> NDArray[np.int64]:
        """
        Draw how many drafts of each request are right, those after the first wrong one aside.

        Args:
            index: The round.

            depth: Drafts for each request, at least 1.

            level: The level of acceptance.

        Returns:
            Shape (size,), 0 to `depth`.
        """
        uniform = self._uniform[index % _BLOCK, : self.size]
        if self._scenario.drafts.alike:
            uniform = np.full(self.size, uniform[0])
        survival = self._survival[:, :depth] * level ** self._exponents[:depth]
        if self._one_row:
            # Survival descends with position; the count of those above a number is wanted.
            return depth - np.searchsorted(survival[0, ::-1], uniform, side="right")
        right: NDArray[np.int64] = (uniform[:, None] < survival[self.rows]).sum(axis=1)
        return right

    def kind_counts(self) -> NDArray[np.int64]:
        """
        Count the requests of each row of the table of survival.

        Returns:
            Shape (2 x kinds,).
        """
        return np.bincount(self.rows, minlength=2 * self._kinds)

    def advance(self, tokens: NDArray[np.int64] | int) -> None:
        """
        Deliver tokens. Requests that have all they asked for leave.

        Args:
            tokens: Tokens of each request; shape (size,), or one number for all.
        """
        self.lengths = self.lengths + tokens
        finished = self.lengths >= self._until
        if not finished.any():
            return
        if self._rollouts is not None:
            self._keep(~finished)
            return
        # A new request takes the place.
        count = int(finished.sum())
        self.lengths[finished] = self._scenario.prompt
        self._until[finished] = self._scenario.prompt + self._scenario.output
        self._kind = self._kind.copy()
        self._kind[finished] = self._draw_kinds(count)

    def _add(self, count: int) -> None:
        scenario = self._scenario
        prompts = np.full(count, scenario.prompt, dtype=np.int64)
        if self._rollouts is not None:
            until = prompts + self._rollouts.lengths(self._rng)
        else:
            until = prompts + scenario.output
            if self.size == 0:
                # A server that has been running: its requests are at all stages.
                prompts = prompts + self._rng.integers(0, scenario.output, count)
        self.lengths = np.concatenate([self.lengths, prompts])
        self._until = np.concatenate([self._until, until])
        self._kind = np.concatenate([self._kind, self._draw_kinds(count)])
        self.size += count

    def _keep(self, which: slice | NDArray[np.bool_]) -> None:
        self.lengths = self.lengths[which]
        self._until = self._until[which]
        self._kind = self._kind[which]
        self.size = len(self.lengths)

    def _draw_kinds(self, count: int) -> NDArray[np.int64]:
        if self._kinds == 1:
            return np.zeros(count, dtype=np.int64)
        return self._rng.choice(self._kinds, size=count, p=self._shares)
