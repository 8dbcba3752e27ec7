"""The bandit: it tries, and runs what was measured to be fastest at a batch size."""

import random

import pytest

from sglang_dynspec import ConfigError, Limits, Outcome
from sglang_dynspec.policies import Bandit
from sglang_dynspec.policies.bandit import Arm, Context
from sglang_dynspec.testing import PolicyContract

pytest_plugins = ["sglang_dynspec.testing"]


class TestBanditContract(PolicyContract):
    policy = "bandit"


def period(depth, batch_size):
    """Depth 3 is best below 16 requests, plain above."""
    return 0.010 * (1 + 0.05 * depth + (0.02 * depth * batch_size if batch_size > 16 else 0))


def test_it_settles_on_the_fastest_by_batch_size(policy_run):
    run = policy_run(
        Bandit, [(8, 3000), (64, 3000)], period=period, acceptance=0.7, switches_per_1000=1000
    )
    assert run.depths[1500:3000].count(3) > 1200
    assert run.depths[4500:].count(0) > 1200
    assert run.faults == 0


def test_every_depth_is_tried_for_a_bin(observe):
    policy = Bandit(rounds=5)
    policy.configure(Limits(depths=(0, 1, 3)))
    depths = []
    for index in range(15):
        plan = policy.decide(observe(8, round=index))
        depths.append(plan.depth)
        policy.learn(
            Outcome(
                round=index,
                depth=plan.depth,
                planned=plan.depth,
                batch_size=8,
                accepted=(),
                tokens=8,
                period=0.01,
            )
        )
    assert depths == [0] * 5 + [1] * 5 + [3] * 5
    assert plan.reason == "explore"


def test_batch_sizes_keep_their_own_bins(observe):
    policy = Bandit(rounds=4)
    policy.configure(Limits(depths=(0, 1)))
    for size in (8, 100, 8, 100):
        policy.decide(observe(size))
    assert policy._context(8).left == policy._context(100).left == 2
    assert policy._context(15) is policy._context(8)
    assert policy._context(16) is not policy._context(8)
    assert policy._context(10**9) is policy._contexts[-1]


def test_seeds_decide(policy_run):
    runs = [
        policy_run(Bandit, [(8, 2000)], period=period, seed=seed, switches_per_1000=1000).depths
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_exploration_fades_with_blocks():
    context = Context(2)
    for arm in context.arms:
        arm.add(8, 0.01)
    draw = random.Random(1)
    explored = []
    blocks = []
    for _ in range(4000):
        context.begin_bin(draw, 1)
        blocks.append(context.block)
        explored.append(context.explores)
    assert blocks[:8] == [1, 2, 2, 4, 4, 4, 4, 8]
    # Blocks of 64 bins explore 1 in sqrt(128) of them.
    assert context.block == 64
    assert sum(explored[1000:]) / 3000 == pytest.approx(0.088, abs=0.02)


class TestMeasuring:
    def learned(self, **fields):
        policy = Bandit()
        policy.configure(Limits(depths=(0, 1)))
        ran = {"depth": 0, "planned": 0, "batch_size": 8, "accepted": (), "tokens": 8}
        policy.learn(Outcome(round=0, **(ran | fields)))
        return [arm.rate for arm in policy._context(8).arms]

    def test_goodput_is_tokens_over_seconds(self):
        assert self.learned(period=0.01) == [800.0, None]

    @pytest.mark.parametrize("period", [None, 0.0, -1.0, float("nan"), float("inf"), 1e4])
    def test_a_round_without_a_usable_period(self, period):
        assert self.learned(period=period) == [None, None]

    def test_the_first_round_of_a_depth_pays_for_the_change(self):
        assert self.learned(period=0.01, depth=1) == [None, None]

    def test_no_candidate_and_no_tokens(self):
        assert self.learned(period=0.01, depth=7) == [None, None]
        assert self.learned(period=0.01, tokens=0) == [None, None]

    def test_old_rounds_fade(self):
        arm = Arm()
        for _ in range(2000):
            arm.add(8, 0.01)
        for _ in range(1000):
            arm.add(8, 0.02)
        assert arm.rate == pytest.approx(430, rel=0.03)


def test_a_bin_of_no_rounds():
    with pytest.raises(ConfigError, match="expected rounds of at least 1; found 0"):
        Bandit(rounds=0)
