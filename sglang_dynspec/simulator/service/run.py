"""
Running a policy through a world, behind the same `Rounds` and guard that serve; or a fixed depth.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sglang_dynspec.config import Config
from sglang_dynspec.loading.plugins import build_policy
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits, Policy
from sglang_dynspec.rounds.driving import KeptLog, drive
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec.simulator.service.engine import ServiceEngine
from sglang_dynspec.simulator.service.world import World


@dataclass(slots=True, kw_only=True)
class WorldRun:
    """
    What a policy, or a fixed depth, did in a world.

    Attributes:
        world: The world.

        engine: The engine, afterwards: its log has a value for each decode round.

        plans: Plan of each round, after the guard.

        policy_errors: How often the policy failed.
    """

    world: World
    engine: ServiceEngine
    plans: list[Plan]
    policy_errors: int = 0


def run_world(
    policy: Policy | type[Policy] | str,
    world: World,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    lag: int = 1,
    **guard: Any,
) -> WorldRun:
    """
    Run a policy through a world.

    Args:
        policy: A policy that was never configured, its class, or its name.

        world: The world.

        seed: Decides arrivals, requests, drafts and noise, and seeds the policy's limits.

        options: Options of the policy, where `policy` is a class or a name.

        lag: Rounds planned before an outcome arrives: 1 as under SGLang's overlap loop, 0 as
            without it.

        **guard: Fields of `Config` that bound the policy, for example ``min_dwell=1``.

    Returns:
        What it did. The same arguments give the same result, bit by bit.

    Raises:
        ConfigError: The policy refuses its options or limits.
    """
    engine = ServiceEngine(world, seed=seed)
    limits = Limits(depths=world.depths, max_running_requests=world.max_running, seed=seed)
    cycle = Rounds(
        policy=build_policy(policy, options or {}, limits),
        config=Config(depths=world.depths, seed=seed, **guard).resolve(world.depths[-1]),
        log=KeptLog(),
        clock=lambda: engine.now,
    )
    plans: list[Plan] = []

    def observations() -> Iterator[Observation]:
        while engine.advance():
            yield engine.observation(len(plans), depth=cycle.depth, depth_age=cycle.depth_age)

    def run_round(_observation: Observation, plan: Plan) -> Outcome:
        plans.append(plan)
        return engine.decode(plan.depth)

    drive(cycle, observations(), run_round, lag=lag)
    return WorldRun(
        world=world,
        engine=engine,
        plans=plans,
        policy_errors=cycle.counters.policy_errors,
    )


def run_fixed(depth: int, world: World, *, seed: int = 0) -> WorldRun:
    """
    Run every round of a world at one depth: no policy, and no guard.

    Args:
        depth: A candidate depth.

        world: The world.

        seed: As for `run_world`.

    Returns:
        What that did.
    """
    engine = ServiceEngine(world, seed=seed)
    plan = Plan(depth=depth)
    plans: list[Plan] = []
    while engine.advance():
        plans.append(plan)
        engine.decode(depth)
    return WorldRun(world=world, engine=engine, plans=plans)
