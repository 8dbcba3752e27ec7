"""An engine in service, round by round."""

from dataclasses import replace

import numpy as np
import pytest

from sglang_dynspec.simulator.service import Load, Moves, Slow, run_fixed, run_world
from sglang_dynspec.simulator.service.engine import ServiceEngine
from sglang_dynspec.simulator.service.load import held
from sglang_dynspec.simulator.service.pace import Pace
from tests.core.by_hand import SERVER, UNBOUND, Scripted
from tests.core.serving import requests, world

WITH_UPKEEP = replace(SERVER, extend=0.1, upkeep_window=4)
ENDLESS = requests(output=(99_999, 99_999, 99_999))


def play(script, **fields):
    """Run a script, and give the policy that saw it and the log."""
    policy = Scripted(script)
    made = run_world(policy, world(**fields), **UNBOUND)
    return policy, made.engine


class TestTime:
    def test_prefills_take_time_and_stand_between_rounds(self):
        policy, engine = play(lambda _: 0, seconds=20.0)
        # 0.9 s of prefill, then seven rounds after which all four leave and come again.
        assert engine.log.begins[:9] == pytest.approx([0.9 + n for n in range(7)] + [8.8, 9.8])
        periods = [outcome.period for outcome in policy.outcomes]
        assert periods[:8] == [None, *[1.0] * 6, None]
        assert engine.log.timed[:8] == [False, *[True] * 6, False]
        assert engine.waits[:5] == pytest.approx([0.9] * 5)
        assert engine.prefilled == 4 * 3
        assert engine.population.finished[0] == pytest.approx((0.9, 7.9, 8))

    def test_the_world_ends_by_the_clock(self):
        rounds = [len(run_fixed(depth, world(requests=ENDLESS)).plans) for depth in (0, 1, 3)]
        # The last round may end after it.
        assert rounds == [100, 80, 57]

    def test_nothing_runs_while_nobody_asks(self):
        load = Load(clients=Moves(knots=((0, 0), (5, 1), (6, 0), (30, 2))))
        policy, engine = play(lambda _: 0, load=load, seconds=32.0)
        assert engine.log.begins[0] == pytest.approx(5.6)
        assert engine.log.idle[:8] == [True, *[False] * 6, True]
        assert engine.log.begins[7] == pytest.approx(30.7)
        assert policy.outcomes[7].period is None

    def test_a_slow_time_is_by_the_clock_and_for_its_depth(self):
        pace = Pace(slow=(Slow(begin=3, end=6, factor=4.0, depths=(1,)),))
        fields = {"pace": pace, "requests": ENDLESS, "seconds": 12.0}
        slow = np.diff(run_fixed(1, world(**fields)).engine.log.ends)
        assert slow[:4] == pytest.approx([1.25, 5.0, 1.25, 1.25])
        assert np.diff(run_fixed(0, world(**fields)).engine.log.ends) == pytest.approx(1.0)


class TestQueue:
    def test_no_more_run_than_may(self):
        policy, engine = play(lambda _: 0, load=Load(clients=held(10)), max_running=4)
        assert {seen.batch_size for seen in policy.observations} == {4}
        assert {seen.waiting for seen in policy.observations} == {6}
        # The fifth has waited for the first ones' 7 rounds and two prefills.
        assert engine.waits[4] == pytest.approx(0.9 + 7.0 + 0.9)
        assert all(engine.log.refilled)

    def test_a_prefill_has_a_budget(self):
        _, engine = play(lambda _: 0, prefill_budget=25, seconds=3.0)
        # Two and two of 10 tokens.
        assert engine.log.begins[0] == pytest.approx(2 * (0.5 + 0.2))

    def test_clients_that_have_gone_are_not_replaced(self):
        load = Load(clients=Moves(knots=((0, 4), (5, 2))))
        _, engine = play(lambda _: 0, load=load, seconds=30.0)
        assert engine.log.sizes[:9] == [4] * 7 + [2] * 2
        assert engine.log.refilled[:9] == [True] * 5 + [False] * 2 + [True] * 2

    def test_poisson_arrivals_come_by_the_clock(self):
        load = Load(rate=held(0.25))
        one, other = (
            run_fixed(depth, world(load=load, seconds=20_000.0)).engine for depth in (0, 3)
        )
        # Whatever serves them, as many come.
        assert one.prefilled == pytest.approx(5000, rel=0.05)
        assert other.prefilled == pytest.approx(one.prefilled, abs=5)

    def test_a_server_that_has_been_running(self):
        described = world(running=True, requests=requests(output=(1000, 1000, 1000)))
        engine = ServiceEngine(replace(described, load=Load(clients=held(200))), seed=0)
        # Nobody has just begun, and nothing was prefilled.
        assert (engine.population.size, engine.now, engine.prefilled) == (200, 0.0, 0)
        lengths = engine.population.lengths
        assert (lengths.min(), lengths.max()) == pytest.approx((10, 1010), abs=15)
        assert lengths.mean() == pytest.approx(510, abs=50)


class TestRounds:
    def test_what_a_policy_sees_and_is_told(self):
        policy, engine = play(lambda index: 3 if index else 1, seconds=12.0)
        seen, done = policy.observations[1], policy.outcomes[1]
        assert (seen.batch_size, seen.padded_batch_size, seen.running) == (4, 4, 4)
        assert (seen.depth, seen.depth_age, seen.round) == (1, 1, 1)
        assert seen.seq_len_sum == sum(done.seq_lens)
        assert seen.seq_len_max == max(done.seq_lens)
        assert done.depth == done.planned == 3
        assert done.tokens <= 4 + sum(done.accepted)
        assert done.tokens == engine.log.tokens[1]
        assert done.period == pytest.approx(1.75)

    def test_the_draft_guesses_in_one_of_sixteen_passes(self):
        policy, _ = play(
            lambda _: 0, server=WITH_UPKEEP, requests=ENDLESS, seconds=400.0, reentry=0.0
        )
        passes = [outcome.round for outcome in policy.outcomes if outcome.upkeep]
        assert passes[:3] == [3, 7, 11]
        guessed = [outcome for outcome in policy.outcomes if outcome.guesses]
        assert [outcome.round for outcome in guessed[:3]] == [3, 3 + 64, 3 + 128]
        assert {outcome.guesses for outcome in guessed} == {4}
        assert policy.outcomes[3].period == pytest.approx(1.1)

    def test_a_re_entry_pays_its_pass_and_more(self):
        policy, engine = play(
            [3, 0, 0, 3, 3, 0].__getitem__,
            server=WITH_UPKEEP,
            requests=ENDLESS,
            reentry=0.5,
            seconds=9.5,
        )
        assert engine.log.extra == pytest.approx([0, 0, 0, 0.6, 0, 0])
        assert [outcome.upkeep for outcome in policy.outcomes] == [*[False] * 3, True, False, False]

    def test_first_rounds_compile_by_depth_and_size(self):
        load = Load(clients=Moves(knots=((0, 4), (8, 9))))
        policy, engine = play(lambda index: 3 * (index % 2), load=load, cold=2.0, seconds=60.0)
        stalled = [
            (outcome.depth, outcome.padded_batch_size)
            for outcome, seconds in zip(policy.outcomes, engine.log.stalled, strict=True)
            if seconds
        ]
        assert len(stalled) == len(set(stalled))
        assert {(0, 4), (3, 4), (0, 12), (3, 12)} <= set(stalled)
        assert all(seconds == 0.0 or 1.0 <= seconds <= 4.0 for seconds in engine.log.stalled)

    def test_stale_drafts_are_less_often_right(self):
        policy, _ = play(
            lambda index: 1 if index >= 200 else 0,
            requests=ENDLESS,
            upkeep_window=0,
            stale=0.0,
            freshening=100.0,
            load=Load(clients=held(64)),
            seconds=1000.0,
        )
        right = [np.mean(outcome.accepted) for outcome in policy.outcomes[200:]]
        assert np.mean(right[:10]) < 0.1
        assert np.mean(right[-100:]) == pytest.approx(0.5, abs=0.03)

    def test_the_same_seed_gives_the_same_run(self):
        first, again, other = (
            run_world("goodput", world(noise=0.1), seed=seed).engine.log for seed in (1, 1, 2)
        )
        assert first.ends == again.ends
        assert first.ends != other.ends
