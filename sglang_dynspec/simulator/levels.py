"""
Levels of acceptance: how it changes with time, as a factor from 0.0 to 1.0.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: Level of acceptance in each round, 0.0 to 1.0, given how many rounds.
MakeLevels = Callable[[int], NDArray[np.float64]]


def level_one(rounds: int) -> NDArray[np.float64]:
    """
    Keep the level of acceptance at 1.

    Args:
        rounds: Rounds.

    Returns:
        Shape (rounds,).
    """
    return np.ones(rounds)


def phases(*held: tuple[int, float]) -> MakeLevels:
    """
    Hold the level in phases.

    Args:
        *held: First round and level of each phase, ascending; the first begins at 0.

    Returns:
        What makes the level of every round.
    """
    starts, values = (np.array(column) for column in zip(*held, strict=True))

    def make(rounds: int) -> NDArray[np.float64]:
        at = np.searchsorted(starts, np.arange(rounds), "right") - 1
        levels: NDArray[np.float64] = values[at]
        return levels

    return make


def wave(low: float, high: float, *, period: int) -> MakeLevels:
    """
    Let the level go up and down as a cosine that begins high, in steps of 16 rounds.

    Args:
        low: Lowest level.

        high: Highest level.

        period: Rounds of one wave.

    Returns:
        What makes the level of every round.
    """

    def make(rounds: int) -> NDArray[np.float64]:
        at = np.arange(rounds) // 16 * 16
        high_part = (1.0 + np.cos(2 * np.pi * at / period)) / 2
        levels: NDArray[np.float64] = low + (high - low) * high_part
        return levels

    return make
