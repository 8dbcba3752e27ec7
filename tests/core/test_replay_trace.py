"""A recorded trace against another policy: what it tells, and what it does not."""

from dataclasses import replace
from itertools import chain

import pytest

from sglang_dynspec import Config, ConfigError, Limits, Plan, Policy
from sglang_dynspec.replay.recorded import ENOUGH, Missing, replay_trace
from sglang_dynspec.replay.suites import UNGUARDED, Entry
from sglang_dynspec.rounds.driving import drive
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec.simulator import find_scenario, run_scenario, score
from sglang_dynspec.simulator.engine import SyntheticEngine
from sglang_dynspec.trace import Trace, TraceHeader, TraceRound, TraceWriter, read_trace


def stretch(rounds, batch_size, depth, accepted=0, period=1.0, *, padded=None):
    each = TraceRound(
        round=0,
        t=0.0,
        batch_size=batch_size,
        padded_batch_size=padded or batch_size,
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


def trace(*stretches, depths=(0, 1, 3), **header):
    rounds = [replace(each, round=index) for index, each in enumerate(chain(*stretches))]
    return Trace(header=TraceHeader(depths=depths, **header), rounds=rounds)


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
    assert result.missing == (Missing(depth=0, padded_batch_size=32, wanted=40, recorded=0),)
    # The rates are over the rounds it tells.
    assert result.tokens_per_second == pytest.approx(4.0)
    assert result.recorded_tokens_per_second == pytest.approx((160 + 240) / 70)
    shown = result.as_json()
    assert (shown["tells"], shown["missing"][0]["padded_batch_size"]) == (False, 32)
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


def test_batch_sizes_that_were_padded_alike_stand_for_each_other():
    # By the graphs of the server that was recorded, whatever others capture.
    for padded, covered in ((20, 1.0), (24, 0.5)):
        deep = stretch(20, 17, 3, 1, padded=padded)
        result = replay_trace(trace(stretch(20, 20, 0), deep), NEVER)
        assert result.covered == covered
        missing = [(each.padded_batch_size, each.wanted) for each in result.missing]
        assert missing == ([] if covered == 1.0 else [(24, 20)])


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


class InTurn(Policy):
    """Runs each depth for 40 rounds, and keeps what it is told, in order."""

    #: The one that was built last.
    newest = None

    def __init__(self):
        InTurn.newest = self
        self.told = []

    def decide(self, observation):
        self.told.append(observation)
        return Plan(depth=(0, 1, 3)[observation.round // 40 % 3])

    def learn(self, outcome):
        self.told.append(outcome)


class Plainly(InTurn):
    """Runs every round plainly."""

    def decide(self, observation):
        super().decide(observation)
        return Plan(depth=0)


class Deeply(InTurn):
    """Runs every round at depth 3."""

    def decide(self, observation):
        super().decide(observation)
        return Plan(depth=3)


def outcomes(recorded, kind):
    """Replay a policy of this file, and give the outcomes it was told."""
    entry = Entry(name="told", policy=f"{__name__}:{kind.__name__}", guard=UNGUARDED)
    replay_trace(recorded, entry)
    return [each for each in InTurn.newest.told if not hasattr(each, "waiting")]


def serve(name, path, *, rounds=1800, overlap=True, changed=lambda outcome: outcome, plain=()):
    """Serve a scenario as a server does, by `InTurn`, and read its trace."""
    scenario = find_scenario(name)
    depths = scenario.depths
    policy = InTurn()
    policy.configure(Limits(depths=depths))
    engine = SyntheticEngine(scenario, seed=0, rounds=rounds)
    header = TraceHeader(depths=depths, overlap=overlap)
    serving = Rounds(
        policy=policy,
        config=Config(depths=depths, **UNGUARDED).resolve(depths[-1]),
        trace=TraceWriter(path, header),
    )

    def observations():
        for index in range(rounds):
            seen = engine.observe(index, depth=serving.depth, depth_age=serving.depth_age)
            # As exact as a trace is.
            kv_free = round(seen.kv_free, 6)
            yield replace(seen, kv_free=kv_free, plain_requests=int(index in plain))

    def run(observation, plan):
        return changed(engine.run(observation, plan.depth))

    drive(serving, observations(), run, lag=int(overlap))
    serving.close()
    return read_trace(path), policy


def overshot(outcome):
    """Give what a round did whose last request had all it wanted before."""
    if outcome.round % 10:
        return outcome
    accepted = outcome.accepted[:-1]
    requests = outcome.batch_size - 1
    return replace(
        outcome,
        batch_size=requests,
        accepted=accepted,
        tokens=requests + sum(accepted),
        seq_lens=outcome.seq_lens[:-1],
    )


@pytest.mark.parametrize("overlap", [True, False])
def test_who_was_recorded_is_told_in_a_replay_what_it_was_told_then(path, overlap):
    recorded, served = serve(
        "h200-prefills-96", path, rounds=400, overlap=overlap, changed=overshot, plain=(33, 145)
    )
    entry = Entry(name="again", policy=f"{__name__}:InTurn", guard=UNGUARDED)
    result = replay_trace(recorded, entry)
    assert (result.covered, result.as_recorded) == (1.0, 1.0)
    assert InTurn.newest is not served
    assert InTurn.newest.told == served.told
    # All of it was there to be told.
    done = [each for each in served.told if not hasattr(each, "waiting")]
    assert len(done) == 400
    assert {each.period is None for each in done} == {each.upkeep for each in done} == {True, False}
    assert any(each.right_guesses for each in done)
    assert len(done[10].seq_lens) == done[10].batch_size == 95


def test_a_plain_round_in_place_of_another_has_the_upkeep_of_those_that_were():
    # Every fourth has a pass and takes longer; the one after it has guesses.
    plain = [
        replace(each, upkeep=True, period=1.5)
        if index % 4 == 3
        else replace(each, guesses=4, right_guesses=3)
        if index % 4 == 0
        else each
        for index, each in enumerate(stretch(20, 4, 0, period=1.0))
    ]
    deep = [replace(each, seq_lens=(20, 30, 50)) for each in stretch(40, 4, 3, 2, period=3.0)]
    told = outcomes(trace(deep, plain), Plainly)[:40]
    assert [each.period for each in told] == [1.0, 1.0, 1.0, 1.5] * 10
    assert [each.upkeep for each in told] == [False, False, False, True] * 10
    assert [each.guesses for each in told] == [4, 0, 0, 0] * 10
    assert [each.right_guesses for each in told] == [3, 0, 0, 0] * 10
    # The requests are the round's own.
    assert {(each.batch_size, each.tokens, each.seq_lens) for each in told} == {
        (3, 3, (20, 30, 50))
    }


def test_a_speculative_round_in_place_of_a_plain_one_has_drafts_of_others_and_no_guesses():
    plain = [
        replace(each, upkeep=True, guesses=4, right_guesses=3, seq_lens=(20, 30, 50))
        for each in stretch(20, 4, 0)
    ]
    deep = [
        replace(each, upkeep=index == 0, period=3.5 if index == 0 else 3.0)
        for index, each in enumerate(stretch(20, 4, 3, 2))
    ]
    told = outcomes(trace(plain, deep), Deeply)[:20]
    # The first of those that were recorded was a re-entry.
    assert [each.upkeep for each in told] == [True, *[False] * 19]
    assert [each.period for each in told] == [3.5, *[3.0] * 19]
    assert {each.guesses for each in told} == {0}
    # Whose drafts these are is not known, nor how long those requests were.
    assert {(each.accepted, each.tokens, each.seq_lens) for each in told} == {((2, 2, 2), 9, ())}


def test_a_round_nobody_timed_stays_one_whatever_is_put_in_its_place():
    untimed = stretch(20, 4, 3, 2, period=None)
    told = outcomes(trace(stretch(20, 4, 0), untimed), Plainly)
    assert [each.period for each in told] == [1.0] * 20 + [None] * 20


@pytest.mark.parametrize(("exact", "plain"), [(True, 0.5), (False, 0.0)])
def test_exact_sampling_is_that_of_the_server(exact, plain):
    asking = [replace(each, plain_requests=1) for each in stretch(20, 4, 0)]
    recorded = trace(asking, stretch(20, 4, 3, 2), exact_sampling=exact)
    result = replay_trace(recorded, DEEP)
    assert result.depth_shares == {0: plain, 1: 0.0, 3: 1.0 - plain}


def test_a_policy_learns_the_limits_of_the_server_that_was_recorded():
    outcomes(trace(stretch(20, 4, 3), max_running_requests=100, seed=7), Plainly)
    limits = InTurn.newest.limits
    assert (limits.depths, limits.max_running_requests, limits.seed) == ((0, 1, 3), 100, 7)


@pytest.mark.parametrize("name", ["small-chat-48", "h200-chat-32"])
def test_it_comes_to_the_rates_of_the_server_that_was_recorded(name, path):
    scenario = find_scenario(name)
    recorded, _ = serve(name, path)
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
