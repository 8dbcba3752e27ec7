"""
The scenarios that policies are measured on, by name.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from sglang_dynspec._sources import closest
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.simulator.drafts import (
    CHAT,
    DEEP,
    FAIR,
    GOOD,
    HALF,
    MIXED,
    POOR,
    SHORT_SIGHTED,
)
from sglang_dynspec.simulator.levels import phases, wave, wobble
from sglang_dynspec.simulator.load import Path, Rollouts, bursts, on_off, ramp, steady, wandering
from sglang_dynspec.simulator.scenario import MakePath, Scenario, Transition
from sglang_dynspec.simulator.server import H200_8B, NVLINK_MOE, PCIE_1T, SMALL_GPU

#: Largest depth 7, as SGLang's adaptive option tries at small batches.
DEEPER: Final = (0, 1, 3, 5, 7)


def _steady(batch_size: int) -> MakePath:
    return lambda rounds, rng: steady(batch_size, rounds)  # noqa: ARG005


def _ramp(low: int, high: int, *, at: int, over: int) -> MakePath:
    return lambda rounds, rng: ramp(low, high, at=at, over=over, rounds=rounds)  # noqa: ARG005


def _on_off(low: int, high: int, *, period: int) -> MakePath:
    return lambda rounds, rng: on_off(low, high, period=period, rounds=rounds)  # noqa: ARG005


def _bursts(low: int, high: int, *, every: int, length: int) -> MakePath:
    def make(rounds: int, rng: np.random.Generator) -> Path:
        return bursts(low, high, every=every, length=length, rounds=rounds, rng=rng)

    return make


def _wandering(low: int, high: int) -> MakePath:
    return lambda rounds, rng: wandering(low, high, rounds=rounds, rng=rng)


def _fixed(name: str, summary: str, **fields: Any) -> Scenario:
    """
    Describe a scenario whose load and acceptance stay as they are.
    """
    batch_size = int(name.rsplit("-", 1)[-1])
    return Scenario(name=name, summary=summary, load=_steady(batch_size), stationary=True, **fields)


def _steady_scenarios() -> tuple[Scenario, ...]:
    h200, moe, small, pcie = H200_8B, NVLINK_MOE, SMALL_GPU, PCIE_1T
    return (
        _fixed("h200-chat-1", "one request", server=h200, drafts=CHAT, expected=3),
        _fixed("h200-chat-32", "memory-bound", server=h200, drafts=CHAT, expected=3),
        _fixed("h200-chat-64", "depths 1 and 3 tie", server=h200, drafts=CHAT),
        _fixed("h200-chat-128", "past the knee", server=h200, drafts=CHAT, expected=1),
        _fixed("h200-chat-256", "depth 1 gains 5 %", server=h200, drafts=CHAT, expected=1),
        _fixed("h200-fair-256", "depth 1 loses 8 %", server=h200, drafts=FAIR, expected=0),
        _fixed("h200-poor-8", "depth 3 gains 10 %", server=h200, drafts=POOR, expected=3),
        _fixed("h200-poor-128", "depth 1 loses 5 %", server=h200, drafts=POOR, expected=0),
        _fixed("h200-mixed-32", "code beside chat", server=h200, drafts=MIXED, expected=3),
        _fixed(
            "h200-deep-8",
            "deep drafts that are right",
            server=h200,
            drafts=DEEP,
            depths=DEEPER,
            expected=7,
        ),
        _fixed(
            "h200-long-16",
            "16k tokens of context each",
            server=h200,
            drafts=CHAT,
            prompt=16384,
            output=1024,
            expected=3,
        ),
        _fixed(
            "h200-prefills-96",
            "every second round follows a prefill",
            server=h200,
            drafts=CHAT,
            prefills=0.5,
            expected=1,
        ),
        _fixed(
            "h200-noisy-128",
            "a tenth of noise, many outliers",
            server=h200,
            drafts=CHAT,
            noise=0.1,
            outliers=0.02,
            expected=1,
        ),
        _fixed("moe-chat-4", "drafts cost experts", server=moe, drafts=CHAT, expected=1),
        _fixed("moe-fair-4", "depth 1 loses 1 %", server=moe, drafts=FAIR, expected=0),
        _fixed("moe-poor-4", "off at a small batch", server=moe, drafts=POOR, expected=0),
        _fixed("moe-chat-64", "all experts are read", server=moe, drafts=CHAT, expected=3),
        _fixed("small-chat-4", "below the knee", server=small, drafts=CHAT, expected=3),
        _fixed("small-good-16", "at the knee", server=small, drafts=GOOD, expected=1),
        _fixed("small-chat-48", "above the knee", server=small, drafts=CHAT, expected=0),
        _fixed("pcie-1", "one request", server=pcie, drafts=HALF, expected=0),
        _fixed("pcie-10", "the link is the bound", server=pcie, drafts=HALF, expected=0),
        _fixed("pcie-64", "and more so", server=pcie, drafts=HALF, expected=0),
    )


def _changing_scenarios() -> tuple[Scenario, ...]:
    return (
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
            load=_steady(32),
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
            load=_steady(1),
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
            load=_steady(96),
            levels=wave(0.3, 1.0, period=1600),
        ),
        Scenario(
            name="wobble",
            summary="acceptance wanders by a tenth as topics come and go",
            server=H200_8B,
            drafts=GOOD,
            load=_steady(128),
            levels=wobble(0.75, 0.1, memory=60, seed=7),
        ),
        Scenario(
            name="throttle",
            summary="the GPU slows down by 40 %, and recovers",
            server=H200_8B,
            drafts=FAIR,
            load=_steady(96),
            pace=phases((0, 1.0), (1000, 1.4), (1800, 1.0)),
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
    every = (*_steady_scenarios(), *_changing_scenarios())
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
