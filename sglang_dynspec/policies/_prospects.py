"""
What each candidate depth promises: tokens per second, and how surely.
"""

from dataclasses import dataclass
from math import erf, log, sqrt

from sglang_dynspec.estimates import AcceptanceModel, Cost, CostModel

#: Rounds for which the predicted costs of a batch size are kept, and batch sizes kept at a time.
_KEPT = 8
_CACHED = 64

#: Relative error of a cost from which it is a guess and not acted upon: that of a depth never run,
#: or of a batch size four times those that were measured.
_GUESS = 0.13


#: Standard errors by which a cost may exceed its estimate, where it is paid in tokens, and the
#: largest standard error that is reckoned with.
_CAUTION = 2.0
_MOST = 0.25


@dataclass(slots=True, kw_only=True)
class Prospects:
    """
    Predictions for one batch, by place among the candidate depths.

    Attributes:
        rates: Predicted tokens per second.

        scores: The same with what there is to hope for where little was tried: what to maximise.

        tokens: Predicted tokens of a round.

        costs: Predicted costs of a round.

        errors: Standard error of ln(rate / rate of the depth in force), 0 for that depth.

        best: Place of the largest score among depths whose cost is no guess, plain included.

        upkeep: Seconds of an upkeep pass.

        confidence: Probability that no other depth is better than the best.
    """

    rates: tuple[float, ...]
    scores: list[float]
    tokens: list[float]
    costs: list[Cost]
    errors: list[float]
    best: int
    upkeep: float
    confidence: float

    def is_guess(self, place: int) -> bool:
        """
        Say whether what a depth costs is little more than a guess.
        """
        return self.costs[place].error > _GUESS

    def gain(self, place: int, force: int) -> float:
        """
        Give the relative gain over the depth in force.
        """
        return self.scores[place] / self.scores[force] - 1.0

    def loss(self, place: int, force: int, rounds: int) -> float:
        """
        Give the tokens that rounds at a depth may lose to the depth in force.

        Where the cost of a round is not well known, it is taken to be up to two standard errors
        more.

        Args:
            place: The depth.

            force: The depth in force.

            rounds: Rounds; where they or the depth in force are plain they cost an upkeep pass.

        Returns:
            Tokens; below 0 where they gain.
        """
        cost = self.costs[place]
        seconds = rounds * cost.seconds * (1.0 + _CAUTION * min(cost.error, _MOST))
        if place == 0 or force == 0:
            seconds += self.upkeep
        return seconds * self.rates[force] - rounds * self.tokens[place]


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
            batch_size: Requests in the batch, at least 1.

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
        here, sure = depths[force], costs[force].error ** 2
        errors = [
            0.0
            if place == force
            else sqrt(expected.error(depth, here) ** 2 + costs[place].error ** 2 + sure)
            for place, depth in enumerate(depths)
        ]
        best = 0
        for place, cost in enumerate(costs):
            if (cost.error <= _GUESS or place == force) and scores[place] > scores[best]:
                best = place
        return Prospects(
            rates=rates,
            scores=scores,
            tokens=tokens,
            costs=costs,
            errors=errors,
            best=best,
            upkeep=self._cost.upkeep_seconds(padded),
            confidence=_confidence(rates, errors, best),
        )

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


def _confidence(rates: tuple[float, ...], errors: list[float], best: int) -> float:
    """Compare the best with each other depth by normal approximation; the closest decides."""
    chance = 1.0
    for place, rate in enumerate(rates):
        if place != best:
            spread = sqrt(2.0) * max(errors[place], errors[best], 1e-6)
            chance = min(chance, 0.5 * (1.0 + erf(log(rates[best] / rate) / spread)))
    return chance
