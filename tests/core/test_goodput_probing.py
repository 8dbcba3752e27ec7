"""When goodput looks at a depth that is not in force, round by round."""

from dataclasses import replace
from itertools import pairwise

import pytest

from sglang_dynspec import Outcome
from sglang_dynspec.estimates import Cost
from sglang_dynspec.policies import Goodput
from sglang_dynspec.policies._probing import Probing
from sglang_dynspec.policies._prospects import Prospects
from sglang_dynspec.policies.goodput import MEASURING
from sglang_dynspec.simulator import find_scenario, run_scenario

BATCH = 10


def prospects(*rates, error=0.03, rounds=9.0):
    """Depths of these tokens per second, in rounds of 10 tokens each."""
    return Prospects(
        rates=rates,
        scores=list(rates),
        tokens=[10.0] * len(rates),
        costs=[Cost(10.0 / rate, error, rounds) for rate in rates],
        errors=[error] * len(rates),
        best=0,
        upkeep=0.0,
        confidence=0.9,
    )


CLOSE = prospects(1000.0, 990.0)


def ran(index, depth, period=0.01):
    return Outcome(
        round=index,
        depth=depth,
        planned=1,
        batch_size=BATCH,
        accepted=(),
        tokens=10,
        period=period,
    )


@pytest.fixture
def probing():
    # So large a share that what a close contender costs does not space probes out.
    made = Probing(2, 0.2)
    for _ in range(100):
        made.earn(BATCH)
    return made


def begun(probing, now, offered=CLOSE, force=0):
    return probing.begun(offered, force, now, batch_size=BATCH, index=now)


def test_two_rounds_then_a_pause(probing):
    assert begun(probing, 10) == 1
    assert probing.continued(11) == 1
    assert probing.continued(12) is None
    # Two rounds, and four for their outcomes to come in; the next is due after eight.
    assert [begun(probing, now) for now in range(11, 19)] == [None] * 7 + [1]


def test_intervals_double_up_to_64(probing):
    starts = [now for now in range(10, 350) if begun(probing, now) is not None]
    assert [b - a for a, b in pairwise(starts)] == [8, 16, 32, 64, 64, 64, 64]


def test_what_was_never_measured_here_gets_a_glance(probing):
    probing.learn(ran(0, 1), 1, 0)
    assert begun(probing, 16, prospects(1000.0, 990.0, rounds=0.0)) == 1
    assert probing.continued(17) is None


def test_one_that_cannot_win_waits_2000_rounds(probing):
    hopeless = prospects(500.0, 1000.0)
    assert [begun(probing, now, hopeless, 1) for now in (10, 1999, 2000)] == [None, None, 0]


def test_one_draft_is_tried_when_nobody_guesses(probing):
    hopeless = prospects(1000.0, 500.0)
    assert [begun(probing, now, hopeless) for now in (200, 201)] == [None, 1]


def test_a_costly_depth_is_looked_at_less_often():
    probing = Probing(2, 0.005)
    probing.earn(BATCH)
    starts = [now for now in range(10, 700) if begun(probing, now) is not None]
    # 0.12 rounds' worth in two, of which a quarter of 0.005 a round pays for one every 96th.
    assert {b - a for a, b in pairwise(starts)} == {starts[1] - starts[0]}
    assert 90 < starts[1] - starts[0] < 130


def test_a_probe_that_did_not_run_is_tried_after_32_rounds(probing):
    for now in (10, 18, 34):
        assert begun(probing, now) == 1
        assert probing.learn(ran(now, 1), 1, now)
    assert begun(probing, 66) == 1
    assert probing.learn(ran(66, 0), 0, 68) is False
    # 64 rounds would have been the interval.
    assert [begun(probing, now) for now in (99, 100)] == [None, 1]


def test_it_pays_what_was_lost_once(probing):
    begun(probing, 10)
    before = probing.rounds
    assert probing.learn(ran(10, 1, period=0.015), 1, 12)
    # 15 ms at 1000 tokens per second, less the 10 it delivered: half a round of 10 tokens.
    assert before - probing.rounds == pytest.approx(0.5)
    assert probing.learn(ran(10, 1, period=0.015), 1, 13) is False
    assert before - probing.rounds == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rounds", "period", "charged"),
    [(9.0, 0.039, 2.9), (9.0, 5.0, 3.0), (0.0, 0.039, 2.9), (0.0, 5.0, 0.25)],
)
def test_a_stall_is_charged_three_rounds_and_a_first_one_next_to_nothing(
    probing, rounds, period, charged
):
    begun(probing, 16, prospects(1000.0, 990.0, rounds=rounds))
    before = probing.rounds
    probing.learn(ran(16, 1, period=period), 1, 18)
    assert before - probing.rounds == pytest.approx(charged)


@pytest.mark.parametrize(("rounds", "starts"), [(0.0, [28]), (9.0, [])])
def test_a_depth_that_stalled_at_its_first_glance_gets_another(rounds, starts):
    probing = Probing(2, 0.005)
    probing.earn(BATCH)
    probing.learn(ran(0, 1), 1, 0)
    # So costly that the next look is due after 100 rounds and more.
    assert begun(probing, 16, prospects(1000.0, 900.0, error=0.06, rounds=rounds)) == 1
    probing.learn(ran(16, 1, period=5.0), 1, 12)
    known = prospects(1000.0, 900.0, error=0.06)
    assert [now for now in range(17, 90) if begun(probing, now, known) is not None] == starts


def test_a_depth_that_is_really_slow_is_charged_at_every_batch_size(probing):
    charged = []
    for index in range(0, 300, 100):
        assert begun(probing, 16 + index, prospects(1000.0, 990.0, rounds=0.0)) == 1
        assert probing.continued(17 + index) == (1 if index == 0 else None)
        before = probing.rounds
        for now in range(2 if index == 0 else 1):
            probing.learn(ran(16 + index + now, 1, period=0.1), 1, 18 + index)
        charged.append(before - probing.rounds)
        probing.rounds = 4.0
    # A first round that may have compiled kernels, and one that can not have.
    assert charged == pytest.approx([0.25 + 3.0, 3.0, 3.0])


def test_what_small_batches_earned_pays_for_a_probe_of_a_large_one():
    probing = Probing(2, 0.005)
    for batch_size in [1] * 100 + [BATCH] * 100:
        probing.earn(batch_size)
    assert probing.rounds == pytest.approx(4 + 200 * 0.005)


def test_an_empty_account_waits(probing):
    probing.rounds = 0.0
    assert begun(probing, 10, prospects(1000.0, 950.0)) is None
    for _ in range(200):
        probing.earn(BATCH)
    assert begun(probing, 11, prospects(1000.0, 950.0)) == 1


def test_what_is_passing_is_not_measured(probing):
    assert probing.begun(CLOSE, 0, 10, batch_size=12, index=10) is None
    assert probing.begun(CLOSE, 0, 10, batch_size=11, index=10) == 1


def test_a_change_begins_the_intervals_anew(probing):
    for now in (10, 18, 34):
        begun(probing, now)
    probing.restart()
    assert begun(probing, 40) == 1


def test_what_nobody_can_time_is_decoded_plainly_until_somebody_can():
    unseen = replace(find_scenario("h200-chat-1"), prefills=1.0)
    run = run_scenario(Goodput, unseen, rounds=300)
    assert run.depths.tolist() == [3] * 64 + [0] * 236
    assert {plan.reason for plan in run.plans[1:]} == {MEASURING}
    seen = run_scenario(Goodput, replace(unseen, prefills=0.95), rounds=3000)
    assert set(seen.depths[-500:].tolist()) >= {3}
    assert (seen.depths[-500:] == 3).mean() > 0.95
