"""Slowdowns of a server, found in unusual rounds."""

import pytest

from sglang_dynspec.estimates.slowdown import Slowdown


def factors(slowdown, *rounds, start=0):
    return [
        slowdown.changed(start + index, side, ratio) for index, (side, ratio) in enumerate(rounds)
    ]


def test_six_long_rounds_on_end_are_a_change():
    slowdown = Slowdown()
    assert factors(slowdown, (0, 1.0), *[(1, 1.6)] * 5) == [1.0] * 6
    assert slowdown.changed(6, 1, 1.6) == pytest.approx(1.6)
    assert slowdown.since == 1


@pytest.mark.parametrize(("side", "ratio"), [(1, 1.6), (-1, 0.6)])
def test_they_may_be_the_first_that_were_measured(side, ratio):
    slowdown = Slowdown()
    assert factors(slowdown, *[(side, ratio)] * 6, start=5)[5] == pytest.approx(ratio)
    assert slowdown.since == 5


def test_usual_rounds_are_no_change():
    assert factors(Slowdown(), *[(0, 1.04)] * 20) == [1.0] * 20


def test_the_factor_is_their_geometric_mean():
    slowdown = Slowdown()
    assert factors(slowdown, *[(-1, 0.5), (-1, 0.8)] * 3)[5] == pytest.approx((0.5 * 0.8) ** 0.5)


def test_a_usual_round_between_them_begins_anew():
    slowdown = Slowdown()
    assert factors(slowdown, *[(1, 2.0)] * 5, (0, 1.0), *[(1, 2.0)] * 5) == [1.0] * 11
    assert slowdown.since == 6
    assert slowdown.changed(11, 1, 2.0) == pytest.approx(2.0)


def test_rounds_on_both_sides_are_no_change():
    slowdown = Slowdown()
    assert factors(slowdown, *[(1, 2.0), (-1, 0.5)] * 20) == [1.0] * 40


def test_after_a_change_the_next_one_takes_as_long():
    slowdown = Slowdown()
    assert factors(slowdown, *[(1, 2.0)] * 12).count(1.0) == 10
    assert factors(slowdown, *[(-1, 0.5)] * 5) == [1.0] * 5
