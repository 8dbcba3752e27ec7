"""
`Guard`: asks the policy, and bounds its answer.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sglang_dynspec.account.counters import (
    HELD_DEAD_BAND,
    HELD_DWELL,
    HELD_EXPLORATION,
    HELD_NEVER_WORSE,
    HELD_SWITCH_RATE,
    HELD_WATCHDOG,
    HOLDS,
    Counters,
)
from sglang_dynspec.config import ResolvedConfig
from sglang_dynspec.guard.evidence import Evidence
from sglang_dynspec.guard.policy_calls import PolicyCalls
from sglang_dynspec.guard.switch_rate import SwitchRate
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Policy

#: The policy failed in this round, so the last good depth stays in force.
POLICY_FAILED = "policy_failed"

#: The policy failed too often and is not asked any more.
BUDGET_EXHAUSTED = "error_budget_exhausted"

#: The watchdog tries whether acceptance has come back.
WATCHDOG_RETRY = "watchdog_retry"

#: Rounds a probe may last. One more is taken for a change of depth.
PROBE_ROUNDS = 2


class Guard:
    """
    Asks a policy, and answers with a candidate depth whatever the policy does.

    - A depth stays in force for ``min_dwell`` rounds.
    - A change whose predicted gain is below ``dead_band`` is held. A policy that predicts nothing
      is not held.
    - Depth changes at most ``switches_per_1000`` times in 1000 rounds of steady load; see
      `SwitchRate`. Coming back to what the policy chose last, after something else made rounds
      plain, is free.
    - Probes pass by those three, for two rounds in a row; a third is bounded like any other change.
      They are held once they have cost more than ``exploration_budget``; see `ProbeBudget`.
    - Where a depth has been measured below the plain rate, rounds are plain (``never_worse``); see
      `Quarantine`. Unless told otherwise this binds only policies that go by time themselves:
      whoever chose `always` or a table chose the depth, and is taken at their word.
    - After acceptance has collapsed, rounds are plain but for retries, under every policy
      (``watchdog``); see `Watchdog`. Drafts that are never right are a fault and nobody's choice.
    - A policy that raises, or returns anything but a plan for a candidate depth, leaves the last
      good depth in force for that round. After more than ``error_budget`` such faults it is not
      asked again, and every round is plain.
    - A policy that takes longer than ``slow_policy_us`` for one round is counted.

    Depths forced from outside pass by the guard. It is deterministic given its policy's plans and
    the outcomes, does a fixed amount of work a round, and keeps nothing that grows.

    Faults and trips are logged the first time and only counted after that: a line per round would
    cost more than the fault.

    Args:
        policy: The policy to bound, configured.

        config: Where the bounds are, and the candidate depths.

        counters: Where faults and holds are counted.

        log: Logger to write through; ours by default.

        clock: Gives seconds; measures the policy.

    Attributes:
        asked: The policy's last usable plan, before any bound; None before the first.
    """

    __slots__ = (
        "_calls",
        "_chosen",
        "_counters",
        "_dead_band",
        "_evidence",
        "_held",
        "_last_good",
        "_min_dwell",
        "_plain",
        "_probe_round",
        "_probe_rounds",
        "_retry",
        "_switch_rate",
        "asked",
    )

    def __init__(
        self,
        policy: Policy,
        *,
        config: ResolvedConfig,
        counters: Counters,
        log: logging.Logger | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        depths = config.depths
        self._calls = PolicyCalls(policy, config=config, counters=counters, log=log, clock=clock)
        self._counters = counters
        self._min_dwell = config.min_dwell
        self._dead_band = config.dead_band
        self._switch_rate = SwitchRate(config.switches_per_1000)
        self._evidence = Evidence(
            config,
            never_worse=policy.uses_time if config.never_worse is None else config.never_worse,
            counters=counters,
            log=log,
        )
        # Every plan the guard can answer with itself, so that holding allocates nothing.
        self._held = {
            reason: {depth: Plan(depth=depth, reason=reason) for depth in depths}
            for reason in (*HOLDS, POLICY_FAILED)
        }
        self._plain = Plan(depth=0, reason=BUDGET_EXHAUSTED)
        self._retry = Plan(depth=depths[1], reason=WATCHDOG_RETRY, probe=True)
        self._last_good = 0
        self._chosen = -1
        self._probe_round = -1
        self._probe_rounds = 0
        self.asked: Plan | None = None

    @property
    def exhausted(self) -> bool:
        """
        Whether the error budget is used up.
        """
        return self._calls.exhausted

    def decide(self, observation: Observation) -> Plan:
        """
        Decide the depth of the round about to run.

        Args:
            observation: What the policy sees. Its `depth_age` is 0 only before the first round,
                whose depth is free.

        Returns:
            A plan whose depth is a candidate: the policy's own, or one that says why not.

        Raises:
            KeyboardInterrupt: Somebody wants the process to stop.
        """
        calls = self._calls
        self._evidence.observe(observation)
        asked = None if calls.exhausted else calls.decide(observation)
        if calls.exhausted:
            return self._plain
        if asked is None:
            plan = self._held[POLICY_FAILED][self._last_good]
        else:
            self.asked = plan = asked
        if plan.depth:
            plan = self._protect(observation, plan)
        # What the guard itself decided is final.
        if plan is asked:
            if plan.depth != observation.depth:
                plan = self._bound(observation, plan)
            elif not observation.depth_age:
                self._switch_rate.start(observation.batch_size)
            if plan.depth == asked.depth and not plan.probe:
                self._chosen = plan.depth
        if not plan.probe:
            self._last_good = plan.depth
        return plan

    def learn(self, outcome: Outcome, probed_from: int | None = None) -> None:
        """
        Measure what a round did, and tell the policy.

        Args:
            outcome: What the round did.

            probed_from: The depth in force, if the round was a probe of another; else None.

        Raises:
            KeyboardInterrupt: Somebody wants the process to stop.
        """
        self._evidence.add(outcome, probed_from)
        self._calls.learn(outcome)

    def summary(self, round_index: int) -> dict[str, Any]:
        """
        Give what is in force, as plain JSON types.

        Args:
            round_index: Index of the round.

        Returns:
            Whether the error budget is exhausted, and `Evidence.summary`.
        """
        return {
            "error_budget_exhausted": self.exhausted,
            **self._evidence.summary(round_index),
        }

    def _protect(self, observation: Observation, plan: Plan) -> Plan:
        """
        Make a speculative round plain where speculation has failed.
        """
        depth, round_index = observation.depth, observation.round
        batch_size = observation.batch_size
        if self._evidence.has_collapsed:
            # A retry is a probe, so plain has to be in force before there can be one.
            if depth == 0 and self._evidence.allows_retry(round_index, batch_size):
                return self._retry
            return self._hold(HELD_WATCHDOG, 0)
        if not plan.probe and self._evidence.is_worse(plan.depth, batch_size, round_index):
            # At the edge of a bucket this may come and go with the batch size, so that it counts
            # as a change and the way back has to be paid for.
            self._chosen = 0
            if depth:
                self._switch_rate.take(round_index, batch_size)
            return self._hold(HELD_NEVER_WORSE, 0)
        return plan

    def _bound(self, observation: Observation, plan: Plan) -> Plan:
        """
        Hold a change of depth that comes too soon, too often or for too little.
        """
        depth, depth_age = observation.depth, observation.depth_age
        if plan.probe:
            if not self._evidence.allows_probe:
                return self._hold(HELD_EXPLORATION, depth)
            if self._may_probe(observation.round):
                return plan
            plan = replace(plan, probe=False)
        gain = plan.gain
        if 0 < depth_age < self._min_dwell:
            return self._hold(HELD_DWELL, depth)
        if gain is not None and gain < self._dead_band:
            return self._hold(HELD_DEAD_BAND, depth)
        if not depth_age:
            self._switch_rate.start(observation.batch_size)
        elif plan.depth != self._chosen and not self._switch_rate.allows(
            observation.round, observation.batch_size
        ):
            return self._hold(HELD_SWITCH_RATE, depth)
        return plan

    def _may_probe(self, round_index: int) -> bool:
        follows = round_index == self._probe_round + 1
        self._probe_rounds = self._probe_rounds + 1 if follows else 1
        if self._probe_rounds > PROBE_ROUNDS:
            return False
        self._probe_round = round_index
        return True

    def _hold(self, reason: str, depth: int) -> Plan:
        self._counters.guard_holds[reason] += 1
        return self._held[reason][depth]
