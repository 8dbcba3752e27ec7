"""Rounds that warm a server up: every depth in turn, and nothing is made of them."""

import pytest

from sglang_dynspec import Plan, hookimpl
from sglang_dynspec.loading.plugins import plugin_manager
from sglang_dynspec.rounds.warm_up import WarmUp
from tests.core.test_rounds import Recorder


def test_every_depth_comes_after_a_plain_round():
    warm_up = WarmUp((0, 1, 3))
    assert [warm_up.plan(index).depth for index in range(6)] == [0, 1, 0, 3, 0, 1]


class Watcher:
    def __init__(self):
        self.seen = []

    @hookimpl
    def dynspec_before_round(self, plan):
        self.seen.append(plan.depth)

    @hookimpl
    def dynspec_depth_changed(self, old, new):
        self.seen.append((old, new))


@pytest.fixture
def watcher():
    return Watcher()


@pytest.fixture
def run(cycle, watcher):
    hooks = plugin_manager()
    hooks.register(watcher)
    run = cycle(Recorder(), hooks=hooks)
    run.policy = run.rounds._policy
    return run


def test_nobody_is_told_and_nothing_is_counted(run, watcher):
    run.rounds.warm_up.on = True
    assert [run(4).depth for _ in range(5)] == [0, 1, 0, 3, 0]
    assert (run.policy.observed, run.policy.learned, watcher.seen) == ([], [], [])
    summary = run.rounds.summary()
    assert (summary["rounds"], summary["tokens"], summary["mismatches"]) == (0, 0, 0)


def test_afterwards_the_policy_starts_as_on_a_fresh_server(run, watcher):
    run.rounds.warm_up.on = True
    for _ in range(5):
        run(4)
    run.rounds.warm_up.on = False
    assert run(4).depth == 3
    first = run.policy.observed[0]
    assert (first.round, first.depth, first.depth_age) == (5, 0, 0)
    assert watcher.seen == [3]
    assert run.rounds.counters.switches == 0
    assert [outcome.round for outcome in run.policy.learned] == [5]


@pytest.mark.parametrize("is_on", [True, False])
def test_the_account_shows_it(run, is_on):
    run.rounds.warm_up.on = is_on
    assert run.rounds.summary()["warming_up"] is is_on


def test_it_comes_before_a_forced_depth(run):
    run.rounds.force(3)
    run.rounds.warm_up.on = True
    assert [run(1).depth for _ in range(2)] == [0, 1]
    run.rounds.warm_up.on = False
    assert run(1).depth == 3


def test_a_policy_may_give_the_same_reason(cycle):
    run = cycle(Recorder())
    run.rounds._policy.decide = lambda observation: Plan(depth=1, reason="warm_up")
    run(4)
    assert (run.rounds.counters.rounds, len(run.rounds._policy.learned)) == (1, 1)
