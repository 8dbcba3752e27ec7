"""
Synthetic drafts: which of them are accepted.
"""

import itertools
import random
from collections.abc import Callable, Sequence

#: Probability that draft `position` (from 1) is right given that those before it were: one number,
#: one per position (the last holds for deeper ones), or a function of position and round.
Acceptance = float | Sequence[float] | Callable[[int, int], float]


class Drafts:
    """
    Draws which drafts of synthetic rounds are accepted.

    Args:
        acceptance: How likely drafts are right.

        seed: Decides the draws.
    """

    def __init__(self, acceptance: Acceptance, seed: int) -> None:
        self._acceptance = acceptance
        self._random = random.Random(seed)  # noqa: S311  # reproducible, not secret

    def accepted(self, depth: int, batch_size: int, round_index: int) -> tuple[int, ...]:
        """
        Draw one round.

        Args:
            depth: Its depth.

            batch_size: Its requests.

            round_index: Its index.

        Returns:
            Accepted drafts of each request; empty when the round is plain.
        """
        if depth == 0:
            return ()
        chances = [self._chance(position, round_index) for position in range(1, depth + 1)]
        return tuple(self._one(chances) for _ in range(batch_size))

    def _one(self, chances: list[float]) -> int:
        right = itertools.takewhile(lambda chance: self._random.random() < chance, chances)
        return sum(1 for _ in right)

    def _chance(self, position: int, round_index: int) -> float:
        acceptance = self._acceptance
        if callable(acceptance):
            return acceptance(position, round_index)
        if isinstance(acceptance, int | float):
            return acceptance
        return acceptance[min(position, len(acceptance)) - 1]
