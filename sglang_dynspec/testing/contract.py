"""
What every policy has to satisfy, as a test class to derive from.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.loading.plugins import build_policy
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits, Policy
from sglang_dynspec.testing.runs import run_policy

#: Rounds each test runs.
_ROUNDS = 300

#: Batch sizes at the edges: a batch whose requests all just finished, and more than any server has.
_EXTREME_SIZES = (0, 1, 2, 100_000)


class PolicyContract:
    """
    Tests that any policy passes. Derive a test class and say which policy::

        class TestMine(PolicyContract):
            policy = MyPolicy
            options = {"batch_size": 8}

    Attributes:
        policy: The policy's class, or its name.

        options: Its options.

        depths: Candidate depths to test it with.
    """

    policy: ClassVar[type[Policy] | str]
    options: ClassVar[Mapping[str, Any]] = {}
    depths: ClassVar[tuple[int, ...]] = (0, 1, 3)

    def test_plans_candidates_for_any_observation(self) -> None:
        """
        Whatever it observes, `decide` returns a plan for one of the candidate depths.
        """
        policy = self._build(self.depths)
        for observation in _observations(self.depths, seed=1):
            _assert_candidate(policy.decide(observation), observation)

    def test_plans_candidates_when_there_is_one_depth_but_plain(self) -> None:
        """
        With a single depth to choose it plans that or plain, unless it refuses to be configured.
        """
        for depth in self.depths[1:]:
            depths = (0, depth)
            try:
                policy = self._build(depths)
            except ConfigError:
                continue
            for observation in _observations(depths, seed=2):
                _assert_candidate(policy.decide(observation), observation)

    def test_is_deterministic(self) -> None:
        """
        Two of it that observe and learn the same decide the same.
        """
        first, second = self._build(self.depths), self._build(self.depths)
        for observation in _observations(self.depths, seed=3):
            plan, other = first.decide(observation), second.decide(observation)
            assert plan == other, f"two equal policies disagree on {observation}: {plan}, {other}"
            outcome = _outcome(observation, plan.depth)
            first.learn(outcome)
            second.learn(outcome)

    def test_learns_from_outcomes_of_any_depth(self) -> None:
        """
        It takes outcomes of rounds it did not decide, late, empty and without a period.
        """
        policy = self._build(self.depths)
        draw = random.Random(4)  # noqa: S311  # reproducible, not secret
        for observation in _observations(self.depths, seed=4):
            policy.decide(observation)
            policy.learn(_outcome(observation, draw.choice(self.depths)))
            _assert_candidate(policy.decide(observation), observation)

    def test_serves_without_a_fault(self) -> None:
        """
        Behind the guard, over a load that rises and falls, it commits no fault.
        """
        load = [1, 4, 16, 64, 256, 64, 16, 4, 1]
        for lag in (0, 1):
            run = run_policy(
                type(self).policy,
                [(size, 25) for size in load],
                options=self.options,
                depths=self.depths,
                period=lambda depth, size: 0.01 + 0.001 * depth + 0.0001 * size,
                lag=lag,
            )
            assert run.faults == 0, repr(run)

    def _build(self, depths: tuple[int, ...]) -> Policy:
        # Through the class: a function-like attribute would be bound to the instance.
        return build_policy(type(self).policy, self.options, Limits(depths=depths, seed=0))


def _observations(depths: tuple[int, ...], *, seed: int) -> Iterator[Observation]:
    draw = random.Random(seed)  # noqa: S311  # reproducible, not secret
    for index in range(_ROUNDS):
        extreme = index < len(_EXTREME_SIZES)
        size = _EXTREME_SIZES[index] if extreme else int(2 ** draw.uniform(0, 10))
        longest = draw.choice((0, 1, draw.randrange(1, 5000), 1_000_000)) if size else 0
        yield Observation(
            batch_size=size,
            padded_batch_size=size + draw.choice((0, 0, 7)),
            running=size + draw.choice((0, 3)),
            waiting=draw.choice((0, 0, 1, 10_000)),
            seq_len_sum=size * longest,
            seq_len_max=longest,
            kv_free=draw.choice((0.0, 1.0, draw.random())),
            depths=depths,
            depth=draw.choice(depths),
            depth_age=draw.choice((0, 1, 10, 1_000_000)),
            round=index,
            plain_requests=min(size, draw.choice((0, 0, 1))),
        )


def _outcome(observation: Observation, depth: int) -> Outcome:
    draw = random.Random(observation.round)  # noqa: S311  # reproducible, not secret
    # Large batches need no more than a sample of their requests counted.
    counted = draw.choice((0, min(observation.batch_size, 64)))
    accepted = tuple(draw.randint(0, depth) for _ in range(counted)) if depth else ()
    return Outcome(
        round=observation.round,
        depth=depth,
        planned=depth,
        batch_size=counted,
        accepted=accepted,
        tokens=counted + sum(accepted),
        period=draw.choice((None, 1e-6, 0.02, 10.0)),
    )


def _assert_candidate(plan: object, observation: Observation) -> None:
    __tracebackhide__ = True
    assert isinstance(plan, Plan), f"decide() returned {plan!r}, not a Plan, for {observation}"
    assert type(plan.depth) is int, f"{plan} has a depth that is no int, for {observation}"
    assert plan.depth in observation.depths, f"{plan} is no candidate of {observation}"
