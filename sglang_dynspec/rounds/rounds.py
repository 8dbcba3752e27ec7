"""
One decode round, top to bottom: observe, decide, plan, (run), outcome, learn.

The engine's side observes and runs; what happens in between is here. Under SGLang's overlap loop
round N + 1 is planned before the outcome of round N arrives, so the engine's side keeps observation
and plan with the round that it runs, and hands them back with the outcome. A round without one, as
of requests that are all gone, is not heard of again.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

import pluggy

from sglang_dynspec.account.counters import Counters
from sglang_dynspec.config import ResolvedConfig
from sglang_dynspec.guard import Guard
from sglang_dynspec.log import structured
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Policy
from sglang_dynspec.rounds.decision import describe_decision
from sglang_dynspec.rounds.observers import Observers
from sglang_dynspec.rounds.recorder import Recorder
from sglang_dynspec.rounds.warm_up import WarmUp
from sglang_dynspec.trace import TraceWriter

#: A depth was forced from outside.
FORCED = "forced"

#: The batch holds a request whose sampling speculation would only approximate.
EXACT_SAMPLING = "exact_sampling"

_EXACT_SAMPLING_PLAN = Plan(depth=0, reason=EXACT_SAMPLING)


class Rounds:
    """
    Plans every decode round of a server and accounts for it.

    Neither `plan` nor `learn` raises, whatever a policy, an observer or the trace's disk does. The
    exception is KeyboardInterrupt, which passes.

    Args:
        policy: The policy, configured.

        config: The configuration, which has the candidate depths.

        trace: Where to record rounds.

        hooks: The plugin manager whose observers are told. They have to be registered by now.

        log: Logger to write through; ours by default.

        clock: Gives seconds; measures the policy.

    Attributes:
        depth: The depth in force: of the round planned last, probes aside; 0 before the first.

        depth_age: Rounds planned since that depth came into force, probes included.

        round: Index of the next round.

        forced: The depth every round is forced to, or None.

        warm_up: Whether rounds warm the server up, and with what plans.

        counters: What has happened so far.
    """

    __slots__ = (
        "_exact_sampling",
        "_forced_plans",
        "_guard",
        "_last_plan",
        "_log",
        "_observers",
        "_policy",
        "_probing",
        "_recorder",
        "counters",
        "depth",
        "depth_age",
        "forced",
        "round",
        "warm_up",
    )

    def __init__(
        self,
        *,
        policy: Policy,
        config: ResolvedConfig,
        trace: TraceWriter | None = None,
        hooks: pluggy.PluginManager | None = None,
        log: logging.Logger | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        depths = config.depths
        self.counters = Counters(depths)
        self.depth = 0
        self.depth_age = 0
        self.round = 0
        self.forced: int | None = None
        self._log = structured(log, "sglang_dynspec.rounds")
        self._policy = policy
        self._guard = Guard(policy, config=config, counters=self.counters, log=log, clock=clock)
        self._observers = Observers(hooks, counters=self.counters, log=self._log)
        self._recorder = Recorder(trace, counters=self.counters, log=self._log)
        self._exact_sampling = config.exact_sampling
        self._forced_plans = {depth: Plan(depth=depth, reason=FORCED) for depth in depths}
        self.warm_up = WarmUp(depths)
        self._probing = False
        self._last_plan: Plan | None = None

    def plan(self, observation: Observation) -> Plan:
        """
        Decide the round about to run and, unless it is a probe, put its depth in force.

        Exact sampling comes first: it is a promise about outputs. Then come warm-up, a forced
        depth, and the policy behind its guard.

        Args:
            observation: The state of the batch and the server, with `depth`, `depth_age` and
                `round` as they are here.

        Returns:
            The plan of round `round`, whose depth is a candidate.
        """
        if observation.plain_requests and self._exact_sampling:
            plan = _EXACT_SAMPLING_PLAN
            self.counters.exact_sampling_rounds += 1
        elif self.warm_up.on:
            plan = self.warm_up.plan(self.round)
            self.round += 1
            return plan
        elif self.forced is not None:
            plan = self._forced_plans[self.forced]
        else:
            plan = self._guard.decide(observation)
        self._last_plan = plan
        if tell := self._observers.before_round:
            self._observers.tell("dynspec_before_round", tell, observation=observation, plan=plan)
        self._put_in_force(plan)
        return plan

    def learn(self, observation: Observation, plan: Plan, outcome: Outcome) -> None:
        """
        Account for a round that has run, and let the policy learn from it.

        Args:
            observation: What `plan` was given for the round.

            plan: What it returned.

            outcome: What the round did.
        """
        if self.warm_up.made(plan):
            return
        self.counters.count(outcome)
        if outcome.depth != plan.depth:
            self.counters.note(
                "mismatches",
                self._log.error,
                "plan_disobeyed",
                round=outcome.round,
                planned=plan.depth,
                ran=outcome.depth,
                note="later ones are only counted",
            )
        depth = observation.depth
        self._guard.learn(outcome, depth if plan.probe and plan.depth != depth else None)
        self._recorder.write(observation, plan, outcome)
        if tell := self._observers.after_round:
            self._observers.tell("dynspec_after_round", tell, outcome=outcome)

    def force(self, depth: int | None) -> None:
        """
        Force every round from the next one on to a depth, past policy and guard.

        Args:
            depth: A candidate depth, or None to hand the decision back.

        Raises:
            ValueError: The depth is not a candidate.
        """
        if depth is not None and (type(depth) is not int or depth not in self._forced_plans):
            candidates = ", ".join(map(str, self._forced_plans))
            raise ValueError(f"depth {depth!r} is not one of the candidates {candidates}")
        self.forced = depth

    def summary(self) -> dict[str, Any]:
        """
        Give the state and the counters as plain JSON types.

        Returns:
            The policy's class, the depth in force, its age, the forced depth, whether rounds warm
            the server up, the last decision (`describe_decision`), `Guard.summary` and
            `Counters.summary`.
        """
        return {
            "policy": type(self._policy).__name__,
            "depth": self.depth,
            "depth_age": self.depth_age,
            "forced": self.forced,
            "warming_up": self.warm_up.on,
            "decision": describe_decision(
                self._last_plan, self._guard.asked, tuple(self._forced_plans)
            ),
            **self._guard.summary(self.round),
            **self.counters.summary(),
        }

    def close(self) -> None:
        """
        Finish the trace. Does nothing the second time.
        """
        self._recorder.close()

    def _put_in_force(self, plan: Plan) -> None:
        old, new = self.depth, plan.depth
        first = self.depth_age == 0
        self.round += 1
        if new == old or plan.probe:
            self.depth_age += 1
            self._count_probe(probing=new != old)
            return
        self._probing = False
        self.depth = new
        self.depth_age = 1
        # No round served before the first, so it cannot be a switch.
        if not first:
            self.counters.switches += 1
            if tell := self._observers.depth_changed:
                self._observers.tell(
                    "dynspec_depth_changed", tell, old=old, new=new, reason=plan.reason
                )

    def _count_probe(self, *, probing: bool) -> None:
        if probing:
            self.counters.probe_rounds += 1
            if not self._probing:
                self.counters.probes += 1
        self._probing = probing
