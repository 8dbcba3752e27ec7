"""
How likely drafts are accepted: an estimate per position, by length of context.

a_j is the probability that draft j is right given that drafts 1 to j - 1 were. A round of depth k
delivers E(k) = 1 + sum over j <= k of the product of a_1 to a_j tokens a request (Leviathan et al.,
"Fast Inference from Transformers via Speculative Decoding", 2023, with a probability per position).

A request with n accepted drafts of k is a success at positions 1 to n and, only if n < k, a failure
at n + 1. It says nothing about positions past that, so positions do not bias one another whatever
mixture of depths runs.
"""

from collections import Counter
from math import exp, sqrt

from sglang_dynspec.estimates.expected import Expected, expected_tokens
from sglang_dynspec.estimates.proportion import EVIDENCE, Proportion
from sglang_dynspec.observation import Outcome

__all__ = ["AcceptanceModel", "Expected"]

#: Mean and strength, in trials, of what is assumed of position 1 before any trial.
_FIRST = (0.6, 1.0)

#: Strength of what is assumed of a deeper position: that it is like the one before it.
_DEEPER = 4.0

#: Trials a length bucket needs to weigh as much as the estimate over all lengths.
_POOLED = 64.0

#: Rounds without a trial after which a position's trials weigh e times less.
_STALE = 1000.0

#: How far the position before it may move until they weigh e times less.
_MOVED = 0.08

#: Rounds without a trial that mean nothing yet.
_RECENT = 16

#: Evidence that calls a change of a deeper position sudden. A collapse shows in the first one.
_DEEP_EVIDENCE = 12.0

#: Standard errors of hope, and of fear after a fall: see `Expected`.
_HOPE = 0.5
_FEAR = 1.0

#: Trials of a position that still count once a shallower one has changed.
_DOUBTED = 4.0

#: Requests of a batch are alike in time, which makes them worth fewer trials than they are, even
#: where those of one round are not.
_OVERDISPERSION = 1.5

#: Requests of a large batch, and rounds between two in which its lengths are told apart.
_MANY = 32
_STRIDE = 8

#: Length buckets: below 1024 tokens, then four times as long each, then the rest.
_BUCKETS = 5
_SHORTEST = 10


class AcceptanceModel:
    """
    Estimates acceptance from outcomes, following drift and sudden change.

    Args:
        largest: The largest depth.

    Attributes:
        rounds: Outcomes counted.

        changes: Sudden changes noticed, of any position.
    """

    __slots__ = (
        "_before",
        "_by_length",
        "_lengths",
        "_only",
        "_pool",
        "_seen",
        "changes",
        "rounds",
    )

    def __init__(self, largest: int) -> None:
        self._pool = [
            Proportion(evidence=EVIDENCE if position == 0 else _DEEP_EVIDENCE)
            for position in range(largest)
        ]
        self._by_length: list[list[Proportion]] = []
        # Requests by length bucket in the last outcome that gave lengths.
        self._lengths = [0] * _BUCKETS
        # While every request ever seen was in one bucket, the pool is that bucket.
        self._only: int | None = None
        # When each position was tried last, and what the one before it was like then.
        self._seen = [0] * largest
        self._before = [_FIRST[0]] * largest
        self.rounds = 0
        self.changes = 0

    def observe(self, outcome: Outcome) -> bool:
        """
        Count a round.

        Args:
            outcome: What it did. One that cannot be (more accepted than drafted) is ignored.

        Returns:
            Whether acceptance was found to have changed suddenly.
        """
        self.rounds += 1
        changes = self.changes
        lengths = outcome.seq_lens
        # A large batch says enough of each length in every eighth round.
        if len(lengths) >= _MANY and self.rounds % _STRIDE:
            lengths = ()
        if lengths:
            self._note_lengths(lengths)
        if outcome.depth == 0:
            self._count_guesses(outcome.guesses, outcome.right_guesses)
        elif outcome.accepted and outcome.depth <= len(self._pool):
            self._count(outcome.depth, outcome.accepted, lengths)
        return self.changes != changes

    def expected(self) -> Expected:
        """
        Estimate what rounds deliver to the mixture of lengths seen last.

        Returns:
            Expected tokens for depths 0 to the largest.
        """
        rates, errors, hopes = [], [], []
        mean, strength = _FIRST
        for position, proportion in enumerate(self._pool):
            unseen = self.rounds - self._seen[position]
            stale = 1.0
            if unseen > _RECENT:
                moved = (mean - self._before[position]) / _MOVED
                stale = exp(-moved * moved - unseen / _STALE)
            else:
                self._before[position] = mean
            trials = proportion.trials * stale
            total = trials + strength
            mean = (proportion.right * stale + strength * mean) / total
            rates.append(mean)
            hope = _HOPE if proportion.hopeful else -_FEAR
            tried = proportion.trials + strength + 1.0
            hope = mean + hope * sqrt(mean * (1.0 - mean) / tried)
            hopes.append(min(max(hope, 0.0), 1.0))
            strength = _DEEPER
            spread = max(proportion.spread, _OVERDISPERSION)
            errors.append(sqrt(spread * mean * (1.0 - mean) / (total + 1.0)))
        tokens, hopeful = expected_tokens(rates), expected_tokens(hopes)
        if self._by_length and any(self._lengths):
            mixed = self._mixed(rates)
            hopeful = [
                own * hope / pooled
                for own, hope, pooled in zip(mixed, hopeful, tokens, strict=True)
            ]
            tokens = mixed
        return Expected(tokens, rates, errors, hopeful)

    def _mixed(self, pooled: list[float]) -> list[float]:
        """Weigh the buckets' expected tokens, each drawn to the pooled estimate."""
        requests = sum(self._lengths)
        tokens = [0.0] * (len(pooled) + 1)
        for count, proportions in zip(self._lengths, self._by_length, strict=True):
            if count:
                share = count / requests
                own = expected_tokens(
                    [
                        (proportion.right + _POOLED * rate) / (proportion.trials + _POOLED)
                        for proportion, rate in zip(proportions, pooled, strict=True)
                    ]
                )
                for depth, value in enumerate(own):
                    tokens[depth] += share * value
        return tokens

    def _note_lengths(self, lengths: tuple[int, ...]) -> None:
        bucket = _bucket(min(lengths).bit_length())
        counts = [0] * _BUCKETS
        if bucket == _bucket(max(lengths).bit_length()):
            counts[bucket] = len(lengths)
        else:
            for bits, count in Counter(map(int.bit_length, lengths)).items():
                counts[_bucket(bits)] += count
        self._lengths = counts
        if not self._by_length:
            if self._only is None:
                self._only = bucket
            if counts[self._only] != len(lengths):
                self._split()

    def _split(self) -> None:
        """Begin to tell lengths apart: each bucket starts from what is known of all."""
        self._by_length = [
            [proportion.copy(_POOLED) for proportion in self._pool] for _ in range(_BUCKETS)
        ]

    def _count(self, depth: int, accepted: tuple[int, ...], lengths: tuple[int, ...]) -> None:
        counts = [accepted.count(value) for value in range(depth + 1)]
        if sum(counts) != len(accepted):
            return
        self._count_positions(self._pool, counts)
        if not self._by_length or len(lengths) != len(accepted):
            return
        by_bucket: dict[int, list[int]] = {}
        pairs = Counter(zip(accepted, map(int.bit_length, lengths), strict=True))
        for (value, bits), count in pairs.items():
            bucket = _bucket(bits)
            by_bucket.setdefault(bucket, [0] * (depth + 1))[value] += count
        for bucket, own in by_bucket.items():
            self._count_positions(self._by_length[bucket], own)

    def _count_positions(self, proportions: list[Proportion], counts: list[int]) -> None:
        trials = sum(counts)
        for position, failed in enumerate(counts[:-1]):
            if not trials:
                break
            right = trials - failed
            if proportions[position].count(right, trials):
                self._changed(proportions, position)
            if proportions is self._pool:
                self._seen[position] = self.rounds
            trials = right

    def _count_guesses(self, guesses: int, right: int) -> None:
        if not 0 <= right <= guesses or not guesses:
            return
        self._seen[0] = self.rounds
        if self._pool[0].count(right, guesses):
            self._changed(self._pool, 0)
        requests = sum(self._lengths)
        if not self._by_length or not requests:
            return
        for count, proportions in zip(self._lengths, self._by_length, strict=True):
            if count:
                share = count / requests
                if proportions[0].count(right * share, guesses * share):
                    self._changed(proportions, 0)

    def _changed(self, proportions: list[Proportion], position: int) -> None:
        """Note a sudden change, and doubt what was known before it of what it bears on."""
        self.changes += 1
        for deeper in proportions[position + 1 :]:
            deeper.forget(_DOUBTED)
        if proportions is self._pool:
            for own in self._by_length:
                for proportion in own[position:]:
                    proportion.forget(_DOUBTED)


def _bucket(bits: int) -> int:
    """Find the bucket of lengths that take so many bits."""
    return min(max(bits - _SHORTEST + 1, 0) // 2, _BUCKETS - 1)
