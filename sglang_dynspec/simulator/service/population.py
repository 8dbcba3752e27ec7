"""
The requests that run: how far each is, and which of its drafts are right.
"""

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.service.requests import Requests

#: Rounds that uniform numbers are drawn for at a time.
_BLOCK = 64


class Population:
    """
    The running requests.

    Args:
        requests: What they are like.

        deepest: The largest depth.

        most: Requests that may run.

        rng: Decides which drafts are right.

    Attributes:
        size: Requests that run.

        rows: Row of each in the table of survival; shape (size,). Set by `look`.

        lengths: Context of each, in tokens; shape (size,).

        finished: Of those that have left: second of the first token and of the last, and tokens.
    """

    def __init__(
        self, requests: Requests, *, deepest: int, most: int, rng: np.random.Generator
    ) -> None:
        self._survival = requests.survival(deepest)
        self._begins = requests.first_tokens()
        self._stages = requests.stages
        self._exponents = np.arange(1, deepest + 1)
        self._most = most
        self._rng = rng
        self._uniform = np.empty((0, most))
        self._drawn = _BLOCK
        self._kind = np.empty(0, dtype=np.int64)
        self._wanted = np.empty(0, dtype=np.int64)
        self._has = np.empty(0, dtype=np.int64)
        self._since = np.empty(0)
        self.lengths = np.empty(0, dtype=np.int64)
        self.rows = np.empty(0, dtype=np.int64)
        self.finished: list[tuple[float, float, int]] = []

    @property
    def size(self) -> int:
        """
        Requests that run.
        """
        return len(self.lengths)

    def admit(self, requests: list[tuple[int, int, int]], now: float) -> None:
        """
        Add requests that were prefilled, each with the token that its prefill gave.

        Args:
            requests: Kind, tokens of the prompt and of the output of each.

            now: Seconds on the clock.
        """
        kinds, prompts, outputs = np.array(requests, dtype=np.int64).T
        self._kind = np.concatenate([self._kind, kinds])
        self._wanted = np.concatenate([self._wanted, outputs])
        self._has = np.concatenate([self._has, np.ones(len(kinds), dtype=np.int64)])
        self._since = np.concatenate([self._since, np.full(len(kinds), now)])
        self.lengths = np.concatenate([self.lengths, prompts + 1])
        self._leave(self._has >= self._wanted, now)

    def look(self) -> NDArray[np.int64]:
        """
        See in which stage each request is.

        Returns:
            Requests by row of the table of survival; shape (kinds x stages,).
        """
        if self._stages == 1:
            self.rows = self._kind
        else:
            passed = (self._has[:, None] >= self._begins[self._kind]).sum(axis=1)
            self.rows = self._kind * self._stages + passed
        if self._drawn == _BLOCK:
            self._uniform = self._rng.random((_BLOCK, self._most))
            self._drawn = 0
        self._drawn += 1
        return np.bincount(self.rows, minlength=len(self._survival))

    def right_drafts(self, depth: int, level: float) -> NDArray[np.int64]:
        """
        Draw how many drafts of each request are right, those after the first wrong one aside.

        Once a round, after `look`; at whatever depth, the same drafts are right.

        Args:
            depth: Drafts for each request, at least 1.

            level: The level of acceptance.

        Returns:
            Shape (size,), 0 to `depth`.
        """
        uniform = self._uniform[self._drawn - 1, : self.size]
        survival = self._survival[:, :depth] * level ** self._exponents[:depth]
        right: NDArray[np.int64] = (uniform[:, None] < survival[self.rows]).sum(axis=1)
        return right

    def deliver(self, tokens: NDArray[np.int64] | int, now: float) -> int:
        """
        Deliver tokens; none beyond what a request wants. Those that have all leave.

        Args:
            tokens: Tokens of each request; shape (size,), or one number for all.

            now: Seconds on the clock, at the end of the round.

        Returns:
            Tokens delivered.
        """
        given = np.minimum(tokens, self._wanted - self._has)
        self._has = self._has + given
        self.lengths = self.lengths + given
        self._leave(self._has >= self._wanted, now)
        return int(given.sum())

    def _leave(self, done: NDArray[np.bool_], now: float) -> None:
        if not done.any():
            return
        for since, has in zip(self._since[done].tolist(), self._has[done].tolist(), strict=True):
            self.finished.append((since, now, has))
        stay = ~done
        self._kind, self._wanted, self._has = self._kind[stay], self._wanted[stay], self._has[stay]
        self._since, self.lengths = self._since[stay], self.lengths[stay]
