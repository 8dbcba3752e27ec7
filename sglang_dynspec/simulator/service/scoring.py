"""
What a run through a world was worth.

**The oracle** takes, in every round, the depth of the largest long-run rate (`oracle`): it knows
what rounds cost at every depth, the acceptance of every request at its present stage, how drafts
fare that are not stale, and what prefills to expect. Switching costs it nothing, and it compiles
nothing. No policy can know all of that: of a request that has just come, nobody knows the kind.
**The share** of a run is

    sum of the mean tokens of its rounds / sum of (the oracle's rate x mean seconds of its rounds)

where the mean seconds of a round are what it took without noise, its own passes, re-entry and slow
time included, and the prefill to be expected after it. So a share is free of luck, 1.0 is the most
there is, and it compares a run with what was possible in the states that it came to: a server that
is faster has shorter queues, and is not to be blamed for that. What a request gives beyond its last
token is not cut off here. Compilation is left out, as nobody avoids it in the end; what a policy
makes of a stalled round counts. Everything counts from the first round on.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.reactions import first_settled
from sglang_dynspec.simulator.scoring import in_force, rounded_floats, short_probes
from sglang_dynspec.simulator.service.oracle import Truth, truth_of
from sglang_dynspec.simulator.service.pace import Slow
from sglang_dynspec.simulator.service.run import WorldRun

#: How far below the best a depth is wrong, as a share of the rate.
WRONG = 0.03

#: Rounds that are the first.
FIRST = 512

#: How many times as long rounds of one depth take for it to be one that ought to be left.
_MUCH = 2.0

#: Rounds before it that say what was predicted until then, and rounds after it.
_BEFORE, _AFTER = 64, 512

#: Share of rounds in which a depth is the best one for a return to it to be due.
_DUE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """
    How a run followed one depth that became slow, and recovered.

    Attributes:
        depth: The depth.

        was: Whether it was in force as it became slow.

        left: Rounds until it was left; None if it was not.

        due: Whether it was the best one again, after.

        back: Rounds from its recovery until it was in force again; None if it was not.

        plain_moved: By what share the predicted rate of plain went off meanwhile, at most; None
            where nothing was predicted.
    """

    depth: int
    was: bool
    left: int | None
    due: bool
    back: int | None
    plain_moved: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldScore:
    """
    The figures of a run.

    Attributes:
        share: Share of the oracle, as above.

        first_share: The same over the first 512 rounds.

        stuck: Longest stretch of rounds at a depth in force that was worse than the best by more
            than 3 %.

        tokens_per_second: Tokens by the clock, prefills' and idle time included: what really
            happened, luck, noise and compilation and all.

        oracle_tokens_per_second: The oracle's rate in the mean over the time of the run's rounds.

        token_p50: Seconds per output token of a request after its first, median and 99th
            percentile over requests that finished; None where none did.

        token_p99: See above.

        gap_p99: Seconds from the end of one round to the next, prefills between them included, 99th
            percentile.

        wait_p99: Seconds from arrival to the first token, 99th percentile.

        switches_per_1000: Changes of the depth in force for each 1000 rounds.

        probe_rounds: Share of rounds that were probes.

        untimed: Share of rounds whose period nobody was told.

        stalled: Seconds of compilation.

        rounds: Decode rounds.

        depth_shares: Share of rounds at each depth.

        oracle_shares: Share of rounds in which each depth was the oracle's.

        followings: One for each time that one depth became slow.
    """

    share: float
    first_share: float
    stuck: int
    tokens_per_second: float
    oracle_tokens_per_second: float
    token_p50: float | None
    token_p99: float | None
    gap_p99: float
    wait_p99: float
    switches_per_1000: float
    probe_rounds: float
    untimed: float
    stalled: float
    rounds: int
    depth_shares: dict[str, float]
    oracle_shares: dict[str, float]
    followings: tuple[Following, ...]

    def as_json(self) -> dict[str, Any]:
        """
        Give the figures as plain JSON types.
        """
        followings = [rounded_floats(asdict(each)) for each in self.followings]
        return rounded_floats(asdict(self) | {"followings": followings})


def score_run(run: WorldRun) -> WorldScore:
    """
    Work out the figures of a run.

    Args:
        run: The run, of at least two rounds.

    Returns:
        Its figures.
    """
    engine, depths = run.engine, run.world.depths
    log, truth = engine.log, truth_of(run)
    rates = truth.rates
    best, ideal = rates.max(axis=0), rates.argmax(axis=0)
    possible = best * truth.ran_seconds
    probes = short_probes(np.array([plan.probe for plan in run.plans]))
    force = in_force(truth.rows, probes)
    rounds = len(force)
    gaps = np.diff(log.ends)[~np.array(log.idle)[1:]]
    tokens_each = [
        (last - first) / (n - 1) for first, last, n in engine.population.finished if n > 1
    ]
    first = slice(0, FIRST)
    return WorldScore(
        share=float(truth.ran_tokens.sum() / possible.sum()),
        first_share=float(truth.ran_tokens[first].sum() / possible[first].sum()),
        stuck=longest(rates[force, np.arange(rounds)] < (1.0 - WRONG) * best),
        tokens_per_second=(sum(log.tokens) + engine.prefilled) / log.ends[-1],
        oracle_tokens_per_second=float(possible.sum() / truth.ran_seconds.sum()),
        token_p50=_quantile(tokens_each, 0.5),
        token_p99=_quantile(tokens_each, 0.99),
        gap_p99=float(np.quantile(gaps, 0.99)) if len(gaps) else 0.0,
        wait_p99=_quantile(engine.waits, 0.99) or 0.0,
        switches_per_1000=1000.0 * float((np.diff(force) != 0).sum()) / rounds,
        probe_rounds=float(probes.mean()),
        untimed=1.0 - sum(log.timed) / rounds,
        stalled=sum(log.stalled),
        rounds=rounds,
        depth_shares={
            str(depth): float((truth.rows == row).mean()) for row, depth in enumerate(depths)
        },
        oracle_shares={
            str(depth): float((ideal == row).mean()) for row, depth in enumerate(depths)
        },
        followings=tuple(
            _following(run, truth, force, slow)
            for slow in run.world.pace.slow
            if len(slow.depths) == 1 and slow.every is None and slow.factor >= _MUCH
        ),
    )


def longest(wrong: NDArray[np.bool_]) -> int:
    """
    Find the longest stretch.

    Args:
        wrong: Whether each round belongs to one; shape (rounds,).

    Returns:
        Rounds; 0 for none.
    """
    edges = np.flatnonzero(np.diff(wrong.astype(np.int8), prepend=0, append=0))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _following(run: WorldRun, truth: Truth, force: NDArray[np.int64], slow: Slow) -> Following:
    begins = np.array(run.engine.log.begins)
    row = run.world.depths.index(slow.depths[0])
    start, end = np.searchsorted(begins, [slow.begin, slow.end]).tolist()
    was = start < len(force) and bool(force[max(start - 1, 0)] == row)
    best = truth.rates.argmax(axis=0)[end:]
    predicted = [plan.predicted[0] for plan in run.plans[:start] if plan.predicted][-_BEFORE:]
    during = [plan.predicted[0] for plan in run.plans[start : end + _AFTER] if plan.predicted]
    moved = None
    if predicted and during:
        usual = float(np.median(predicted))
        moved = max(abs(rate / usual - 1.0) for rate in during)
    return Following(
        depth=slow.depths[0],
        was=was,
        left=first_settled(force[start:end] != row) if was else None,
        due=len(best) > 0 and float((best == row).mean()) >= _DUE,
        back=first_settled(force[end:] == row),
        plain_moved=moved,
    )


def _quantile(values: list[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None
