"""The published replay is of these scenarios, and reaches every criterion."""

import json
from pathlib import Path

import pytest

from sglang_dynspec.replay.checks import check
from sglang_dynspec.replay.suite_run import described
from sglang_dynspec.simulator import scenarios

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "replay.json"


@pytest.fixture(scope="module")
def published():
    return json.loads(RESULTS.read_text())


def test_it_is_the_standard_suite_as_it_is_now(published):
    assert published["suite"] == "standard"
    current = [described(scenario) for scenario in scenarios().values()]
    assert published["scenarios"] == json.loads(json.dumps(current))


def test_it_reaches_every_criterion(published):
    checks = check(published)
    assert [each for each in checks if not each.passed] == []
    assert all(each.measured for each in checks)
    assert published["checks"] == [each.as_json() for each in checks]


def test_nothing_was_left_out(published):
    assert published["left_out"] == []
    names = [entry["name"] for entry in published["entries"]]
    assert names == [
        *("goodput", "stock", "plain", "depth 1", "depth 3", "deepest", "bandit", "threshold")
    ]
