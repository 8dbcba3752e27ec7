"""A proportion that is followed through drift, sudden change and rounds whose trials are alike."""

import random

import pytest

from sglang_dynspec.estimates.proportion import Proportion

#: Requests of a large batch.
MANY = 128


def drawn(draw, share, trials):
    """Draw how many of independent trials are right."""
    return sum(draw.random() < share for _ in range(trials))


def alike(draw, share, trials):
    """Draw trials that are all right or all wrong."""
    return trials * (draw.random() < share)


def followed(draw, kind, share, trials, rounds):
    """
    Follow a share that stays as it is.

    Returns:
        The proportion, and round by round whether it raised an alarm, its share and its spread.
    """
    proportion = Proportion()
    told = []
    for _ in range(rounds):
        alarm = proportion.count(kind(draw, share, trials), trials)
        told.append((alarm, proportion.right / proportion.trials, proportion.spread))
    return proportion, *map(list, zip(*told, strict=True))


class TestMemory:
    def test_it_is_bounded_both_ways(self):
        slow, fast = Proportion(), Proportion()
        for _ in range(20_000):
            slow.count(1, 2)
        for _ in range(500):
            fast.count(64, 128)
        assert slow.trials == pytest.approx(1500, rel=0.01)
        assert fast.trials == pytest.approx(48 * 128, rel=0.01)

    def test_forgetting_keeps_the_rate(self):
        proportion = Proportion(30, 40)
        proportion.forget(4)
        assert (proportion.right, proportion.trials) == (3, 4)
        proportion.forget(10)
        assert proportion.trials == 4


def test_how_alike_the_trials_of_a_round_are():
    proportion = Proportion(30, 60)
    proportion.count(1, 1)
    assert proportion.spread == 1.0
    proportion = Proportion(30, 60)
    # All right where half are: a correlation of 1, against three rounds of none.
    proportion.count(64, 64)
    assert proportion.spread == pytest.approx(1 + 63 / 4)


@pytest.mark.parametrize("seed", [1, 2, 3])
class TestWhatStays:
    @pytest.mark.parametrize("share", [0.999, 0.001])
    def test_next_to_an_edge_nothing_seems_to_change(self, share, seed):
        proportion, alarms, _, _ = followed(random.Random(seed), drawn, share, MANY, 2000)
        assert not any(alarms)
        assert proportion.right / proportion.trials == pytest.approx(share, abs=0.001)

    def test_independent_trials_are_worth_what_they_are(self, seed):
        _, alarms, _, spreads = followed(random.Random(seed), drawn, 0.6, MANY, 1000)
        assert not any(alarms)
        assert sum(spreads[64:]) / len(spreads[64:]) < 1.2
        assert min(spreads) == 1.0

    def test_trials_that_are_alike_are_worth_one(self, seed):
        _, alarms, shares, spreads = followed(random.Random(seed), alike, 0.6, MANY, 2000)
        assert sum(alarms[64:]) <= 5
        assert sum(shares[-500:]) / 500 == pytest.approx(0.6, abs=0.1)
        assert min(spreads[64:]) > 50
        assert max(spreads) <= MANY

    @pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.8, 0.9, 0.95])
    def test_nor_more_where_one_outcome_is_rare(self, share, seed):
        _, alarms, _, spreads = followed(random.Random(seed), alike, share, MANY, 2000)
        assert sum(alarms[64:]) <= 5
        assert sum(spreads[-500:]) / 500 > 100

    def test_what_was_learned_of_it_is_copied(self, seed):
        proportion, *_ = followed(random.Random(seed), alike, 0.6, MANY, 500)
        copied = proportion.copy(64)
        assert copied.spread == proportion.spread
        copied.count(0, MANY)
        assert copied.spread > 50


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("trials", "within"), [(MANY, 1), (32, 3), (8, 4), (1, 25)])
def test_a_collapse_is_found(trials, within, seed):
    draw = random.Random(seed)
    proportion, alarms, _, _ = followed(draw, drawn, 0.6, trials, 1000)
    assert not any(alarms)
    rounds = 1
    while not proportion.count(drawn(draw, 0.05, trials), trials):
        rounds += 1
    assert rounds <= within
    assert proportion.right / proportion.trials < 0.15
    assert proportion.hopeful is False


@pytest.mark.parametrize(("before", "after", "hopeful"), [(1.0, 0.3, False), (0.0, 0.7, True)])
def test_from_an_edge_it_can_go_the_other_way(before, after, hopeful):
    draw = random.Random(1)
    proportion, alarms, _, _ = followed(draw, drawn, before, 32, 200)
    assert not any(alarms)
    # One round could be chance, of trials that are alike.
    assert any(proportion.count(drawn(draw, after, 32), 32) for _ in range(6))
    assert proportion.hopeful is hopeful
