"""
Replaying a recorded trace against another policy, as far as the trace can tell.

A trace holds what happened at the depth that ran. What another depth would have done is taken from
other rounds of the same trace that ran at it, at the same padded batch size: their accepted drafts,
and their periods with the upkeep and the guesses that belong to them, in turn. Where there are too
few of those the trace cannot tell, and the replay says so instead of guessing.

A replay of the policy that was recorded, with the same options and bounds, tells it all that it was
told then. Not in a trace are a calibration, which it would start from, and forced depths.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any, Final

from sglang_dynspec.account.counters import ratio
from sglang_dynspec.config.model import DEEPEST, Config
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.loading.plugins import build_policy
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits
from sglang_dynspec.replay.suites import Entry
from sglang_dynspec.rounds.driving import KeptLog, drive
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec.trace import Trace, TraceRound

#: Rounds with a period that a depth must have been recorded for, to stand for others.
ENOUGH: Final = 16

#: Share of rounds the trace has to tell for the figures to be worth comparing.
COVERED: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """
    What a trace would have to hold and does not.

    Attributes:
        depth: The depth.

        padded_batch_size: The padded batch size it is missing at.

        wanted: Rounds for which the policy wanted it.

        recorded: Rounds recorded there.
    """

    depth: int
    padded_batch_size: int
    wanted: int
    recorded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReplay:
    """
    What a policy would have done with a recorded load.

    Attributes:
        policy: The policy.

        rounds: Rounds of the trace.

        covered: Share of them for which the trace tells what the policy's depth does.

        as_recorded: Share of them in which the policy chose what was recorded.

        depth_shares: Share of all rounds at each candidate depth, by policy.

        recorded_shares: The same as recorded.

        switches: Switches of the policy, probes aside.

        tokens_per_second: What the policy would have delivered over the covered rounds; None
            without any.

        recorded_tokens_per_second: What was delivered over the same rounds.

        missing: What the trace does not tell, most wanted first.
    """

    policy: str
    rounds: int
    covered: float
    as_recorded: float
    depth_shares: dict[int, float]
    recorded_shares: dict[int, float]
    switches: int
    tokens_per_second: float | None
    recorded_tokens_per_second: float | None
    missing: tuple[Missing, ...]

    @property
    def tells(self) -> bool:
        """
        Whether the trace tells enough for the two rates to be compared.
        """
        return self.covered >= COVERED and self.tokens_per_second is not None

    def as_json(self) -> dict[str, Any]:
        """
        Give the result as plain JSON types.
        """
        return asdict(self) | {
            "tells": self.tells,
            "depth_shares": {str(depth): share for depth, share in self.depth_shares.items()},
            "recorded_shares": {str(depth): share for depth, share in self.recorded_shares.items()},
            "missing": [asdict(each) for each in self.missing],
        }


def replay_trace(trace: Trace, entry: Entry) -> TraceReplay:
    """
    Replay a recorded trace against another policy.

    The policy sees each round's load as it was recorded, although with other depths requests would
    have finished sooner or later. It is told an outcome where the trace tells it, and none where
    it does not. Outcomes arrive as late as they did on the server.

    Args:
        trace: The trace.

        entry: The policy.

    Returns:
        What the policy did, and what it would have been worth.

    Raises:
        ConfigError: The trace holds no rounds, or the policy refuses its options or limits.
    """
    header = trace.header
    recorded_depths = header.depths or [each.depth for each in trace.rounds]
    depths = tuple(sorted({0, *recorded_depths}))
    if not trace.rounds or not 0 < depths[-1] <= DEEPEST:
        raise ConfigError(
            expected=f"a trace with rounds, and with a depth besides plain, up to {DEEPEST}",
            found=f"{len(trace.rounds)} rounds of depths {', '.join(map(str, depths))}",
            remedy="record one with --dynspec-trace under load",
        )
    config = Config(
        depths=depths, seed=header.seed, exact_sampling=header.exact_sampling, **entry.guard
    ).resolve(depths[-1])
    limits = Limits(
        depths=depths, max_running_requests=header.max_running_requests, seed=header.seed
    )
    rounds = Rounds(
        policy=build_policy(entry.policy, entry.options, limits),
        config=config,
        log=KeptLog(),
        # How long the policy itself takes is not measured: the same trace gives the same result.
        clock=lambda: 0.0,
    )
    recorded = _Recorded(trace.rounds)
    totals = _Totals()

    def observations() -> Iterator[Observation]:
        for each in trace.rounds:
            yield _observation(each, rounds, depths)

    def run_round(observation: Observation, plan: Plan) -> Outcome | None:
        each = trace.rounds[observation.round]
        outcome = recorded.outcome(each, plan.depth, observation.round)
        totals.add(each, plan, outcome)
        return outcome

    drive(rounds, observations(), run_round, lag=int(header.overlap))
    count = len(trace.rounds)
    return TraceReplay(
        policy=entry.name,
        rounds=count,
        covered=totals.covered / count,
        as_recorded=totals.same / count,
        depth_shares={depth: totals.planned[depth] / count for depth in depths},
        recorded_shares={depth: totals.ran[depth] / count for depth in depths},
        switches=rounds.counters.switches,
        tokens_per_second=ratio(totals.tokens, totals.seconds),
        recorded_tokens_per_second=ratio(totals.recorded_tokens, totals.recorded_seconds),
        missing=tuple(
            Missing(
                depth=key[1],
                padded_batch_size=key[0],
                wanted=wanted,
                recorded=len(recorded.timed.get(key, ())),
            )
            for key, wanted in totals.missing.most_common()
        ),
    )


def _observation(each: TraceRound, rounds: Rounds, depths: tuple[int, ...]) -> Observation:
    return Observation(
        batch_size=each.batch_size,
        padded_batch_size=each.padded_batch_size,
        running=each.running,
        waiting=each.waiting,
        seq_len_sum=each.seq_len_sum,
        seq_len_max=each.seq_len_max,
        kv_free=each.kv_free,
        depths=depths,
        depth=rounds.depth,
        depth_age=rounds.depth_age,
        round=rounds.round,
        plain_requests=each.plain_requests,
        upkeep_window=each.upkeep_window,
    )


class _Recorded:
    """
    What a trace holds, by padded batch size and depth.

    Attributes:
        timed: Rounds with a period.
    """

    def __init__(self, rounds: list[TraceRound]) -> None:
        self.timed: dict[tuple[int, int], list[TraceRound]] = {}
        accepted: dict[tuple[int, int], list[int]] = {}
        for each in rounds:
            key = each.padded_batch_size, each.depth
            accepted.setdefault(key, []).extend(each.accepted)
            if each.period is not None:
                self.timed.setdefault(key, []).append(each)
        self._in_turn = {key: cycle(found) for key, found in self.timed.items()}
        self._accepted = {key: cycle(found) for key, found in accepted.items() if found}

    def outcome(self, each: TraceRound, depth: int, index: int) -> Outcome | None:
        """
        Give the outcome of a recorded round at a depth, or None where the trace does not tell.
        """
        # Those of the batch that still wanted tokens; older traces lack their lengths.
        requests = len(each.seq_lens or each.accepted) or each.batch_size
        other, accepted, seq_lens = each, each.accepted, each.seq_lens
        tokens, period = each.tokens, each.period
        if depth != each.depth:
            key = each.padded_batch_size, depth
            if len(self.timed.get(key, ())) < ENOUGH or (depth and key not in self._accepted):
                return None
            other = next(self._in_turn[key])
            accepted = tuple(islice(self._accepted[key], requests)) if depth else ()
            # These drafts were for other requests, of other lengths.
            seq_lens = () if depth else each.seq_lens
            tokens = requests + sum(accepted)
            # A round that nobody timed stays one.
            period = None if each.period is None else other.period
        return Outcome(
            round=index,
            depth=depth,
            planned=depth,
            batch_size=requests,
            accepted=accepted,
            tokens=tokens,
            period=period,
            padded_batch_size=each.padded_batch_size,
            seq_len_sum=each.seq_len_sum,
            seq_lens=seq_lens,
            upkeep=other.upkeep,
            guesses=other.guesses,
            right_guesses=other.right_guesses,
        )


class _Totals:
    """
    Sums over the rounds of a replay.
    """

    def __init__(self) -> None:
        self.covered = 0
        self.same = 0
        self.planned: Counter[int] = Counter()
        self.ran: Counter[int] = Counter()
        self.missing: Counter[tuple[int, int]] = Counter()
        self.tokens = 0
        self.seconds = 0.0
        self.recorded_tokens = 0
        self.recorded_seconds = 0.0

    def add(self, each: TraceRound, plan: Plan, outcome: Outcome | None) -> None:
        """
        Add one round.
        """
        self.planned[plan.depth] += 1
        self.ran[each.depth] += 1
        self.same += plan.depth == each.depth
        if outcome is None:
            self.missing[each.padded_batch_size, plan.depth] += 1
            return
        self.covered += 1
        if outcome.period is not None and each.period is not None:
            self.tokens += outcome.tokens
            self.seconds += outcome.period
            self.recorded_tokens += each.tokens
            self.recorded_seconds += each.period
