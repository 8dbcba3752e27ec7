"""
What goes into a decision and what comes out: `Observation`, `Plan`, `Outcome`.

Plain numbers in frozen slots dataclasses, keyword-only, so that fields can be added. They are built
once a round on the scheduler's own thread and are therefore not validated.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """
    What a policy may see before a decode round.

    Attributes:
        batch_size: Requests in the batch of this round.

        padded_batch_size: The batch size the round is run at, after padding to a CUDA graph's size.

        running: Requests running on the server, prefilling ones included.

        waiting: Requests waiting in the queue.

        seq_len_sum: Sum of the committed lengths of the batch's requests, in tokens.

        seq_len_max: Largest of those lengths, in tokens.

        kv_free: Free share of the KV pool, 0.0 to 1.0.

        depths: Candidate depths, ascending; always begins with 0.

        depth: The depth in force, that of the round planned before this one; 0 before the first.

        depth_age: Rounds planned at that depth since it last changed. 0 before the first round.

        round: Index of this round, from 0.

        plain_requests: Requests of the batch that speculation would only approximate (penalties,
            min_p, custom logit processors) and that must therefore be decoded plainly to be exact.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    The decision for one round. Immutable: a policy may return the same one again and again.

    Attributes:
        depth: Number of draft steps; 0 is plain.

        reason: Why, in a word or two, for traces. Keep it constant: do not format it per round.

        gain: Predicted relative gain in throughput over the depth in force, 0.05 for 5 %. The guard
            applies its dead band only to plans that give one.
    """

    depth: int
    reason: str = ""
    gain: float | None = None


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
    """

    round: int
    depth: int
    planned: int
    batch_size: int
    accepted: tuple[int, ...]
    tokens: int
    period: float | None = None
