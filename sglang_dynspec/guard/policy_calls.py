"""
Calling a policy: what it may get wrong, and how long it may take.
"""

import logging
import math
from collections.abc import Callable

from sglang_dynspec.account.counters import Counters
from sglang_dynspec.config import ResolvedConfig
from sglang_dynspec.errors import PolicyError
from sglang_dynspec.log import describe, structured
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Policy

_MICROSECONDS = 1e6


class PolicyCalls:
    """
    Calls a policy, so that nothing it does escapes but a KeyboardInterrupt.

    A policy that fails more than ``error_budget`` times is not called again. Faults and slowness
    are logged the first time and only counted after that.

    Args:
        policy: The policy, configured.

        config: Holds the error budget, the time a round may take and the candidate depths.

        counters: Where faults are counted.

        log: Logger to write through; ours by default.

        clock: Gives seconds; measures the policy.

    Attributes:
        exhausted: Whether the error budget is used up.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_counters",
        "_depths",
        "_limit",
        "_log",
        "_policy",
        "_spent",
        "exhausted",
    )

    def __init__(
        self,
        policy: Policy,
        *,
        config: ResolvedConfig,
        counters: Counters,
        log: logging.Logger | None,
        clock: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._config = config
        self._depths = config.depths
        self._counters = counters
        self._log = structured(log, "sglang_dynspec.guard")
        self._clock = clock
        self._limit = config.slow_policy_us / _MICROSECONDS
        self._spent = 0.0
        self.exhausted = False

    def decide(self, observation: Observation) -> Plan | None:
        """
        Ask the policy for a plan.

        Args:
            observation: What the policy sees.

        Returns:
            A plan whose depth is a candidate, or None where the policy gave nothing usable.

        Raises:
            KeyboardInterrupt: Somebody wants the process to stop.
        """
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
            return None
        self._spend(0.0, self._clock() - started)
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

    def _check(self, plan: object) -> None:
        if not isinstance(plan, Plan):
            raise PolicyError(f"decide() returned {plan!r:.80}, not a Plan")
        depth, gain = plan.depth, plan.gain
        # bool is an int, and numpy's integers compare equal to ours but do not serialize.
        if type(depth) is not int:
            raise PolicyError(f"Plan.depth is {depth!r:.80}, not an int")
        if depth not in self._depths:
            candidates = ", ".join(map(str, self._depths))
            raise PolicyError(f"Plan.depth is {depth}, not one of the candidates {candidates}")
        if type(plan.reason) is not str:
            raise PolicyError(f"Plan.reason is {plan.reason!r:.80}, not a str")
        if gain is not None and not (type(gain) in (float, int) and math.isfinite(gain)):
            raise PolicyError(f"Plan.gain is {gain!r:.80}, not a finite number or None")
        if type(plan.probe) is not bool:
            raise PolicyError(f"Plan.probe is {plan.probe!r:.80}, not a bool")
        if type(plan.blocked) is not str:
            raise PolicyError(f"Plan.blocked is {plan.blocked!r:.80}, not a str")

    def _spend(self, before: float, seconds: float) -> None:
        # One round's decide and learn count together, and each round at most once.
        self._spent = before + seconds
        if before <= self._limit < self._spent:
            self._counters.note(
                "slow_policies",
                self._log.warning,
                "slow_policy_noticed",
                policy=type(self._policy).__name__,
                microseconds=round(self._spent * _MICROSECONDS),
                limit=self._config.slow_policy_us,
                note="later ones are only counted",
            )

    def _fault(self, method: str, error: BaseException) -> None:
        budget = self._config.error_budget
        self._counters.note(
            "policy_errors",
            self._log.error,
            "policy_failed",
            policy=type(self._policy).__name__,
            method=method,
            error=describe(error),
            error_budget=budget,
            note="the last good depth stays in force; later faults are only counted",
        )
        faults = self._counters.policy_errors
        if faults > budget:
            self.exhausted = True
            self._log.error(
                "error_budget_exhausted",
                policy=type(self._policy).__name__,
                faults=faults,
                error_budget=budget,
                note="every round is plain from now on",
            )
