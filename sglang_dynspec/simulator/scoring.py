"""
What a run was worth: its share of the oracle, its switches, its probes, its speed of reaction.

**The oracle** takes, in every round, the depth of the largest true rate: tokens it delivers on
average, over the seconds it takes without noise, a plain round with its share of upkeep. Switching
costs it nothing. **The share** of a run is

    sum of the mean tokens of its rounds / sum of (the oracle's rate x seconds of its rounds)

that is, what it delivered over what the oracle would have delivered in the same time under the
same conditions. Rounds differ in length, so a share of rounds would not do; comparing totals of two
runs of equally many rounds would reward who spends more of the time where rates are high. Seconds
are those without noise and tokens are means, so that a share is free of luck, and 1.0 is the most
there is (the pseudo-regret of the bandit literature, as a share). What a run delivered by its
noisy clock is given beside it.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.reactions import Reaction, react
from sglang_dynspec.simulator.run import ScenarioRun

#: Rounds of a window.
WINDOW = 200
_SHORTEST_WINDOW = 64

#: Probes last so many rounds at most; a longer excursion counts as two switches.
LONGEST_PROBE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """
    The figures of a run. All but `warm_up_share` and `reactions` leave the warm-up out.

    Attributes:
        share: Share of the oracle, as above.

        warm_up_share: The same over the warm-up alone.

        worst_window: Smallest share of a window of 200 rounds. One begins at the end of the
            warm-up, at every transition, and wherever the oracle changes its depth. Where a
            transition allows longer than a window to follow it, the rounds until it was followed,
            or should have been, are left out.

        tokens_per_second: What the run delivered, by its own noisy clock.

        oracle_tokens_per_second: What the oracle would have, on average, in the same rounds' time.

        switches: Rounds planned at another depth than the one in force, probes aside.

        switches_per_1000: The same for each 1000 rounds.

        probe_rounds: Rounds that were probes.

        probe_loss: Tokens lost in probes, as a share of all: in each probe that was worse than the
            depth in force, what that depth would have delivered in the same time, less what the
            probe did on average. Probes that gained count as nothing, not as a credit.

        depth_shares: Share of rounds at each candidate depth.

        oracle_shares: Share of rounds in which each candidate depth was the oracle's.

        reactions: One for each transition of the scenario.
    """

    share: float
    warm_up_share: float
    worst_window: float
    tokens_per_second: float
    oracle_tokens_per_second: float
    switches: int
    switches_per_1000: float
    probe_rounds: int
    probe_loss: float
    depth_shares: dict[int, float]
    oracle_shares: dict[int, float]
    reactions: tuple[Reaction, ...]

    def as_json(self) -> dict[str, Any]:
        """
        Give the figures as plain JSON types.
        """
        return rounded_floats(
            asdict(self)
            | {
                "depth_shares": {str(depth): part for depth, part in self.depth_shares.items()},
                "oracle_shares": {str(depth): part for depth, part in self.oracle_shares.items()},
                "reactions": [asdict(reaction) for reaction in self.reactions],
            }
        )


def rounded_floats(figures: dict[str, Any]) -> dict[str, Any]:
    """
    Round floats to six digits after the point, those in nested objects as well.

    Args:
        figures: Figures by name.
    """
    return {name: _rounded(figure) for name, figure in figures.items()}


def _rounded(figure: Any) -> Any:
    if isinstance(figure, float):
        return round(figure, 6)
    return rounded_floats(figure) if isinstance(figure, dict) else figure


def true_rates(run: ScenarioRun) -> NDArray[np.float64]:
    """
    Give the true rate of every candidate depth in every round of a run.

    Args:
        run: The run.

    Returns:
        Shape (depths, rounds), in tokens per second.
    """
    return run.batch_sizes * mean_lengths(run) / _true_seconds(run)


def mean_lengths(run: ScenarioRun) -> NDArray[np.float64]:
    """
    Give the mean tokens of a request at every candidate depth in every round of a run.

    A round of depth k advances a request by E(k) = 1 + sum over j <= k of the probability that its
    first j drafts are all right.

    Args:
        run: The run.

    Returns:
        Shape (depths, rounds).
    """
    scenario = run.scenario
    depths, rounds = scenario.depths, len(run.batch_sizes)
    survival = scenario.drafts.survival(depths[-1])
    shares = run.kind_counts / run.kind_counts.sum(axis=1, keepdims=True)
    levels = scenario.levels(rounds)[:, None] ** np.arange(1, depths[-1] + 1)
    lengths = 1.0 + np.cumsum(levels * (shares @ survival), axis=1)
    lengths = np.concatenate([np.ones((rounds, 1)), lengths], axis=1)
    picked: NDArray[np.float64] = lengths[:, list(depths)].T
    return picked


def score(run: ScenarioRun) -> Score:
    """
    Work out the figures of a run.

    Args:
        run: The run, of at least as many rounds as its scenario's warm-up and one more.

    Returns:
        Its figures.
    """
    scenario = run.scenario
    depths = scenario.depths
    rates = true_rates(run)
    column = np.array([depths.index(plan.depth) for plan in run.plans])
    best = rates.max(axis=0)
    every = np.arange(len(column))
    tokens = run.batch_sizes * mean_lengths(run)[column, every]
    possible = best * run.seconds
    probes = short_probes(run.probes)
    force = in_force(column, probes)
    lost = np.maximum(0.0, rates[force, every] * run.seconds - tokens) * probes
    counted = slice(scenario.warm_up, None)
    changed = np.diff(force, prepend=force[0]) != 0
    switches = int(changed[counted].sum())
    horizon = len(column) - scenario.warm_up
    ran, ideal = column[counted], rates.argmax(axis=0)[counted]
    reactions = react(scenario.transitions, rates, force)
    judged = _judged(reactions, len(column))[counted]
    starts = np.union1d(
        np.flatnonzero(np.diff(ideal, prepend=ideal[0])),
        [0, *(each.at - scenario.warm_up for each in scenario.transitions)],
    )
    return Score(
        share=_share(tokens[counted], possible[counted]),
        warm_up_share=_share(tokens[: scenario.warm_up], possible[: scenario.warm_up]),
        worst_window=_worst_window(starts, tokens[counted] * judged, possible[counted] * judged),
        tokens_per_second=float(run.tokens[counted].sum() / run.periods[counted].sum()),
        oracle_tokens_per_second=float(possible[counted].sum() / run.seconds[counted].sum()),
        switches=switches,
        switches_per_1000=1000 * switches / horizon,
        probe_rounds=int(probes[counted].sum()),
        probe_loss=float(lost[counted].sum() / tokens[counted].sum()),
        depth_shares={depth: float((ran == at).mean()) for at, depth in enumerate(depths)},
        oracle_shares={depth: float((ideal == at).mean()) for at, depth in enumerate(depths)},
        reactions=reactions,
    )


def _share(tokens: NDArray[np.float64], possible: NDArray[np.float64]) -> float:
    return float(tokens.sum() / possible.sum())


def _true_seconds(run: ScenarioRun) -> NDArray[np.float64]:
    scenario = run.scenario
    seconds = [
        scenario.server.mean_seconds(depth, run.padded_batch_sizes, run.seq_len_sums)
        for depth in scenario.depths
    ]
    return np.array(seconds) * scenario.slowdown(len(run.batch_sizes))


def short_probes(probes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """
    Leave out excursions that are too long to be probes.

    Args:
        probes: Whether each round was planned as one; shape (rounds,).

    Returns:
        Whether each was one; shape (rounds,).
    """
    edges = np.flatnonzero(np.diff(probes.astype(np.int8), prepend=0, append=0))
    short = probes.copy()
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start > LONGEST_PROBE:
            short[start:end] = False
    return short


def in_force(column: NDArray[np.int64], probes: NDArray[np.bool_]) -> NDArray[np.int64]:
    """
    Give the column of the depth in force in each round: that of the last round that was no probe.

    Args:
        column: Column of the depth of each round; shape (rounds,).

        probes: Whether each was a probe; shape (rounds,).
    """
    last = np.maximum.accumulate(np.where(probes, -1, np.arange(len(column))))
    # Plain is in force before the first round.
    filled: NDArray[np.int64] = np.where(last < 0, 0, column[np.maximum(last, 0)])
    return filled


def _judged(reactions: tuple[Reaction, ...], rounds: int) -> NDArray[np.bool_]:
    """
    Leave out the rounds in which nothing could be asked of the run.
    """
    judged = np.ones(rounds, dtype=np.bool_)
    for reaction in reactions:
        if reaction.within > WINDOW and reaction.due is not None:
            took = reaction.within if reaction.took is None else reaction.took
            judged[reaction.due : reaction.due + min(took, reaction.within)] = False
    return judged


def _worst_window(
    starts: NDArray[np.int64], tokens: NDArray[np.float64], possible: NDArray[np.float64]
) -> float:
    # What is left of a window at the end of the run is one if it is long enough to tell.
    starts = starts[(starts >= 0) & (starts <= len(tokens) - _SHORTEST_WINDOW)]
    ends = np.minimum(starts + WINDOW, len(tokens))
    delivered, could = (
        np.concatenate([[0.0], np.cumsum(each)])[[starts, ends]] for each in (tokens, possible)
    )
    made = np.diff(could, axis=0)[0]
    # A window may hold nothing that is judged.
    judged = made > 0.0
    shares = np.diff(delivered, axis=0)[0][judged] / made[judged]
    return float(shares.min(initial=1.0))
