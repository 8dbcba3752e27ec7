"""
What a scenario is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sglang_dynspec.simulator.drafts import DraftQuality
from sglang_dynspec.simulator.levels import MakeLevels, level_one
from sglang_dynspec.simulator.load import Path, Rollouts
from sglang_dynspec.simulator.server import SyntheticServer

#: Batch size of each round, given how many rounds and what decides what is random.
MakePath = Callable[[int, np.random.Generator], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """
    A moment from which a policy ought to turn speculation off, or on.

    Attributes:
        at: Round at which the change begins, warm-up included.

        turns: Which of the two.

        within: Rounds a policy may take, from the round at which it is due: the first from which
            the better side is ahead by 5 % for good.
    """

    at: int
    turns: Literal["off", "on"]
    within: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """
    A server, its drafts and its load.

    Attributes:
        name: What to call it.

        summary: What is special about it, in a line.

        server: What a round costs.

        drafts: True acceptance.

        load: The batch size of each round; or waves of requests.

        levels: The level of acceptance in each round.

        slowdown: The factor in each round on what rounds cost.

        depths: Candidate depths.

        warm_up: Rounds at the start that count for nothing but transitions.

        horizon: Rounds after the warm-up.

        stationary: Whether nothing changes but by chance: neither load nor acceptance.

        expected: Depth of the oracle throughout, where it is one; None where it changes.

        transitions: Moments from which speculation ought to be off, or on.

        prompt: Tokens of context of a new request.

        output: Tokens a request asks for; a new request takes its place when it has them. Requests
            of `Rollouts` have lengths of their own.

        noise: Standard deviation of the logarithm of a period's noise.

        outliers: Share of rounds that take 2 to 6 times as long.

        prefills: Share of rounds that follow a prefill, so that their period is None.

        cold: Seconds that the first round of each depth at each batch size takes more, once with an
            upkeep pass and once without: it compiles kernels. Part of its noise, as nobody can
            avoid it: what a policy makes of it is what counts.
    """

    name: str
    summary: str
    server: SyntheticServer
    drafts: DraftQuality
    load: MakePath | Rollouts
    levels: MakeLevels = field(default=level_one)
    slowdown: MakeLevels = field(default=level_one)
    depths: tuple[int, ...] = (0, 1, 3)
    warm_up: int = 512
    horizon: int = 2048
    stationary: bool = False
    expected: int | None = None
    transitions: tuple[Transition, ...] = ()
    prompt: int = 128
    output: int = 256
    noise: float = 0.02
    outliers: float = 0.003
    prefills: float = 0.05
    cold: float = 0.0

    @property
    def rounds(self) -> int:
        """
        Rounds altogether.
        """
        return self.warm_up + self.horizon
