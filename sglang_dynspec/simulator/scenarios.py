"""
The scenarios that policies are measured on, by name.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import numpy as np

from sglang_dynspec.config.sources import closest
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.simulator.drafts import CHAT, FAIR, GOOD, SHORT_SIGHTED
from sglang_dynspec.simulator.levels import phases, wave, wobble
from sglang_dynspec.simulator.load import Path, Rollouts, bursts, on_off, ramp, stairs, wandering
from sglang_dynspec.simulator.scenario import MakePath, Scenario, Transition
from sglang_dynspec.simulator.server import H200_8B, SMALL_GPU
from sglang_dynspec.simulator.steady_scenarios import constant, steady_scenarios


def _ramp(low: int, high: int, *, at: int, over: int) -> MakePath:
    return lambda rounds, rng: ramp(low, high, at=at, over=over, rounds=rounds)  # noqa: ARG005


def _stairs(*sizes: int, each: int) -> MakePath:
    return lambda rounds, rng: stairs(sizes, each, rounds=rounds)  # noqa: ARG005


def _on_off(low: int, high: int, *, period: int) -> MakePath:
    return lambda rounds, rng: on_off(low, high, period=period, rounds=rounds)  # noqa: ARG005


def _bursts(low: int, high: int, *, every: int, length: int) -> MakePath:
    def make(rounds: int, rng: np.random.Generator) -> Path:
        return bursts(low, high, every=every, length=length, rounds=rounds, rng=rng)

    return make


def _wandering(low: int, high: int) -> MakePath:
    return lambda rounds, rng: wandering(low, high, rounds=rounds, rng=rng)


def _changing_scenarios() -> tuple[Scenario, ...]:
    return (
        Scenario(
            name="cold-start",
            summary="1 to 256 requests; first rounds compile kernels, and a hiccup",
            server=H200_8B,
            drafts=CHAT,
            load=_stairs(1, 8, 32, 64, 128, 256, each=400),
            cold=0.16,
            slowdown=phases((0, 1.0), (1020, 1.8), (1045, 1.0)),
            warm_up=100,
            horizon=2300,
        ),
        Scenario(
            name="ramp",
            summary="8 to 256 requests in 256 rounds",
            server=H200_8B,
            drafts=FAIR,
            load=_ramp(8, 256, at=1024, over=256),
            transitions=(Transition(at=1024, turns="off", within=16),),
        ),
        Scenario(
            name="jump",
            summary="2 to 48 requests at once, to sizes never seen before",
            server=SMALL_GPU,
            drafts=CHAT,
            load=_ramp(2, 48, at=1024, over=0),
            transitions=(Transition(at=1024, turns="off", within=16),),
        ),
        Scenario(
            name="drain",
            summary="48 to 2 requests in 200 rounds, to sizes never seen before",
            server=SMALL_GPU,
            drafts=CHAT,
            load=_ramp(48, 2, at=1024, over=200),
            transitions=(Transition(at=1024, turns="on", within=64),),
        ),
        Scenario(
            name="on-off",
            summary="4 requests and 48 in turn, 400 rounds each",
            server=SMALL_GPU,
            drafts=CHAT,
            load=_on_off(4, 48, period=400),
            transitions=tuple(
                Transition(at=at, turns="off", within=16)
                if at // 400 % 2
                else Transition(at=at, turns="on", within=64)
                for at in range(800, 2560, 400)
            ),
        ),
        Scenario(
            name="burst",
            summary="16 requests, 256 in bursts of 150 rounds",
            server=H200_8B,
            drafts=FAIR,
            load=_bursts(16, 256, every=400, length=150),
        ),
        Scenario(
            name="wander",
            summary="arrivals and departures between 16 and 112 requests",
            server=H200_8B,
            drafts=CHAT,
            load=_wandering(16, 112),
        ),
        Scenario(
            name="rollouts",
            summary="waves of 256 agentic rollouts with a long tail",
            server=H200_8B,
            drafts=FAIR,
            load=Rollouts(batch_size=256, tokens=300, spread=0.8),
        ),
        Scenario(
            name="rollouts-small",
            summary="waves of 48 rollouts on a small GPU",
            server=SMALL_GPU,
            drafts=CHAT,
            load=Rollouts(batch_size=48, tokens=300, spread=0.8),
        ),
        Scenario(
            name="collapse",
            summary="acceptance goes to zero, and comes back 800 rounds later",
            server=H200_8B,
            drafts=CHAT,
            load=constant(32),
            levels=phases((0, 1.0), (1000, 0.02), (1800, 1.0)),
            transitions=(
                Transition(at=1000, turns="off", within=32),
                Transition(at=1800, turns="on", within=512),
            ),
        ),
        Scenario(
            name="collapse-1",
            summary="the same with one request",
            server=H200_8B,
            drafts=CHAT,
            load=constant(1),
            levels=phases((0, 1.0), (1000, 0.02), (1800, 1.0)),
            transitions=(
                Transition(at=1000, turns="off", within=32),
                Transition(at=1800, turns="on", within=512),
            ),
        ),
        Scenario(
            name="drift",
            summary="acceptance halves and recovers, slowly",
            server=H200_8B,
            drafts=GOOD,
            load=constant(96),
            levels=wave(0.3, 1.0, period=1600),
        ),
        Scenario(
            name="wobble",
            summary="acceptance wanders by a tenth as topics come and go",
            server=H200_8B,
            drafts=GOOD,
            load=constant(128),
            levels=wobble(0.75, 0.1, memory=60, seed=7),
        ),
        Scenario(
            name="throttle",
            summary="the GPU slows down by 40 %, and recovers",
            server=H200_8B,
            drafts=FAIR,
            load=constant(96),
            slowdown=phases((0, 1.0), (1000, 1.4), (1800, 1.0)),
        ),
        Scenario(
            name="length",
            summary="waves of rollouts whose drafts fail beyond 4096 tokens",
            server=SMALL_GPU,
            drafts=SHORT_SIGHTED,
            load=Rollouts(batch_size=8, tokens=1500, spread=0.5),
            prompt=3072,
        ),
    )


@cache
def scenarios() -> Mapping[str, Scenario]:
    """
    List every scenario.

    Returns:
        Scenarios by name, steady ones first.
    """
    every = (*steady_scenarios(), *_changing_scenarios())
    return MappingProxyType({scenario.name: scenario for scenario in every})


def find_scenario(name: str) -> Scenario:
    """
    Find a scenario.

    Args:
        name: Its name.

    Returns:
        The scenario.

    Raises:
        ConfigError: There is none of that name.
    """
    found = scenarios().get(name)
    if found is None:
        raise ConfigError(
            expected="the name of a scenario",
            found=repr(name),
            remedy=closest(name, [*scenarios()]),
        )
    return found
