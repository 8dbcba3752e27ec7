"""
`Bandit`: try depths in blocks, and run the one measured to be fastest at this batch size.
"""

import random
from math import sqrt

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits, Policy

#: Rounds a measurement remembers.
_MEMORY = 512.0

#: Doublings of the batch size that are told apart; larger batches share the last one.
_CONTEXTS = 16

_FIRST_BLOCK = 1
_LONGEST_BLOCK = 64


class Arm:
    """
    What a depth has delivered in one context; older rounds fade.

    Attributes:
        tokens: Tokens of timed rounds.

        seconds: Periods of those rounds.
    """

    __slots__ = ("seconds", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        self.seconds = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        """
        Count a round.
        """
        keep = 1.0 - 1.0 / _MEMORY
        self.tokens = self.tokens * keep + tokens
        self.seconds = self.seconds * keep + seconds

    @property
    def rate(self) -> float | None:
        """
        Tokens per second, or None before any round was timed.
        """
        return self.tokens / self.seconds if self.seconds > 0.0 else None


class Context:
    """
    The bandit of one batch size bucket.

    Attributes:
        arms: The depths, by place.

        place: Place of the depth of the bin that runs.

        left: Rounds to go in it.

        explores: Whether the bin explores.

        block: Bins in the block that runs.

        bins: Bins to go in it.
    """

    __slots__ = ("arms", "bins", "block", "explores", "left", "place")

    def __init__(self, count: int) -> None:
        self.arms = [Arm() for _ in range(count)]
        self.place = 0
        self.left = 0
        self.explores = False
        self.block = self.bins = _FIRST_BLOCK

    def begin_bin(self, draw: random.Random, rounds: int) -> None:
        """
        Choose the depth of the next bin.

        Args:
            draw: Decides whether it explores, and what.

            rounds: Its rounds.
        """
        self.left = rounds
        if not self.bins:
            self.block = min(2 * self.block, _LONGEST_BLOCK)
            self.bins = self.block
        self.bins -= 1
        for place, arm in enumerate(self.arms):
            if arm.rate is None:
                self.place, self.explores = place, True
                return
        self.explores = draw.random() < 1.0 / sqrt(2.0 * self.block)
        if self.explores:
            self.place = draw.randrange(len(self.arms))
        else:
            self.place = max(range(len(self.arms)), key=self._rate)

    def _rate(self, place: int) -> float:
        return self.arms[place].rate or 0.0


class Bandit(Policy):
    """
    Try depths in blocks of rounds, and run the one measured to deliver the most tokens per second.

    A contextual bandit in the manner of Nightjar's planner (Li et al., "Nightjar: Dynamic Adaptive
    Speculative Decoding for Large Language Models Serving", 2025): the context is the batch size,
    by powers of two; the reward is measured goodput, which needs no model of acceptance or cost; a
    choice is kept for a bin of rounds, so that switching stays rare; bins come in blocks twice as
    long each up to 64, and the share of them that explores falls with the square root of that.

    It learns each depth at each batch size by running it there. `Goodput` carries over what it has
    learned elsewhere, and this is what to compare it with.

    Args:
        rounds: Rounds of a bin.

    Raises:
        ConfigError: A bin of no rounds.
    """

    uses_time = True

    def __init__(self, *, rounds: int = 32) -> None:
        if rounds < 1:
            raise ConfigError(
                expected="rounds of at least 1", found=str(rounds), remedy="leave it out for 32"
            )
        self.rounds = rounds

    def configure(self, limits: Limits) -> None:
        """
        Start afresh within the limits.
        """
        super().configure(limits)
        depths = limits.depths
        self._random = random.Random(limits.seed)  # noqa: S311  # reproducible, not secret
        self._contexts = [Context(len(depths)) for _ in range(_CONTEXTS)]
        self._place = {depth: place for place, depth in enumerate(depths)}
        self._explore = [Plan(depth=depth, reason="explore") for depth in depths]
        self._exploit = [Plan(depth=depth, reason="exploit") for depth in depths]
        self._last_depth = 0

    def decide(self, observation: Observation) -> Plan:
        """
        Go on with the bin of this batch size, or begin the next one.
        """
        context = self._context(observation.batch_size)
        if not context.left:
            context.begin_bin(self._random, self.rounds)
        context.left -= 1
        plans = self._explore if context.explores else self._exploit
        return plans[context.place]

    def learn(self, outcome: Outcome) -> None:
        """
        Count the round for its depth, unless it pays for a change of depth or was not timed.
        """
        depth, period = outcome.depth, outcome.usable_period
        changed = depth != self._last_depth
        self._last_depth = depth
        place = self._place.get(depth)
        if not changed and place is not None and period is not None and outcome.tokens:
            self._context(outcome.batch_size).arms[place].add(outcome.tokens, period)

    def _context(self, batch_size: int) -> Context:
        return self._contexts[min(max(batch_size, 0).bit_length(), _CONTEXTS - 1)]
