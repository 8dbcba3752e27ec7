"""A plain round is plain, and what must be plain is."""

from sglang_dynspec.testing import assert_lossless
from tests.engine import workloads

#: Everything counted but upkeep's draft-extend passes.
FORBIDDEN = ("verify", "build_tree", "sample", "draft", "draft_forward")


def test_plain_rounds_reach_no_speculative_code(engine, plain_ids):
    engine.play(mode="fixed", depth=0)
    load = workloads.CROWD
    engine.answer(load)
    before, rounds = engine.calls(), engine.state()["by_depth"]["0"]["rounds"]
    assert_lossless(plain_ids[load.name], engine.answer(load))
    after = engine.calls()
    assert engine.state()["by_depth"]["0"]["rounds"] - rounds >= 200
    assert {name: after[name] - before[name] for name in FORBIDDEN} == dict.fromkeys(FORBIDDEN, 0)


def test_the_counters_count(engine):
    """The test above can fail: a speculative round raises every counter."""
    engine.play(mode="fixed", depth=3)
    engine.answer(workloads.STOPS)
    before = engine.calls()
    engine.answer(workloads.STOPS)
    after = engine.calls()
    assert all(after[name] > before[name] for name in FORBIDDEN)


def test_inexact_sampling_makes_the_batch_plain(engine, plain_ids):
    engine.play(mode="fixed", depth=3)
    before = engine.state()
    answers = engine.answer(workloads.INEXACT)
    after = engine.state()
    assert_lossless(plain_ids["inexact"], answers)
    assert after["exact_sampling_rounds"] - before["exact_sampling_rounds"] >= 59
    # The request that needs no exact sampling goes on alone, and speculates.
    assert after["by_depth"]["3"]["rounds"] > before["by_depth"]["3"]["rounds"]


def test_a_forced_depth_overrides_the_policy(engine, plain_ids):
    engine.play(mode="fixed", depth=3)
    assert engine.set_internal_state(dynspec_force_depth=1)
    try:
        before = engine.state()["by_depth"]
        assert_lossless(plain_ids["stops"], engine.answer(workloads.STOPS))
        after = engine.state()["by_depth"]
        assert after["1"]["rounds"] > before["1"]["rounds"]
        assert after["3"]["rounds"] == before["3"]["rounds"]
        assert not engine.set_internal_state(dynspec_force_depth=2)
    finally:
        assert engine.set_internal_state(dynspec_force_depth=-1)
    assert engine.state()["forced"] is None


def test_lossy_acceptance_is_refused_while_serving(engine):
    for key in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        assert not engine.set_internal_state(**{key: 0.5})
        assert engine.internal_state()[key] == 1.0
        # No change is none.
        assert engine.set_internal_state(**{key: 1.0})


def test_a_warm_up_that_is_left_on_shows(engine):
    assert engine.set_internal_state(dynspec_warm_up=1)
    try:
        assert engine.state()["warming_up"] is True
    finally:
        assert engine.set_internal_state(dynspec_warm_up=0)
    assert engine.state()["warming_up"] is False
