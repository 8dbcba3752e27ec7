"""
What rounds are expected to deliver, given how likely each draft is right.
"""

from math import sqrt
from typing import NamedTuple


class Expected(NamedTuple):
    """
    Tokens a request is expected to advance in one round, by depth from 0.

    Attributes:
        tokens: E(k), at index k.

        rates: a_j, at index j - 1, over all lengths.

        errors: Standard error of a_j, at index j - 1.

        hopeful: E(k) if each a_j were half a standard error better than the trials so far say,
            stale or not: what there is to hope for where little was tried. Where a_j fell
            suddenly, one standard error worse: the estimate after a fall still holds some trials
            from before it.
    """

    tokens: list[float]
    rates: list[float]
    errors: list[float]
    hopeful: list[float]

    def error(self, depth: int, other: int) -> float:
        """
        Get the standard error of ln(E(depth) / E(other)), positions being independent.
        """
        variance = 0.0
        for position, error in enumerate(self.errors, start=1):
            if position > max(depth, other):
                break
            slope = self._slope(depth, position) - self._slope(other, position)
            variance += (slope * error) ** 2
        return sqrt(variance)

    def _slope(self, depth: int, position: int) -> float:
        """Give the derivative of ln E(depth) by a_position."""
        if position > depth:
            return 0.0
        # Past `position`, each survival is a_position times something. Below it nothing depends.
        passed = self.tokens[depth] - self.tokens[position - 1]
        return passed / max(self.rates[position - 1], 1e-3) / self.tokens[depth]


def expected_tokens(rates: list[float]) -> list[float]:
    """
    Add up E(k) for depths 0 to the number of rates.
    """
    survival = tokens = 1.0
    expected = [tokens]
    for rate in rates:
        survival *= rate
        tokens += survival
        expected.append(tokens)
    return expected
