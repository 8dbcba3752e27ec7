"""Changes of a server's pace, found in unusual rounds."""

import pytest

from sglang_dynspec.estimates.slowdown import ServerPace


def factors(pace, *rounds, start=0):
    return [pace.changed(start + index, side, ratio) for index, (side, ratio) in enumerate(rounds)]


def test_six_long_rounds_on_end_are_a_change():
    pace = ServerPace()
    assert factors(pace, (0, 1.0), *[(1, 1.6)] * 5) == [1.0] * 6
    assert pace.changed(6, 1, 1.6) == pytest.approx(1.6)
    assert pace.since == 1


def test_the_factor_is_their_geometric_mean():
    pace = ServerPace()
    assert factors(pace, *[(-1, 0.5), (-1, 0.8)] * 3)[5] == pytest.approx((0.5 * 0.8) ** 0.5)


def test_a_usual_round_between_them_begins_anew():
    pace = ServerPace()
    assert factors(pace, *[(1, 2.0)] * 5, (0, 1.0), *[(1, 2.0)] * 5) == [1.0] * 11
    assert pace.since == 6


def test_rounds_on_both_sides_are_no_change():
    pace = ServerPace()
    assert factors(pace, *[(1, 2.0), (-1, 0.5)] * 20) == [1.0] * 40


def test_after_a_change_the_next_one_takes_as_long():
    pace = ServerPace()
    assert factors(pace, *[(1, 2.0)] * 12).count(1.0) == 10
