"""A fault while serving never stops the server: plain rounds, a count, one line in the log."""

import pytest

from sglang_dynspec.testing import assert_lossless
from sglang_dynspec_cpu.engine import CpuEngine
from tests.engine import workloads


def serve(models, capfd, policy, options, load, *, algorithm="STANDALONE", **fields):
    dynspec = {"policy": policy, "options": options, "depths": (0, 1, 3), **fields}
    with CpuEngine(
        cache=models, algorithm=algorithm, dynspec=dynspec, log_level="warning"
    ) as engine:
        capfd.readouterr()
        answers = [list(done.output_ids) for done in load.send(engine)]
        state = engine.internal_state()["dynspec"]
    return answers, state, capfd.readouterr().err


@pytest.mark.parametrize("how", ["raises", "garbage", "unknown_depth", "exits"])
def test_a_faulty_policy_ends_in_plain_rounds(models, plain_ids, capfd, how):
    answers, state, log = serve(
        models,
        capfd,
        "tests.engine.policies:Misbehaving",
        {"how": how},
        workloads.CROWD,
        error_budget=5,
    )
    assert_lossless(plain_ids["crowd"], answers)
    assert state["policy_errors"] == 6
    assert state["error_budget_exhausted"] is True
    assert state["by_depth"]["3"]["rounds"] == 10 + 5
    assert state["depth"] == 0
    assert log.count("policy_failed") == 1
    assert log.count("error_budget_exhausted") == 1


def test_a_slow_policy_is_noticed_once(models, plain_ids, capfd):
    answers, state, log = serve(
        models,
        capfd,
        "tests.engine.policies:Misbehaving",
        {"how": "sleeps"},
        workloads.STOPS,
    )
    assert_lossless(plain_ids["stops"], answers)
    assert state["slow_policies"] > 1
    assert state["policy_errors"] == 0
    assert log.count("slow_policy_noticed") == 1


def test_exact_sampling_may_be_given_up(models, plain_ids, capfd):
    """With exact_sampling = false the batch speculates, and penalties are only approximated."""
    answers, state, _ = serve(
        models,
        capfd,
        "tests.engine.policies:SpeculateAlways",
        {},
        workloads.INEXACT,
        exact_sampling=False,
    )
    assert state["exact_sampling_rounds"] == 0
    assert state["by_depth"]["3"]["share"] == 1.0
    # Requests 0 and 3 are ordinary; the penalised ones are not exact any more.
    assert [answers[i] == plain_ids["inexact"][i] for i in (0, 3)] == [True, True]
    assert any(answers[i] != plain_ids["inexact"][i] for i in (1, 2, 4))


@pytest.mark.parametrize(("algorithm", "kind"), [("STANDALONE", "extend"), ("EAGLE3", "write")])
def test_upkeep_that_fails_is_given_up(models, plain_ids, capfd, algorithm, kind):
    """A fault of upkeep leaves the draft cold and the tokens right."""
    answers, state, log = serve(
        models,
        capfd,
        "tests.engine.policies:BreaksUpkeep",
        {"kind": kind},
        workloads.CROWD,
        algorithm=algorithm,
    )
    assert_lossless(plain_ids["crowd"], answers)
    assert state["upkeep"]["faults"] == 1
    assert state["upkeep"]["window"] == 0
    assert log.count("upkeep_given_up") == 1
