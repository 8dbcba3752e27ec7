"""Suites, baselines and grid search."""

import json

import pytest

from sglang_dynspec import ConfigError
from sglang_dynspec.replay import suite_run as replaying
from sglang_dynspec.replay.suite_run import mean_share, replay, shares_by_scenario
from sglang_dynspec.replay.suites import (
    BOUNDS,
    Entry,
    Suite,
    baselines,
    suites,
    threshold_grid,
)
from sglang_dynspec.simulator import scenarios

NEVER = Entry(name="never", policy="never")

TINY = Suite(name="tiny", scenarios=("small-chat-48", "small-chat-4"), seeds=2)


@pytest.fixture
def short(monkeypatch):
    """Shorten every scenario, so that a replay takes no time."""
    whole = replaying.run_scenario

    def run(policy, scenario, *, rounds=None, **arguments):
        return whole(policy, scenario, rounds=rounds or scenario.warm_up + 64, **arguments)

    monkeypatch.setattr(replaying, "run_scenario", run)


def test_the_standard_suite_has_everything():
    assert suites()["standard"].scenarios == tuple(scenarios())
    assert set(suites()["small"].scenarios) < set(scenarios())


def test_every_fixed_depth_is_a_baseline():
    fixed = {entry.name: dict(entry.options) for entry in baselines() if entry.policy == "always"}
    assert fixed == {"depth 1": {"depth": 1}, "depth 3": {"depth": 3}, "deepest": {}}
    assert {"stock", "plain", "bandit"} < {entry.name for entry in baselines()}
    assert all(set(entry.guard) <= set(BOUNDS) for entry in baselines())


def test_a_policy_alone(short):
    document = replay(NEVER, TINY, compare=False, jobs=1)
    assert [(row["scenario"], row["seed"]) for row in document["results"]] == [
        ("small-chat-48", 0),
        ("small-chat-48", 1),
        ("small-chat-4", 0),
        ("small-chat-4", 1),
    ]
    assert document["results"][0]["share"] == pytest.approx(1.0, abs=0.01)
    assert document["results"][2]["share"] == pytest.approx(0.656, abs=0.01)
    assert document["results"][0]["depth_shares"] == {"0": 1.0, "1": 0.0, "3": 0.0}
    assert (document["seeds"], document["tuning"], document["left_out"]) == ([0, 1], [], [])
    assert document["scenarios"][0]["server"] == "small-gpu"
    assert json.loads(json.dumps(document)) == document


def test_baselines_beside_it(short):
    told = []
    document = replay(NEVER, TINY, jobs=1, progress=lambda done, total: told.append((done, total)))
    names = [entry["name"] for entry in document["entries"]]
    assert names[0] == "never"
    assert names[-1] == "threshold"
    # By entry, scenario and seed.
    assert [row["entry"] for row in document["results"]] == [name for name in names for _ in "1234"]
    assert {"plain", "depth 1", "depth 3", "deepest"} < set(names)
    # SGLang cannot be imported here, which is said.
    assert "stock" in {each["entry"] for each in document["left_out"]}
    # Between 4 and 48 requests at 1.7 and 0.8 times plain, on is best up to some size between.
    (tuned,) = [entry for entry in document["entries"] if entry["name"] == "threshold"]
    assert 4 <= tuned["options"]["batch_size"] < 48
    assert len(document["tuning"]) == len(threshold_grid())
    best = max(each["mean_share"] for each in document["tuning"])
    assert best > 0.99
    assert mean_share(document["results"], "threshold") == pytest.approx(best, abs=0.01)
    assert told == [(done, told[-1][1]) for done in range(1, told[-1][1] + 1)]


def test_processes_change_nothing():
    suite = Suite(name="tiny", scenarios=("pcie-1", "small-chat-4"), seeds=1)
    assert replay(NEVER, suite, compare=False, jobs=2) == replay(
        NEVER, suite, compare=False, jobs=1
    )


def test_options_arrive(short):
    entry = Entry(name="t", policy="threshold", options={"batch_size": 2})
    document = replay(entry, TINY, compare=False, jobs=1)
    assert document["results"][2]["depth_shares"]["0"] == 1.0


@pytest.mark.parametrize(("guard", "plain"), [({}, 1.0), ({"min_dwell": 1000}, 0.0)])
def test_bounds_arrive(short, guard, plain):
    # The batch grows at round 400, the warm-up ends at 512.
    entry = Entry(name="t", policy="threshold", options={"batch_size": 8}, guard=guard)
    suite = Suite(name="s", scenarios=("on-off",), seeds=1)
    document = replay(entry, suite, compare=False, jobs=1)
    assert document["results"][0]["depth_shares"]["0"] == plain
    assert document["entries"][0]["guard"] == guard


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (Entry(name="x", policy="nope"), "'nope'"),
        (Entry(name="x", policy="threshold", options={"sise": 1}), "'sise'"),
        (Entry(name="x", policy="always", options={"depth": 2}), "depth 2"),
    ],
)
def test_a_policy_that_cannot_run_is_refused(entry, found):
    with pytest.raises(ConfigError) as caught:
        replay(entry, TINY, jobs=1)
    assert caught.value.found == found


def test_shares_are_averaged_over_seeds_and_then_over_scenarios():
    rows = [
        {"entry": "a", "scenario": "x", "share": 0.8},
        {"entry": "a", "scenario": "x", "share": 0.6},
        {"entry": "a", "scenario": "y", "share": 0.343},
        {"entry": "b", "scenario": "y", "share": 0.1},
    ]
    assert shares_by_scenario(rows, "a") == {"x": pytest.approx(0.7), "y": 0.343}
    assert mean_share(rows, "a") == pytest.approx(0.49)
