"""A recorded trace against another policy: what it tells, and what it does not."""

from dataclasses import replace
from itertools import chain

import pytest

from sglang_dynspec import ConfigError, Plan, Policy
from sglang_dynspec.replay.recorded import ENOUGH, Missing, replay_trace
from sglang_dynspec.replay.suites import UNGUARDED, Entry
from sglang_dynspec.simulator import find_scenario, run_scenario, score
from sglang_dynspec.trace import Trace, TraceHeader, TraceRound


def stretch(rounds, batch_size, depth, accepted=0, period=1.0):
    each = TraceRound(
        round=0,
        t=0.0,
        batch_size=batch_size,
        padded_batch_size=batch_size,
        running=batch_size,
        waiting=0,
        seq_len_sum=100,
        seq_len_max=100,
        kv_free=0.5,
        depth=depth,
        planned=depth,
        reason="",
        accepted=(accepted,) * batch_size if depth else (),
        tokens=batch_size * (1 + accepted),
        period=period,
    )
    return [each] * rounds


def trace(*stretches, depths=(0, 1, 3)):
    rounds = [replace(each, round=index) for index, each in enumerate(chain(*stretches))]
    return Trace(header=TraceHeader(depths=depths), rounds=rounds)


NEVER = Entry(name="never", policy="never")
DEEP = Entry(name="always", policy="always")

#: Both depths at 4 requests; depth 3 alone at 32.
RECORDED = trace(
    stretch(40, 4, 0, period=1.0), stretch(20, 4, 3, 2, period=1.5), stretch(40, 32, 3, 1, 4.0)
)


def test_what_was_recorded_stands_for_what_was_not():
    result = replay_trace(RECORDED, DEEP)
    assert (result.rounds, result.covered, result.as_recorded) == (100, 1.0, 0.6)
    assert result.tells
    assert result.missing == ()
    assert result.depth_shares == {0: 0.0, 1: 0.0, 3: 1.0}
    assert result.recorded_shares == {0: 0.4, 1: 0.0, 3: 0.6}
    # 60 rounds of 12 tokens in 1.5 s and 40 of 64 in 4 s; as recorded, 40 were of 4 in 1 s.
    assert result.tokens_per_second == pytest.approx((60 * 12 + 40 * 64) / (60 * 1.5 + 160))
    recorded = (40 * 4 + 20 * 12 + 40 * 64) / (40 + 20 * 1.5 + 160)
    assert result.recorded_tokens_per_second == pytest.approx(recorded)


def test_what_the_trace_does_not_tell_is_said():
    result = replay_trace(RECORDED, NEVER)
    assert result.covered == 0.6
    assert not result.tells
    assert result.missing == (Missing(depth=0, batch_size=32, wanted=40, recorded=0),)
    # The rates are over the rounds it tells.
    assert result.tokens_per_second == pytest.approx(4.0)
    assert result.recorded_tokens_per_second == pytest.approx((160 + 240) / 70)
    shown = result.as_json()
    assert (shown["tells"], shown["missing"][0]["batch_size"]) == (False, 32)
    assert shown["depth_shares"] == {"0": 1.0, "1": 0.0, "3": 0.0}


@pytest.mark.parametrize(("recorded", "covered"), [(ENOUGH - 1, 0), (ENOUGH, 1)])
def test_enough_rounds_are_needed(recorded, covered):
    result = replay_trace(trace(stretch(recorded, 4, 0), stretch(30, 4, 3, 1)), NEVER)
    assert result.covered == pytest.approx((recorded + 30 * covered) / (recorded + 30))


def test_rounds_without_a_period_do_not_stand_for_others():
    untimed = stretch(30, 4, 0, period=None)
    result = replay_trace(trace(untimed, stretch(30, 4, 3, 1)), NEVER)
    assert result.covered == 0.5
    assert result.tokens_per_second is None
    assert not result.tells


def test_batch_sizes_that_share_a_graph_stand_for_each_other():
    # 17 to 24 run padded to 24; 25 does not.
    for size, covered in ((17, 1.0), (25, 0.5)):
        result = replay_trace(trace(stretch(20, 24, 0), stretch(20, size, 3, 1)), NEVER)
        assert result.covered == covered


def test_accepted_drafts_come_in_turn():
    rounds = [
        replace(each, accepted=(index % 2,), tokens=1 + index % 2)
        for index, each in enumerate(stretch(20, 1, 1))
    ]
    result = replay_trace(
        trace(rounds, stretch(20, 1, 0)), Entry(name="a", policy="always", options={"depth": 1})
    )
    assert result.tokens_per_second == pytest.approx(1.5)


def test_switches_are_counted_behind_the_guard():
    entry = Entry(name="t", policy="threshold", options={"batch_size": 8})
    result = replay_trace(RECORDED, entry)
    assert result.switches == 1
    assert result.depth_shares[0] == 0.4


def test_the_same_trace_gives_the_same_result():
    entry = Entry(name="goodput", policy="goodput")
    assert replay_trace(RECORDED, entry) == replay_trace(RECORDED, entry)


@pytest.mark.parametrize("rounds", [[], stretch(5, 1, 0)])
def test_a_trace_with_nothing_to_compare_is_refused(rounds):
    with pytest.raises(ConfigError) as caught:
        replay_trace(trace(rounds, depths=()), NEVER)
    assert caught.value.found.startswith(f"{len(rounds)} rounds of depths 0")


def test_depths_are_found_where_the_header_has_none():
    result = replay_trace(trace(stretch(20, 1, 0), stretch(20, 1, 2, 2), depths=()), DEEP)
    assert [*result.depth_shares] == [0, 2]
    assert result.tokens_per_second == pytest.approx(3.0)


LOAD = (
    *("batch_size", "padded_batch_size", "running", "waiting"),
    *("seq_len_sum", "seq_len_max", "kv_free"),
)


class InTurn(Policy):
    """Runs each depth for 40 rounds, and keeps what a trace would hold."""

    def __init__(self):
        self.seen, self.done = [], []

    def decide(self, observation):
        self.seen.append(observation)
        return Plan(depth=(0, 1, 3)[observation.round // 40 % 3])

    def learn(self, outcome):
        self.done.append(outcome)


@pytest.mark.parametrize("name", ["small-chat-48", "h200-chat-32"])
def test_it_comes_to_the_rates_of_the_server_that_was_recorded(name):
    scenario = find_scenario(name)
    policy = InTurn()
    run_scenario(policy, scenario, rounds=1800, switches_per_1000=1000, watchdog=False)
    rounds = [
        TraceRound(
            round=seen.round,
            t=0.0,
            reason="",
            depth=done.depth,
            planned=done.planned,
            accepted=done.accepted,
            tokens=done.tokens,
            period=done.period,
            **{field: getattr(seen, field) for field in LOAD},
        )
        for seen, done in zip(policy.seen, policy.done, strict=True)
    ]
    recorded = Trace(header=TraceHeader(depths=scenario.depths), rounds=rounds)
    for depth in scenario.depths:
        entry = Entry(name="fixed", policy="always", options={"depth": depth}, guard=UNGUARDED)
        if depth == 0:
            entry = NEVER
        result = replay_trace(recorded, entry)
        fixed = run_scenario(entry.policy, scenario, options=entry.options, **entry.guard)
        assert result.tells
        assert result.depth_shares[depth] == 1.0
        expected = score(fixed).tokens_per_second
        assert result.tokens_per_second == pytest.approx(expected, rel=0.02)
