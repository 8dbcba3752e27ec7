"""
Factors that change with time: the level of acceptance, 0.0 to 1.0, and the slowdown of a server.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: A factor for each round, given how many rounds.
MakeLevels = Callable[[int], NDArray[np.float64]]


def level_one(rounds: int) -> NDArray[np.float64]:
    """
    Keep the factor at 1.

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


def wobble(middle: float, deviation: float, *, memory: int, seed: int) -> MakeLevels:
    """
    Let the level wander around a middle, as topics come and go (an AR(1) process).

    Args:
        middle: Its mean.

        deviation: Its standard deviation.

        memory: Rounds after which it has forgotten two thirds of where it was.

        seed: Decides the path, which is the same in every run.

    Returns:
        What makes the level of every round, clipped to 0.0 to 1.0.
    """

    def make(rounds: int) -> NDArray[np.float64]:
        keep = math.exp(-1.0 / memory)
        shocks = np.random.default_rng(seed).normal(size=rounds) * math.sqrt(1.0 - keep * keep)
        path = list(itertools.accumulate(shocks.tolist(), lambda at, shock: keep * at + shock))
        levels: NDArray[np.float64] = np.clip(middle + deviation * np.array(path), 0.0, 1.0)
        return levels

    return make
