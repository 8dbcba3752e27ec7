"""
What is replayed: policies, the baselines beside them, and suites of scenarios.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sglang_dynspec.simulator import scenarios

#: The guard as good as gone: for baselines that stand for a server without it.
UNGUARDED: Final[Mapping[str, Any]] = {
    "min_dwell": 0,
    "dead_band": 0.0,
    "switches_per_1000": 1000,
    "exploration_budget": 1.0,
    "never_worse": False,
    "watchdog": False,
}

#: Fields of `Config` that bound a policy, and so may differ between entries.
BOUNDS: Final = (*UNGUARDED, "error_budget", "slow_policy_us")

#: Name of the entry that grid search fills in.
TUNED: Final = "threshold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    A policy in a replay.

    Attributes:
        name: What to call it.

        policy: Its name, or ``package.module:Class``.

        options: Its options.

        guard: Fields of `Config` that bound it.
    """

    name: str
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """
    What to replay.

    Attributes:
        name: What to call it.

        scenarios: Names of the scenarios.

        seeds: How many seeds, from 0 up.
    """

    name: str
    scenarios: tuple[str, ...]
    seeds: int


#: Few enough for a test, and at least one of each sort.
_SMALL: Final = (
    "h200-chat-1",
    "h200-chat-32",
    "h200-chat-128",
    "moe-poor-4",
    "small-chat-48",
    "pcie-1",
    "ramp",
    "drain",
    "collapse",
)


def suites() -> dict[str, Suite]:
    """
    List the suites.

    Returns:
        Suites by name: ``standard`` has every scenario, ``small`` one of each sort.
    """
    every = (
        Suite(name="standard", scenarios=tuple(scenarios()), seeds=2),
        Suite(name="small", scenarios=_SMALL, seeds=1),
    )
    return {suite.name: suite for suite in every}


def baselines() -> list[Entry]:
    """
    List what a policy is compared with, the tuned `TUNED` aside.

    Returns:
        SGLang's own policy, every fixed depth, and ``bandit``. The first two stand for servers
        without the guard.
    """
    return [
        Entry(name="stock", policy="stock", guard=UNGUARDED),
        Entry(name="plain", policy="never", guard=UNGUARDED),
        Entry(name="depth 1", policy="always", options={"depth": 1}, guard=UNGUARDED),
        Entry(name="depth 3", policy="always", options={"depth": 3}, guard=UNGUARDED),
        Entry(name="deepest", policy="always", guard=UNGUARDED),
        Entry(name="bandit", policy="bandit"),
    ]


def threshold_grid() -> list[Entry]:
    """
    List the settings of ``threshold`` that grid search tries.

    Returns:
        Every batch size of the grid with every depth of it, behind the guard.
    """
    return [
        Entry(
            name=f"threshold {batch_size} depth {depth}",
            policy="threshold",
            options={"batch_size": batch_size, "depth": depth},
        )
        for batch_size in (4, 16, 32, 64, 128, 256)
        for depth in (1, 3)
    ]
