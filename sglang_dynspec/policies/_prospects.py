"""
What each candidate depth promises: tokens per second, and how surely.
"""

from dataclasses import dataclass
from math import erf, log, sqrt

from sglang_dynspec.acceptance import AcceptanceModel
from sglang_dynspec.cost import Cost, CostModel

#: Rounds for which the predicted costs of a batch size are kept.
_KEPT = 8

#: Largest relative error of a cost to act upon: that of a batch size four times those measured.
_KNOWN = 0.13

#: Batch sizes whose costs are kept at a time.
_CACHED = 64


@dataclass(slots=True)
class Prospects:
    """
    Predictions for one batch, by place among the candidate depths.

    Attributes:
        rates: Predicted tokens per second.

        scores: The same with what there is to hope for where little was tried: what to maximise.

        tokens: Predicted tokens of a round.

        costs: Predicted costs of a round.

        errors: Standard error of ln(rate / rate of the depth in force), 0 for that depth.

        best: Where the largest score is.
    """

    rates: tuple[float, ...]
    scores: list[float]
    tokens: list[float]
    costs: list[Cost]
    errors: list[float]
    best: int

    def confidence(self) -> float:
        """
        Give the probability that no other depth is better than the best, by normal approximation.
        """
        chance = 1.0
        for index, rate in enumerate(self.rates):
            if index != self.best and rate > 0.0:
                spread = sqrt(2.0) * max(self.errors[index], self.errors[self.best], 1e-6)
                ahead = log(max(self.rates[self.best] / rate, 1e-9))
                chance = min(chance, 0.5 * (1.0 + erf(ahead / spread)))
        return chance


class Forecast:
    """
    Predicts `Prospects` from the two estimates.

    Args:
        depths: Candidate depths.

        acceptance: The estimate of acceptance.

        cost: The estimate of cost.
    """

    __slots__ = ("_acceptance", "_cost", "_costs", "_costs_until", "_depths")

    def __init__(
        self, depths: tuple[int, ...], acceptance: AcceptanceModel, cost: CostModel
    ) -> None:
        self._depths = depths
        self._acceptance = acceptance
        self._cost = cost
        self._costs: dict[int, list[Cost]] = {}
        self._costs_until = 0

    def forget(self) -> None:
        """
        Predict costs anew: something was measured that matters.
        """
        self._costs.clear()

    def prospects(
        self, batch_size: int, padded: int, length_sum: int, force: int, now: int
    ) -> Prospects | None:
        """
        Predict what each depth promises.

        Args:
            batch_size: Requests in the batch.

            padded: The same, padded.

            length_sum: Sum of their committed lengths, in tokens.

            force: Place of the depth in force.

            now: Rounds so far.

        Returns:
            The predictions, or None before anything was measured.
        """
        costs = self._costs_at(padded, length_sum, now)
        if costs is None:
            return None
        expected = self._acceptance.expected()
        depths = self._depths
        tokens = [batch_size * expected.tokens[depth] for depth in depths]
        rates = tuple(n / cost.seconds for n, cost in zip(tokens, costs, strict=True))
        scores = [
            batch_size * expected.hopeful[depth] / cost.seconds
            for depth, cost in zip(depths, costs, strict=True)
        ]
        here = depths[force]
        errors = [
            0.0
            if index == force
            else sqrt(
                expected.error(depth, here) ** 2 + costs[index].error ** 2 + costs[force].error ** 2
            )
            for index, depth in enumerate(depths)
        ]
        # A depth whose cost is little more than a guess has to be probed first.
        known = [index for index, cost in enumerate(costs) if index == 0 or cost.error <= _KNOWN]
        best = max(known, key=scores.__getitem__)
        if force and costs[force].error > _KNOWN:
            best = 0
        return Prospects(rates, scores, tokens, costs, errors, best)

    def _costs_at(self, padded: int, length_sum: int, now: int) -> list[Cost] | None:
        if now >= self._costs_until or len(self._costs) >= _CACHED:
            self._costs.clear()
            self._costs_until = now + _KEPT
        costs = self._costs.get(padded)
        if costs is None:
            costs = []
            for depth in self._depths:
                cost = self._cost.predict(depth, padded, length_sum)
                if cost is None:
                    return None
                costs.append(cost)
            self._costs[padded] = costs
        return costs
