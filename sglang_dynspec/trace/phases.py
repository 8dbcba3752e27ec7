"""
The phases of a trace, and what happened in each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sglang_dynspec.account.counters import ratio
from sglang_dynspec.trace import Trace, TraceRound

#: Stretches shorter than this many rounds do not make a phase of their own.
_SHORTEST_PHASE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """
    A stretch of a trace.

    Attributes:
        name: What to call it.

        start: Where it starts, in seconds since the start of the trace.

        end: Where it ends, exclusive.
    """

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """
    What happened in one phase.

    Attributes:
        name: The phase.

        rounds: Rounds in it.

        batch_size: Mean batch size.

        shares: For each depth that ran, the share of rounds that ran at it, 0.0 to 1.0.

        accepted_length: Mean tokens a request advances in a speculative round, 1 + mean accepted
            drafts; None without speculative rounds.

        tokens: Tokens delivered.

        tokens_per_second: Tokens over the time their rounds took; None where that is unknown.

        switches: Rounds at another depth than the one in force before, which may be in the phase
            before; probes aside.

        probes: Rounds that were probes.
    """

    name: str
    rounds: int
    batch_size: float
    shares: dict[int, float]
    accepted_length: float | None
    tokens: int
    tokens_per_second: float | None
    switches: int
    probes: int = 0

    def as_json(self) -> dict[str, Any]:
        """
        Give the row as plain JSON types.
        """
        return asdict(self) | {"shares": {str(k): share for k, share in self.shares.items()}}


def phase_rows(trace: Trace, phases: Sequence[Phase] | None = None) -> list[PhaseRow]:
    """
    Summarise a trace, one row per phase.

    A round belongs to the phase in which its outcome was known. The time it took is its period;
    in a trace without periods it is the time since the round before.

    Args:
        trace: The trace.

        phases: The phases. None: a phase ends where the batch size moves to another power of two.

    Returns:
        A row for each phase, in order; one without rounds has zeros.
    """
    if phases is None:
        phases = phases_by_batch_size(trace.rounds)
    sums = [_Sums() for _ in phases]
    has_periods = any(each.period is not None for each in trace.rounds)
    before: TraceRound | None = None
    in_force: int | None = None
    for each in trace.rounds:
        seconds = each.period
        if before is not None and not has_periods:
            seconds = each.t - before.t
        switched = in_force not in (None, each.depth) and not each.probe
        for phase, total in zip(phases, sums, strict=True):
            if phase.start <= each.t < phase.end:
                total.add(each, seconds, switched=switched)
        before = each
        if not each.probe:
            in_force = each.depth
    return [total.row(phase.name) for phase, total in zip(phases, sums, strict=True)]


def phases_by_batch_size(rounds: Iterable[TraceRound]) -> list[Phase]:
    """
    Split a trace where the batch size moves to another power of two and stays there.

    Args:
        rounds: Rounds of a trace.

    Returns:
        Phases that cover every round, named by their batch sizes.
    """
    stretches: list[list[TraceRound]] = []
    for each in rounds:
        bucket = each.batch_size.bit_length()
        if stretches and stretches[-1][0].batch_size.bit_length() == bucket:
            stretches[-1].append(each)
        else:
            stretches.append([each])
    merged: list[list[TraceRound]] = []
    for stretch in stretches:
        # A short stretch is a step on a ramp and joins the one before. So does a stretch that
        # continues what a short one interrupted, or that has only a short one before it.
        if merged and (
            len(stretch) < _SHORTEST_PHASE
            or len(merged[-1]) < _SHORTEST_PHASE
            or merged[-1][0].batch_size.bit_length() == stretch[0].batch_size.bit_length()
        ):
            merged[-1].extend(stretch)
        else:
            merged.append(list(stretch))
    ends = [stretch[0].t for stretch in merged[1:]]
    return [
        Phase(name=_sizes(stretch), start=stretch[0].t, end=end)
        for stretch, end in zip(merged, [*ends, float("inf")], strict=bool(merged))
    ]


@dataclass(slots=True)
class _Sums:
    """
    Sums over the rounds of one phase.
    """

    rounds: int = 0
    requests: int = 0
    tokens: int = 0
    switches: int = 0
    probes: int = 0
    by_depth: dict[int, int] = field(default_factory=dict)
    speculated: int = 0
    accepted: int = 0
    timed_tokens: int = 0
    seconds: float = 0.0

    def add(self, each: TraceRound, seconds: float | None, *, switched: bool) -> None:
        self.rounds += 1
        self.requests += each.batch_size
        self.tokens += each.tokens
        self.switches += switched
        self.probes += each.probe
        self.by_depth[each.depth] = self.by_depth.get(each.depth, 0) + 1
        if each.depth:
            self.speculated += len(each.accepted)
            self.accepted += sum(each.accepted)
        if seconds is not None:
            self.timed_tokens += each.tokens
            self.seconds += seconds

    def row(self, name: str) -> PhaseRow:
        return PhaseRow(
            name=name,
            rounds=self.rounds,
            batch_size=ratio(self.requests, self.rounds) or 0.0,
            shares={k: count / self.rounds for k, count in sorted(self.by_depth.items())},
            accepted_length=ratio(self.speculated + self.accepted, self.speculated),
            tokens=self.tokens,
            tokens_per_second=ratio(self.timed_tokens, self.seconds),
            switches=self.switches,
            probes=self.probes,
        )


def _sizes(stretch: list[TraceRound]) -> str:
    sizes = [each.batch_size for each in stretch]
    low, high = min(sizes), max(sizes)
    return f"batch {low}" if low == high else f"batch {low}-{high}"
