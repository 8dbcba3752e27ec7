"""
The guard: bounds what any policy can do to a server.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace

from sglang_dynspec._log import describe, structured
from sglang_dynspec.config import Config
from sglang_dynspec.counters import HELD_DEAD_BAND, HELD_DWELL, Counters
from sglang_dynspec.errors import PolicyError
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Policy

#: The policy failed in this round, so the last good depth stays in force.
POLICY_FAILED = "policy_failed"

#: The policy failed too often and is not asked any more.
BUDGET_EXHAUSTED = "error_budget_exhausted"

#: Rounds a probe may last. One more is taken for a change of depth.
PROBE_ROUNDS = 2

_MICROSECONDS = 1e6


class Guard:
    """
    Asks a policy, and answers with a candidate depth whatever the policy does.

    - A depth stays in force for ``min_dwell`` rounds.
    - A change whose predicted gain is below ``dead_band`` is held. A policy that predicts nothing
      is not held.
    - Probes pass, for two rounds in a row. A third is bounded like any other change.
    - A policy that raises, or returns anything but a plan for a candidate depth, leaves the last
      good depth in force for that round. After more than ``error_budget`` such faults it is not
      asked again, and every round is plain.
    - A policy that takes longer than ``slow_policy_us`` for one round is counted.

    Each of these is logged the first time and only counted after that: a line per round would cost
    more than the fault.

    Args:
        policy: The policy to bound, configured.

        config: Where the bounds are.

        depths: Candidate depths.

        counters: Where faults and holds are counted.

        log: Logger to write through; ours by default.

        clock: Gives seconds; measures the policy.

    Attributes:
        exhausted: Whether the error budget is used up.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_counters",
        "_dead_band",
        "_held",
        "_last_good",
        "_limit",
        "_log",
        "_min_dwell",
        "_plain",
        "_policy",
        "_probe_round",
        "_probe_rounds",
        "_spent",
        "exhausted",
    )

    def __init__(
        self,
        policy: Policy,
        *,
        config: Config,
        depths: tuple[int, ...],
        counters: Counters,
        log: logging.Logger | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._policy = policy
        self._config = config
        self._counters = counters
        self._log = structured(log, "sglang_dynspec.guard")
        self._clock = clock
        self._min_dwell = config.min_dwell
        self._dead_band = config.dead_band
        self._limit = config.slow_policy_us / _MICROSECONDS
        self._plain = Plan(depth=0, reason=BUDGET_EXHAUSTED)
        # Every plan the guard can answer with itself, so that holding allocates nothing.
        self._held = {
            reason: {depth: Plan(depth=depth, reason=reason) for depth in depths}
            for reason in (HELD_DWELL, HELD_DEAD_BAND, POLICY_FAILED)
        }
        self._last_good = 0
        self._probe_round = -1
        self._probe_rounds = 0
        self._spent = 0.0
        self.exhausted = False

    def decide(self, observation: Observation, depth: int, depth_age: int) -> Plan:
        """
        Decide the depth of the round about to run.

        Args:
            observation: What the policy sees.

            depth: The depth in force, a candidate.

            depth_age: Rounds planned at it since it changed; 0 only before the first round, whose
                depth is free.

        Returns:
            A plan whose depth is a candidate: the policy's own, or one that says why not.

        Raises:
            KeyboardInterrupt: Somebody wants the process to stop.
        """
        if self.exhausted:
            return self._plain
        started = self._clock()
        try:
            plan = self._policy.decide(observation)
            self._check(plan)
        except KeyboardInterrupt:
            raise
        # SystemExit included: a policy has no business stopping the server.
        except BaseException as error:  # noqa: BLE001
            self._spend(0.0, self._clock() - started)
            self._fault("decide", error)
            return self._plain if self.exhausted else self._held[POLICY_FAILED][self._last_good]
        self._spend(0.0, self._clock() - started)
        if plan.depth != depth:
            if plan.probe:
                if self._may_probe(observation.round):
                    return plan
                plan = replace(plan, probe=False)
            gain = plan.gain
            if 0 < depth_age < self._min_dwell:
                plan = self._hold(HELD_DWELL, depth)
            elif gain is not None and gain < self._dead_band:
                plan = self._hold(HELD_DEAD_BAND, depth)
        self._last_good = plan.depth
        return plan

    def learn(self, outcome: Outcome) -> None:
        """
        Tell the policy what a round did.

        Args:
            outcome: What the round did.

        Raises:
            KeyboardInterrupt: Somebody wants the process to stop.
        """
        if self.exhausted:
            return
        started = self._clock()
        try:
            self._policy.learn(outcome)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # as in decide
            self._fault("learn", error)
        self._spend(self._spent, self._clock() - started)

    def _may_probe(self, round_index: int) -> bool:
        follows = round_index == self._probe_round + 1
        self._probe_rounds = self._probe_rounds + 1 if follows else 1
        if self._probe_rounds > PROBE_ROUNDS:
            return False
        self._probe_round = round_index
        return True

    def _check(self, plan: object) -> None:
        if not isinstance(plan, Plan):
            raise PolicyError(f"decide() returned {plan!r:.80}, not a Plan")
        depth, gain = plan.depth, plan.gain
        # bool is an int, and numpy's integers compare equal to ours but do not serialize.
        if type(depth) is not int:
            raise PolicyError(f"Plan.depth is {depth!r:.80}, not an int")
        if depth not in self._held[HELD_DWELL]:
            candidates = ", ".join(map(str, self._held[HELD_DWELL]))
            raise PolicyError(f"Plan.depth is {depth}, not one of the candidates {candidates}")
        if type(plan.reason) is not str:
            raise PolicyError(f"Plan.reason is {plan.reason!r:.80}, not a str")
        if gain is not None and not (type(gain) in (float, int) and math.isfinite(gain)):
            raise PolicyError(f"Plan.gain is {gain!r:.80}, not a finite number or None")

    def _hold(self, reason: str, depth: int) -> Plan:
        self._counters.guard_holds[reason] += 1
        return self._held[reason][depth]

    def _spend(self, before: float, seconds: float) -> None:
        # One round's decide and learn count together, and each round at most once.
        self._spent = before + seconds
        if before <= self._limit < self._spent:
            self._counters.slow_policies += 1
            if self._counters.slow_policies == 1:
                self._log.warning(
                    "slow_policy_noticed",
                    policy=type(self._policy).__name__,
                    microseconds=round(self._spent * _MICROSECONDS),
                    limit=self._config.slow_policy_us,
                    note="later ones are only counted",
                )

    def _fault(self, method: str, error: BaseException) -> None:
        self._counters.policy_errors += 1
        faults, budget = self._counters.policy_errors, self._config.error_budget
        if faults == 1:
            self._log.error(
                "policy_failed",
                policy=type(self._policy).__name__,
                method=method,
                error=describe(error),
                error_budget=budget,
                note="the last good depth stays in force; later faults are only counted",
            )
        if faults > budget:
            self.exhausted = True
            self._log.error(
                "error_budget_exhausted",
                policy=type(self._policy).__name__,
                faults=faults,
                error_budget=budget,
                note="every round is plain from now on",
            )
