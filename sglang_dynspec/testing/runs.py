"""
Synthetic rounds for a policy, behind the real guard.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from sglang_dynspec.account.counters import Counters
from sglang_dynspec.config import Config
from sglang_dynspec.loading.plugins import build_policy
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits, Policy
from sglang_dynspec.rounds.driving import KeptLog, drive
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec.testing.drafts import Acceptance, Drafts

#: A batch size per round, or phases of (batch size, rounds).
BatchSizes = Iterable[int | tuple[int, int]]

#: Context length every synthetic request is given, in tokens.
_SEQ_LEN = 512

#: Stretches of equal rounds a repr shows.
_SHOWN = 24


@dataclass(slots=True, kw_only=True)
class PolicyRun:
    """
    What a policy did over synthetic rounds.

    Attributes:
        policy: The policy.

        batch_sizes: Batch size of each round.

        plans: Plan of each round, after the guard.

        outcomes: Outcome of each round.

        counters: The counters of `Rounds`.

        log: What was logged, a line each.
    """

    policy: Policy
    batch_sizes: list[int] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    counters: Counters
    log: list[str] = field(default_factory=list)

    @property
    def depths(self) -> list[int]:
        """
        Depth of each round.
        """
        return [plan.depth for plan in self.plans]

    @property
    def switches(self) -> int:
        """
        Rounds at another depth than the round before.
        """
        return self.counters.switches

    @property
    def tokens(self) -> int:
        """
        Tokens delivered.
        """
        return self.counters.tokens

    @property
    def faults(self) -> int:
        """
        Times the policy raised or returned no usable plan.
        """
        return self.counters.policy_errors

    def share(self, depth: int) -> float:
        """
        Get the share of rounds that ran at a depth.

        Args:
            depth: The depth.

        Returns:
            0.0 to 1.0.
        """
        return self.depths.count(depth) / len(self.plans) if self.plans else 0.0

    def __repr__(self) -> str:
        name = type(self.policy).__name__
        totals = (
            f"{len(self.plans)} rounds, {self.switches} switches, "
            f"{self.tokens} tokens, {self.faults} faults"
        )
        lines = [
            f"<PolicyRun of {name}: {totals}",
            *(f"  {line}" for line in itertools.islice(self._stretches(), _SHOWN + 1)),
        ]
        if len(lines) > _SHOWN + 1:
            lines[_SHOWN + 1] = "  ..."
        return "\n".join([*lines, *(f"  log: {line}" for line in self.log)]) + ">"

    def _stretches(self) -> Iterator[str]:
        start = 0
        rounds = zip(self.batch_sizes, self.plans, strict=True)
        for (size, plan), group in itertools.groupby(rounds):
            end = start + len(list(group))
            reason = f"  ({plan.reason})" if plan.reason else ""
            yield f"rounds {start:>5} to {end - 1:>5}: batch {size:>4}, depth {plan.depth}{reason}"
            start = end


class RunPolicy(Protocol):
    """
    The type of the fixture `policy_run`.
    """

    def __call__(  # noqa: D102  # documented at run_policy
        self,
        policy: Policy | type[Policy] | str,
        rounds: BatchSizes,
        *,
        options: Mapping[str, Any] | None = None,
        acceptance: Acceptance = 0.7,
        depths: tuple[int, ...] = (0, 1, 3),
        max_running_requests: int | None = None,
        period: Callable[[int, int], float] | None = None,
        lag: int = 1,
        seed: int = 0,
        **guard: Any,
    ) -> PolicyRun: ...


def run_policy(
    policy: Policy | type[Policy] | str,
    rounds: BatchSizes,
    *,
    options: Mapping[str, Any] | None = None,
    acceptance: Acceptance = 0.7,
    depths: tuple[int, ...] = (0, 1, 3),
    max_running_requests: int | None = None,
    period: Callable[[int, int], float] | None = None,
    lag: int = 1,
    seed: int = 0,
    **guard: Any,
) -> PolicyRun:
    """
    Run a policy over synthetic rounds, behind the same `Rounds` and guard that serve.

    Args:
        policy: A policy, its class, or its name.

        rounds: Batch sizes, one a round, or phases of (batch size, rounds); both may be mixed.

        options: Options of the policy, where `policy` is a class or a name.

        acceptance: How likely drafts are right.

        depths: Candidate depths.

        max_running_requests: The server's cap, as the policy learns it.

        period: Seconds a round takes, given its depth and batch size. None leaves periods unknown.

        lag: Rounds planned before an outcome arrives: 1 as under SGLang's overlap loop, 0 as
            without it.

        seed: Seeds which drafts are accepted, and the policy's limits.

        **guard: Fields of `Config` that bound the policy, for example ``min_dwell=1``.

    Returns:
        What the policy did.

    Raises:
        ConfigError: The policy refuses its options or limits.
    """
    limits = Limits(depths=depths, max_running_requests=max_running_requests, seed=seed)
    policy = build_policy(policy, options or {}, limits)
    config = Config(depths=depths, seed=seed, **guard).resolve(depths[-1])
    log = KeptLog()
    cycle = Rounds(policy=policy, config=config, log=log)
    run = PolicyRun(policy=policy, counters=cycle.counters, log=log.lines)
    drafts = Drafts(acceptance, seed)

    def observations() -> Iterator[Observation]:
        for batch_size in _each_round(rounds):
            yield Observation(
                batch_size=batch_size,
                padded_batch_size=batch_size,
                running=batch_size,
                waiting=0,
                seq_len_sum=batch_size * _SEQ_LEN,
                seq_len_max=_SEQ_LEN if batch_size else 0,
                kv_free=0.5,
                depths=depths,
                depth=cycle.depth,
                depth_age=cycle.depth_age,
                round=cycle.round,
            )

    def run_round(observation: Observation, plan: Plan) -> Outcome:
        batch_size = observation.batch_size
        accepted = drafts.accepted(plan.depth, batch_size, observation.round)
        outcome = Outcome(
            round=observation.round,
            depth=plan.depth,
            planned=plan.depth,
            batch_size=batch_size,
            accepted=accepted,
            tokens=batch_size + sum(accepted),
            period=period(plan.depth, batch_size) if period else None,
        )
        run.batch_sizes.append(batch_size)
        run.plans.append(plan)
        run.outcomes.append(outcome)
        return outcome

    drive(cycle, observations(), run_round, lag=lag)
    return run


@pytest.fixture
def policy_run() -> RunPolicy:
    """
    Run a policy over synthetic rounds: see `run_policy`.
    """
    return run_policy


def _each_round(rounds: BatchSizes) -> Iterator[int]:
    for entry in rounds:
        if isinstance(entry, int):
            yield entry
        else:
            batch_size, count = entry
            yield from itertools.repeat(batch_size, count)
