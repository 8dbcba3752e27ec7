"""The default policy reaches every criterion, on a suite small enough for a test."""

import pytest

from sglang_dynspec.replay.checks import check
from sglang_dynspec.replay.suite_run import replay
from sglang_dynspec.replay.suites import Entry, suites
from sglang_dynspec.simulator import find_scenario, run_scenario, score

GOODPUT = Entry(name="goodput", policy="goodput")


@pytest.mark.slow
def test_goodput_reaches_every_criterion():
    document = replay(GOODPUT, suites()["small"], jobs=1)
    checks = check(document)
    assert all(each.measured for each in checks)
    assert [each for each in checks if not each.passed] == []


@pytest.mark.parametrize("name", ["wander", "rollouts", "collapse"])
def test_goodput_is_deterministic(name):
    first, again = (run_scenario("goodput", find_scenario(name), seed=3) for _ in range(2))
    assert first.plans == again.plans
    assert score(first) == score(again)
