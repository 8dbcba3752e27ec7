"""What upkeep passes cost."""

import pytest

from sglang_dynspec.estimates.upkeep_cost import UpkeepCost

#: Seconds of a plain round.
PLAIN = 0.010


@pytest.fixture
def cost():
    return UpkeepCost()


def test_before_any_was_measured_it_is_a_share_of_a_plain_round(cost):
    assert cost.seconds(8, PLAIN) == pytest.approx(0.06 * PLAIN)
    assert cost.share == 0.25


def test_few_are_weighed_against_four_at_the_usual_share(cost):
    cost.set(8, 0.0010, 8.0)
    assert cost.seconds(8, PLAIN) == pytest.approx((8 * 0.0010 + 4 * 0.0006) / 12)
    assert cost.seconds(16, PLAIN) == pytest.approx(0.0006)


def test_a_pass_counts_for_its_bucket_and_a_little_for_the_usual_share(cost):
    cost.count(8, 0.0008, PLAIN)
    usual = (0.06 + (0.08 - 0.06) / 64) * PLAIN
    assert cost.seconds(16, PLAIN) == pytest.approx(usual)
    assert cost.seconds(8, PLAIN) == pytest.approx((0.0008 + 4 * usual) / 5)


# Below none, and beyond three times the usual.
@pytest.mark.parametrize(("excess", "counted"), [(-0.001, 0.0), (0.1, 0.0018)])
def test_one_that_cannot_be_is_cut(cost, excess, counted):
    cost.count(8, excess, PLAIN)
    assert cost._passes[8] == (pytest.approx(counted), 1.0)


def test_the_mean_follows_what_passes_cost_now(cost):
    for excess in (0.0006, 0.0012):
        for _ in range(500):
            cost.count(8, excess, PLAIN)
    assert cost.seconds(8, PLAIN) == pytest.approx(0.0012, rel=0.01)


def test_the_share_of_plain_rounds_that_pay_one(cost):
    cost.count_plain(paid=True)
    assert cost.share == 0.25 + 0.75 / 256
    for _ in range(2000):
        cost.count_plain(paid=False)
    assert cost.share < 0.001
