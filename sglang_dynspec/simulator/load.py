"""
Loads: the batch size of each round.

A path is given by the round, so that every policy meets the same one. `Rollouts` is the exception:
there the batch shrinks as requests finish, which a faster policy makes them do in fewer rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Batch size of each round.
Path = NDArray[np.int64]


def steady(batch_size: int, rounds: int) -> Path:
    """
    Hold one batch size.

    Args:
        batch_size: The batch size.

        rounds: Rounds.

    Returns:
        Shape (rounds,).
    """
    return np.full(rounds, batch_size, dtype=np.int64)


def ramp(low: int, high: int, *, at: int, over: int, rounds: int) -> Path:
    """
    Go from one batch size to another, in equal steps. Downwards it is a drain.

    Args:
        low: The batch size at the start.

        high: The batch size at the end.

        at: Round at which the change begins.

        over: Rounds it takes; 0 for at once.

        rounds: Rounds.

    Returns:
        Shape (rounds,).
    """
    index = np.arange(rounds)
    done = np.clip((index - at + 1) / max(over, 1), 0.0, 1.0)
    return np.rint(low + (high - low) * done).astype(np.int64)


def on_off(low: int, high: int, *, period: int, rounds: int) -> Path:
    """
    Alternate between two batch sizes, beginning with the first.

    Args:
        low: The first batch size.

        high: The second.

        period: Rounds at each.

        rounds: Rounds.

    Returns:
        Shape (rounds,).
    """
    first = np.arange(rounds) // period % 2 == 0
    path: Path = np.where(first, low, high).astype(np.int64)
    return path


def stairs(sizes: Sequence[int], each: int, *, rounds: int) -> Path:
    """
    Go through batch sizes one by one, and stay at the last.

    Args:
        sizes: The batch sizes.

        each: Rounds at each but the last.

        rounds: Rounds.

    Returns:
        Shape (rounds,).
    """
    steps = np.minimum(np.arange(rounds) // each, len(sizes) - 1)
    path: Path = np.array(sizes, dtype=np.int64)[steps]
    return path


def bursts(
    low: int, high: int, *, every: int, length: int, rounds: int, rng: np.random.Generator
) -> Path:
    """
    Hold a batch size, and a larger one during bursts that begin at random.

    Args:
        low: Batch size between bursts.

        high: Batch size in a burst.

        every: Mean rounds from the end of a burst to the next; exponentially distributed.

        length: Rounds of a burst.

        rounds: Rounds.

        rng: Decides when bursts begin.

    Returns:
        Shape (rounds,).
    """
    path = np.full(rounds, low, dtype=np.int64)
    at = 0
    while True:
        at += max(1, round(rng.exponential(every)))
        if at >= rounds:
            return path
        path[at : at + length] = high
        at += length


def wandering(low: int, high: int, *, rounds: int, rng: np.random.Generator) -> Path:
    """
    Walk at random between two batch sizes, as arrivals and departures do.

    Args:
        low: Smallest batch size.

        high: Largest batch size.

        rounds: Rounds.

        rng: Decides the steps: one request more or less about every fourth round.

    Returns:
        Shape (rounds,).
    """
    steps = rng.choice(np.array([-1, 0, 0, 0, 0, 0, 0, 1]), size=rounds)
    span = high - low
    if span == 0:
        return steady(low, rounds)
    # Reflected at both ends.
    offset = np.abs((np.cumsum(steps) + span // 2 + span) % (2 * span) - span)
    path: Path = (low + offset).astype(np.int64)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """
    Waves of requests that start together and finish one by one: the long tail of agentic rollouts.

    The next wave starts when the last request of one has finished.

    Attributes:
        batch_size: Requests in a wave.

        tokens: Median length of an output, in tokens.

        spread: Standard deviation of its logarithm.
    """

    batch_size: int
    tokens: int
    spread: float

    def lengths(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw the output lengths of a wave.

        Args:
            rng: Decides them.

        Returns:
            Shape (batch_size,), in tokens, at least 1.
        """
        drawn = rng.lognormal(np.log(self.tokens), self.spread, self.batch_size)
        lengths: NDArray[np.int64] = np.maximum(1, np.rint(drawn)).astype(np.int64)
        return lengths
