"""
What outcomes say about speculation, and what follows from it.
"""

import logging
from typing import Any

from sglang_dynspec.account.counters import Counters
from sglang_dynspec.config import ResolvedConfig
from sglang_dynspec.guard.probe_budget import ProbeBudget
from sglang_dynspec.guard.quarantine import Quarantine
from sglang_dynspec.guard.rates import Rates
from sglang_dynspec.guard.watchdog import Watchdog
from sglang_dynspec.log import structured
from sglang_dynspec.observation import Observation, Outcome


class Evidence:
    """
    Measures every round and gives the verdicts of watchdog, quarantine and exploration.

    Args:
        config: Says which of them are wanted, and the candidate depths.

        never_worse: Whether depths are quarantined.

        counters: Where trips and quarantines are counted.

        log: Logger to write through; ours by default.
    """

    __slots__ = (
        "_after_probe",
        "_counters",
        "_log",
        "_probe_budget",
        "_quarantine",
        "_rates",
        "_watchdog",
    )

    def __init__(
        self,
        config: ResolvedConfig,
        *,
        never_worse: bool,
        counters: Counters,
        log: logging.Logger | None,
    ) -> None:
        depths = config.depths
        self._rates = Rates(depths)
        self._probe_budget = ProbeBudget(config.exploration_budget, self._rates)
        self._quarantine = Quarantine(self._rates, depths) if never_worse else None
        self._watchdog = Watchdog() if config.watchdog else None
        self._counters = counters
        self._log = structured(log, "sglang_dynspec.guard")
        self._after_probe = -1

    @property
    def allows_probe(self) -> bool:
        """
        Whether probes have left something of what they may cost.
        """
        return not self._probe_budget.is_empty

    @property
    def has_collapsed(self) -> bool:
        """
        Whether acceptance has collapsed and not come back.
        """
        return self._watchdog is not None and self._watchdog.has_tripped

    def observe(self, observation: Observation) -> None:
        """
        Take note of what may be set anew while serving.

        Args:
            observation: Of the round about to run.
        """
        self._rates.upkeep_window = observation.upkeep_window

    def allows_retry(self, round_index: int, batch_size: int) -> bool:
        """
        Tell whether a round may try if acceptance has come back. See `Watchdog.allows`.
        """
        return self._watchdog is not None and self._watchdog.allows(round_index, batch_size)

    def is_worse(self, depth: int, batch_size: int, round_index: int) -> bool:
        """
        Tell whether a depth is in quarantine. See `Quarantine.holds`.
        """
        quarantine = self._quarantine
        return quarantine is not None and quarantine.holds(depth, batch_size, round_index)

    def add(self, outcome: Outcome, probed_from: int | None) -> None:
        """
        Take note of a round.

        Args:
            outcome: What the round did.

            probed_from: The depth in force, if the round was a probe of another; else None.
        """
        self._measure(outcome, probed_from)
        if self._watchdog is not None:
            self._watch(self._watchdog, outcome)

    def summary(self, round_index: int) -> dict[str, Any]:
        """
        Give what is in force, as plain JSON types.

        Args:
            round_index: Index of the round.

        Returns:
            Whether the watchdog has tripped, the depths in quarantine, each with its smallest and
            largest batch size and the rounds it has left, and the tokens that probes have cost.
        """
        quarantine = self._quarantine
        confined = [] if quarantine is None else quarantine.confined(round_index)
        return {
            "watchdog_tripped": self.has_collapsed,
            "quarantined": [
                {"depth": depth, "batch_sizes": list(sizes), "rounds_left": left}
                for depth, sizes, left in confined
            ],
            "probe_tokens_lost": round(self._probe_budget.lost, 1),
        }

    def _measure(self, outcome: Outcome, probed_from: int | None) -> None:
        usable = outcome.usable_period is not None
        if probed_from is not None:
            self._probe_budget.pay(outcome, probed_from, usable=usable)
            self._after_probe = outcome.round + 1
        elif outcome.round == self._after_probe:
            self._probe_budget.pay(outcome, outcome.depth, usable=usable)
            # Its upkeep pass, if it holds one, is the probe's doing and not its depth's.
            if usable and outcome.upkeep:
                self._rates.measure_pass(outcome)
                usable = False
        self._probe_budget.earn(outcome)
        if not usable:
            return
        self._rates.add(outcome)
        if self._quarantine is not None and outcome.depth and self._quarantine.judge(outcome):
            self._counters.note(
                "quarantines",
                self._log.warning,
                "depth_quarantined",
                depth=outcome.depth,
                batch_size=outcome.batch_size,
                round=outcome.round,
                note="measured below the plain rate; later ones are only counted",
            )

    def _watch(self, watchdog: Watchdog, outcome: Outcome) -> None:
        had_tripped = watchdog.has_tripped
        watchdog.see(outcome)
        if watchdog.has_tripped == had_tripped:
            return
        note, log, now = self._counters.note, self._log, outcome.round
        if had_tripped:
            note("watchdog_recoveries", log.warning, "acceptance_recovered", round=now)
            return
        note(
            "watchdog_trips",
            log.error,
            "acceptance_collapsed",
            round=now,
            depth=outcome.depth,
            note="rounds are plain until drafts are accepted again; later ones are counted",
        )
