"""
What has happened since the server started, as plain numbers.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sglang_dynspec.account.timed import TimedTable
from sglang_dynspec.observation import Outcome

#: The guard held a change because the depth in force was too young.
HELD_DWELL = "dwell"

#: The guard held a change because it promised too little.
HELD_DEAD_BAND = "dead_band"

#: The guard held a change because depth has changed too often.
HELD_SWITCH_RATE = "switch_rate"

#: The guard held a probe because probes have cost too much.
HELD_EXPLORATION = "exploration_budget"

#: The guard made a round plain because its depth was measured below the plain rate.
HELD_NEVER_WORSE = "never_worse"

#: The guard made a round plain because acceptance has collapsed.
HELD_WATCHDOG = "watchdog"

#: Every reason above.
HOLDS = (
    HELD_DWELL,
    HELD_DEAD_BAND,
    HELD_SWITCH_RATE,
    HELD_EXPLORATION,
    HELD_NEVER_WORSE,
    HELD_WATCHDOG,
)


class DepthCounters:
    """
    Totals over the rounds that ran at one depth.

    Attributes:
        rounds: Rounds.

        requests: Counted requests, summed over rounds.

        drafted: Drafts offered: depth x counted requests.

        accepted: Drafts accepted.

        tokens: Tokens delivered.
    """

    __slots__ = ("accepted", "drafted", "requests", "rounds", "tokens")

    def __init__(self) -> None:
        self.rounds = 0
        self.requests = 0
        self.drafted = 0
        self.accepted = 0
        self.tokens = 0


class Counters:
    """
    Totals over all rounds. Nothing grows with the number of rounds.

    Attributes:
        rounds: Rounds whose outcome is known.

        rounds_by_depth: The same, by the depth that ran.

        by_depth: Totals by the depth that ran.

        timed: Totals of measured rounds by depth and padded batch size.

        switches: Times that another depth came into force.

        probes: Excursions of one or two rounds to another depth than the one in force.

        probe_rounds: Rounds of those excursions.

        untimed_rounds: Rounds whose period is not known.

        mismatches: Rounds that ran at another depth than planned.

        exact_sampling_rounds: Rounds made plain because a request's sampling asked for it.

        policy_errors: Faults of the policy: it raised, or returned no usable plan.

        slow_policies: Rounds for which the policy took longer than it may.

        guard_holds: Rounds in which the guard held the policy back, by reason.

        quarantines: Times a depth was quarantined for having been measured below the plain rate.

        watchdog_trips: Times that acceptance was found to have collapsed.

        watchdog_recoveries: Times that it was found to have come back.

        observer_errors: Exceptions raised by observers.

        trace_errors: Failed writes of the trace; tracing stops at the first.

        unmarked: Decode batches that reached the worker without a plan; they ran plain.

        mark_faults: Decode batches that could not be observed; they ran plain.

        impossible_outcomes: Outcomes that cannot be (more accepted than drafted); left out of
            the acceptance counters, so that rates stay rates.

        drafted: Drafts offered.

        accepted: Drafts accepted.

        tokens: Tokens delivered.
    """

    __slots__ = (
        "accepted",
        "by_depth",
        "drafted",
        "exact_sampling_rounds",
        "guard_holds",
        "impossible_outcomes",
        "mark_faults",
        "mismatches",
        "observer_errors",
        "policy_errors",
        "probe_rounds",
        "probes",
        "quarantines",
        "rounds",
        "rounds_by_depth",
        "slow_policies",
        "switches",
        "timed",
        "tokens",
        "trace_errors",
        "unmarked",
        "untimed_rounds",
        "watchdog_recoveries",
        "watchdog_trips",
    )

    def __init__(self, depths: Iterable[int]) -> None:
        self.by_depth = {depth: DepthCounters() for depth in depths}
        self.rounds_by_depth = dict.fromkeys(self.by_depth, 0)
        self.guard_holds = dict.fromkeys(HOLDS, 0)
        self.quarantines = 0
        self.watchdog_trips = 0
        self.watchdog_recoveries = 0
        self.timed = TimedTable()
        self.rounds = 0
        self.switches = 0
        self.probes = 0
        self.probe_rounds = 0
        self.untimed_rounds = 0
        self.mismatches = 0
        self.exact_sampling_rounds = 0
        self.policy_errors = 0
        self.slow_policies = 0
        self.observer_errors = 0
        self.trace_errors = 0
        self.unmarked = 0
        self.mark_faults = 0
        self.impossible_outcomes = 0
        self.drafted = 0
        self.accepted = 0
        self.tokens = 0

    def note(self, name: str, tell: Callable[..., Any], event: str, **fields: Any) -> None:
        """
        Count something unusual, and log it the first time: a line a round would cost more than it.

        Args:
            name: The counter.

            tell: A method of a structlog logger, which decides the level.

            event: What happened, in the past tense.

            **fields: What is worth knowing of it.
        """
        count = getattr(self, name) + 1
        setattr(self, name, count)
        if count == 1:
            tell(event, frames=1, **fields)

    def count(self, outcome: Outcome) -> None:
        """
        Add the outcome of a round.

        Args:
            outcome: What the round did.
        """
        depth = outcome.depth
        self.rounds += 1
        self.tokens += outcome.tokens
        if not self.timed.count(outcome):
            self.untimed_rounds += 1
        at_depth = self.by_depth.get(depth)
        if at_depth is None:
            # Not a candidate. The round is a mismatch already; there is no row to credit.
            return
        self.rounds_by_depth[depth] += 1
        at_depth.rounds += 1
        at_depth.tokens += outcome.tokens
        drafted = depth * outcome.batch_size
        accepted = sum(outcome.accepted)
        if not 0 <= accepted <= drafted:
            self.impossible_outcomes += 1
            return
        at_depth.requests += outcome.batch_size
        at_depth.drafted += drafted
        at_depth.accepted += accepted
        self.drafted += drafted
        self.accepted += accepted

    def summary(self) -> dict[str, Any]:
        """
        Give the totals and the rates they make, as plain JSON types.

        Returns:
            Every counter, depths written as strings, and more. ``timed``: `TimedTable.summary`.
            ``acceptance_rate``: accepted / drafted, 0 to 1, or None while nothing was drafted.
            ``by_depth``: for each depth its rounds, its share of all rounds (0 to 1), requests,
            tokens, acceptance rate, and ``mean_accepted_length``, the tokens one request advances
            in one round (1 + mean accepted drafts), or None before any did.
        """
        tables = ("by_depth", "rounds_by_depth", "guard_holds", "timed")
        totals = {name: getattr(self, name) for name in self.__slots__ if name not in tables}
        return {
            **totals,
            "guard_holds": dict(self.guard_holds),
            "rounds_by_depth": {str(depth): n for depth, n in self.rounds_by_depth.items()},
            "timed": self.timed.summary(),
            "acceptance_rate": ratio(self.accepted, self.drafted),
            "by_depth": {
                str(depth): {
                    "rounds": at.rounds,
                    "share": at.rounds / self.rounds if self.rounds else 0.0,
                    "requests": at.requests,
                    "tokens": at.tokens,
                    "acceptance_rate": ratio(at.accepted, at.drafted),
                    "mean_accepted_length": ratio(at.requests + at.accepted, at.requests),
                }
                for depth, at in self.by_depth.items()
            },
        }


def ratio(part: float, whole: float) -> float | None:
    """
    Divide, or give None where there is nothing to divide by.
    """
    return part / whole if whole else None
