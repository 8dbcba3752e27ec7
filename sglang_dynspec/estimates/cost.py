"""
The expected cost of a round.
"""

from typing import NamedTuple


class Cost(NamedTuple):
    """
    What a round is expected to cost.

    Attributes:
        seconds: Its period, above 0. That of a plain round includes its usual share of an upkeep
            pass.

        error: Relative standard error of that, above 0.

        rounds: Rounds measured at that depth and batch size bucket, at most 64; a first round of
            the depth counts half.
    """

    seconds: float
    error: float
    rounds: float
