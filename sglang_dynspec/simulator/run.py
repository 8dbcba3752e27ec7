"""
Running a policy through a scenario, behind the same `Rounds` and guard that serve.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.account.counters import Counters
from sglang_dynspec.config import Config
from sglang_dynspec.loading.plugins import build_policy
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits, Policy
from sglang_dynspec.rounds.driving import KeptLog, drive
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec.simulator.engine import SyntheticEngine
from sglang_dynspec.simulator.scenario import Scenario


@dataclass(slots=True, kw_only=True)
class ScenarioRun:
    """
    What a policy did in a scenario, round by round.

    Attributes:
        scenario: The scenario.

        policy: The policy, as it is afterwards.

        counters: The counters of `Rounds`.

        plans: Plan of each round, after the guard.

        batch_sizes: Batch size of each round; shape (rounds,), as all that follow.

        padded_batch_sizes: The batch size it ran at.

        seq_len_sums: Tokens of context of its requests.

        kind_counts: Requests of each row of the table of survival; shape (rounds, 2 x kinds).

        seconds: Its time without noise, upkeep and re-entry included.

        periods: Its time with noise, whether the policy was told or not.

        tokens: Tokens it delivered.
    """

    scenario: Scenario
    policy: Policy
    counters: Counters
    plans: list[Plan]
    batch_sizes: NDArray[np.int64]
    padded_batch_sizes: NDArray[np.int64]
    seq_len_sums: NDArray[np.int64]
    kind_counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    periods: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @property
    def depths(self) -> NDArray[np.int64]:
        """
        Depth of each round.
        """
        return np.array([plan.depth for plan in self.plans])

    @property
    def probes(self) -> NDArray[np.bool_]:
        """
        Whether each round was a probe.
        """
        return np.array([plan.probe for plan in self.plans])


def run_scenario(
    policy: Policy | type[Policy] | str,
    scenario: Scenario,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    lag: int = 1,
    rounds: int | None = None,
    **guard: Any,
) -> ScenarioRun:
    """
    Run a policy through a scenario.

    Args:
        policy: A policy that was never configured, its class, or its name.

        scenario: The scenario.

        seed: Decides load, drafts and noise, and seeds the policy's limits.

        options: Options of the policy, where `policy` is a class or a name.

        lag: Rounds planned before an outcome arrives: 1 as under SGLang's overlap loop, 0 as
            without it.

        rounds: Rounds to run; by default the scenario's warm-up and horizon.

        **guard: Fields of `Config` that bound the policy, for example ``min_dwell=1``.

    Returns:
        What the policy did. The same arguments give the same result, bit by bit.

    Raises:
        ConfigError: The policy refuses its options or limits.
    """
    total = scenario.rounds if rounds is None else rounds
    depths = scenario.depths
    engine = SyntheticEngine(scenario, seed=seed, rounds=total)
    limits = Limits(depths=depths, max_running_requests=256, seed=seed)
    built = build_policy(policy, options or {}, limits)
    cycle = Rounds(
        policy=built,
        config=Config(depths=depths, seed=seed, **guard).resolve(depths[-1]),
        log=KeptLog(),
        clock=lambda: engine.now,
    )
    plans: list[Plan] = []

    def observations() -> Iterator[Observation]:
        for index in range(total):
            yield engine.observe(index, depth=cycle.depth, depth_age=cycle.depth_age)

    def run_round(observation: Observation, plan: Plan) -> Outcome:
        plans.append(plan)
        return engine.run(observation, plan.depth)

    drive(cycle, observations(), run_round, lag=lag)
    sizes, padded_sizes, contexts = np.array(engine.sizes).T
    seconds, periods = np.array(engine.times).T
    return ScenarioRun(
        scenario=scenario,
        policy=built,
        counters=cycle.counters,
        plans=plans,
        batch_sizes=sizes,
        padded_batch_sizes=padded_sizes,
        seq_len_sums=contexts,
        kind_counts=np.array(engine.kind_counts),
        seconds=seconds,
        periods=periods,
        tokens=np.array(engine.tokens),
    )
