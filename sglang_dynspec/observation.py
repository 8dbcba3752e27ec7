"""
What goes into a decision and what comes out: `Observation`, `Plan`, `Outcome`.

Plain numbers in frozen slots dataclasses, keyword-only, so that fields can be added. They are built
once a round on the scheduler's own thread and are therefore not validated.
"""

from dataclasses import dataclass

#: Seconds. No round takes less or more; a clock that jumps does.
_SHORTEST, _LONGEST = 1e-6, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """
    What a policy may see before a decode round.

    Attributes:
        batch_size: Requests in the batch of this round.

        padded_batch_size: The batch size the round is run at, after padding to a CUDA graph's size.

        running: Requests running on the server, prefilling ones included.

        waiting: Requests waiting in the queue.

        seq_len_sum: Sum of the committed lengths of the batch's requests, in tokens. Under SGLang's
            overlap loop a round is observed while the one before it runs, whose tokens are not in
            these lengths yet.

        seq_len_max: Largest of those lengths, in tokens.

        kv_free: Free share of the KV pool, 0.0 to 1.0.

        depths: Candidate depths, ascending; always begins with 0.

        depth: The depth in force, that of the round planned before this one, probes aside; 0 before
            the first.

        depth_age: Rounds planned since that depth came into force, probes included. 0 before the
            first round.

        round: Index of this round, from 0.

        plain_requests: Requests of the batch that speculation would only approximate (penalties,
            min_p, custom logit processors) and that must therefore be decoded plainly to be exact.

        upkeep_window: Plain rounds between two upkeep passes, as it is set now; 0 for no upkeep.
    """

    batch_size: int
    padded_batch_size: int
    running: int
    waiting: int
    seq_len_sum: int
    seq_len_max: int
    kv_free: float
    depths: tuple[int, ...]
    depth: int
    depth_age: int
    round: int = 0
    plain_requests: int = 0
    upkeep_window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    The decision for one round. Immutable: a policy may return the same one again and again.

    Attributes:
        depth: Number of draft steps; 0 is plain.

        reason: Why, in a word or two, for traces. Keep it constant: do not format it per round.

        gain: Predicted relative gain in throughput over the depth in force, 0.05 for 5 %. The guard
            applies its dead band only to plans that give one.

        probe: The round is an excursion to learn about `depth`, of one or two rounds. It counts
            neither as a switch nor against the dwell of the depth in force, which stays in force.
            A third one in a row is taken for the wish to change depth for good. Means nothing in a
            plan for the depth in force.

        predicted: Predicted tokens per second at each candidate depth, in the order of
            ``Observation.depths``; empty from a policy that predicts nothing.

        confidence: How sure the policy is that `depth` is the best, 0.0 to 1.0, or None.

        blocked: What kept the policy from the depth it predicts to be best, in a word or two;
            empty when nothing did. Keep it constant, like `reason`.
    """

    depth: int
    reason: str = ""
    gain: float | None = None
    probe: bool = False
    predicted: tuple[float, ...] = ()
    confidence: float | None = None
    blocked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    What a round did, known once its result has been processed.

    Under SGLang's overlap loop the next round is planned before this one's outcome arrives.

    Attributes:
        round: Index of the round, as in its `Observation`.

        depth: The depth that ran.

        planned: The depth that was planned. Anything but `depth` is a mismatch, and a bug.

        batch_size: Requests counted: those of the batch that still wanted tokens.

        accepted: Accepted drafts of each counted request, 0 to `depth`; empty or zeros when plain.

        tokens: Tokens delivered to the counted requests.

        period: Seconds from the moment the decode round before was complete to the moment this one
            was, or None when the two were not back to back (prefill, an idle gap, a pause between).

        padded_batch_size: As in the round's `Observation`; 0 where it is not known.

        seq_len_sum: As in the round's `Observation`; 0 where it is not known.

        seq_lens: Committed length of each counted request before the round, in tokens, as observed
            for `seq_len_sum`, in the order of `accepted`; empty where lengths are not known.

        upkeep: Whether an upkeep pass is part of the round's period.

        guesses: Drafts that upkeep made for the tokens of this plain round, which nobody verified:
            a sample of first-position acceptance that costs nothing. 0 in a speculative round.

        right_guesses: How many of them were right, 0 to `guesses`.
    """

    round: int
    depth: int
    planned: int
    batch_size: int
    accepted: tuple[int, ...]
    tokens: int
    period: float | None = None
    padded_batch_size: int = 0
    seq_len_sum: int = 0
    seq_lens: tuple[int, ...] = ()
    upkeep: bool = False
    guesses: int = 0
    right_guesses: int = 0

    @property
    def usable_period(self) -> float | None:
        """
        The period where the round can be measured by it, else None.

        One rule for whoever measures: there is one, no clock has jumped (it is a number from a
        microsecond to ten minutes), and the round counts requests.
        """
        period = self.period
        if period is None or not _SHORTEST <= period <= _LONGEST:
            return None
        return period if self.batch_size > 0 and self.tokens >= 0 else None
