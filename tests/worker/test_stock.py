"""SGLang's own policy, driven as SGLang drives it."""

import json
from itertools import pairwise

import pytest

from sglang_dynspec import ConfigError, Limits, Observation, Outcome
from sglang_dynspec.simulator import find_scenario, run_scenario, score
from sglang_dynspec_hooks.stock import Stock


def configured(depths=(0, 1, 3), **options):
    policy = Stock(**options)
    policy.configure(Limits(depths=depths))
    return policy


def depth(policy, batch_size):
    return policy.decide(
        Observation(
            batch_size=batch_size,
            padded_batch_size=batch_size,
            running=batch_size,
            waiting=0,
            seq_len_sum=1,
            seq_len_max=1,
            kv_free=1.0,
            depths=(0, 1, 3),
            depth=0,
            depth_age=0,
        )
    ).depth


def tell(policy, ran, batch_size, accepted):
    policy.learn(
        Outcome(
            round=0,
            depth=ran,
            planned=ran,
            batch_size=batch_size,
            accepted=(accepted,) * batch_size if ran else (),
            tokens=1,
        )
    )


def test_it_starts_as_the_server_does():
    policy = configured()
    # 3 steps up to 31 requests, the middle of 0 and 1 up to 63, and off from there. 25 is padded
    # to 32 before it is looked up.
    assert [depth(policy, size) for size in (1, 8, 24, 25, 63, 64, 256)] == [3, 3, 3, 1, 0, 0, 0]


def test_steps_that_are_no_candidates_are_left_out():
    policy = configured(depths=(0, 2, 3))
    assert depth(policy, 1) == 3
    assert depth(policy, 32) == 0


def test_it_goes_off_after_zeros_and_looks_again_every_five_batches():
    policy = configured()
    depths = []
    for _ in range(400):
        depths.append(depth(policy, 32))
        tell(policy, depths[-1], 32, 0)
    # Ten batches of warm-up, and then 200 changes in 1000.
    changes = sum(one != other for one, other in pairwise(depths[100:]))
    assert changes == pytest.approx(60, abs=1)


def test_an_outcome_is_credited_to_the_depth_in_force_when_it_arrives():
    policy = configured()
    while depth(policy, 32) != 0:
        tell(policy, 1, 32, 0)
    while depth(policy, 32) == 0:
        tell(policy, 0, 32, 0)
    slot = policy._params._route(32)
    before = slot.ema_accept_len
    tell(policy, 0, 32, 0)  # ran plain, arrives when 1 is in force
    assert slot.ema_accept_len == pytest.approx(0.8 * before)


def test_a_configuration_of_its_own(tmp_path):
    path = tmp_path / "adaptive.json"
    path.write_text(json.dumps({"1": {"candidate_steps": [1, 3]}, "4": {"candidate_steps": [0]}}))
    policy = configured(config=str(path))
    assert [depth(policy, size) for size in (1, 3, 4)] == [3, 0, 0]
    path.write_text(json.dumps({"1": {"candidate_steps": [-1]}}))
    with pytest.raises(ConfigError) as caught:
        configured(config=str(path))
    assert "BS 1" in caught.value.found
    with pytest.raises(ConfigError):
        configured(config=str(tmp_path / "none.json"))


def test_it_replays():
    # Off from 64 requests whatever the drafts are worth.
    assert score(run_scenario(Stock, find_scenario("h200-chat-128"))).depth_shares[0] == 1.0
