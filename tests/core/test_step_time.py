"""The linear model of a round's cost."""

from math import log

import pytest

from sglang_dynspec.estimates.cells import Cell, Row
from sglang_dynspec.estimates.cost_model import CostModel
from sglang_dynspec.estimates.step_time import StepTime, features
from tests.core.timed import ran


def rows(*cells):
    made = {0: Row(), 1: Row()}
    for depth, batch_size, seconds, rounds in cells:
        made[depth].put(batch_size, Cell(seconds, batch_size, 0, rounds=rounds))
    return made


@pytest.mark.parametrize(
    ("depth", "batch_size", "described"),
    [
        # 8 target tokens, 64 and 400: beyond 32, 64, 128 and 256 of them, and up to 16.
        (0, 8, [1, 0, 0, 0.08, 0, 0, 0, 0, 0.08, 0.5]),
        (3, 16, [1, 1, 3, 0.64, 0.32, 0, 0, 0, 0.16, 0.5]),
        (3, 100, [1, 1, 3, 4.0, 3.68, 3.36, 2.72, 1.44, 0.16, 0.5]),
    ],
)
def test_what_a_round_is_made_of(depth, batch_size, described):
    assert features(depth, batch_size, 50_000) == pytest.approx(described)


def test_a_draft_step_is_taken_for_six_hundredths_of_a_round():
    model = StepTime()
    model.fit(rows((0, 8, 0.005, 20.0), (0, 64, 0.005, 20.0)))
    assert model.seconds(1, 8, 0) == pytest.approx(1.06 * 0.005, rel=0.001)
    assert model.seconds(3, 8, 0) == pytest.approx(1.18 * 0.005, rel=0.001)


def test_a_few_rounds_that_contradict_the_fit_weigh_little():
    model = StepTime()
    few, many = (Cell(0.050, 8, 0, rounds=rounds) for rounds in (2.0, 20.0))
    assert (model._trust(0, few), model._trust(0, many)) == (0.25, 1.0)
    model.fit(rows((0, 8, 0.005, 20.0)))
    assert model._trust(0, few) == pytest.approx(0.25 / (1 + (log(10) / 0.7) ** 4), rel=0.01)
    assert model._trust(0, many) == 1.0


def test_a_model_that_says_nothing_of_a_round_is_fitted_all_the_same():
    model = StepTime()
    model.fit(rows((1, 8, 0.008, 20.0)))
    # As nothing but draft steps might cost anything.
    model._coefficients = [0.0, 0.0, 0.008, *[0.0] * (len(model._coefficients) - 3)]
    assert model.seconds(0, 8, 0) == 0.0
    model.fit(rows((1, 8, 0.008, 20.0), (0, 8, 0.005, 2.0)))
    assert 0.003 < model.seconds(0, 8, 0) < 0.009


def test_a_single_round_is_left_out_where_others_are_not():
    model = StepTime()
    model.fit(rows((1, 8, 0.008, 20.0), (0, 8, 0.500, 1.0)))
    assert model.seconds(0, 8, 0) < 0.009
    alone = StepTime()
    alone.fit(rows((0, 8, 0.500, 1.0)))
    assert 0.4 < alone.seconds(0, 8, 0) < 0.6


def test_it_is_monotone_where_the_cells_are_not():
    model = CostModel((0, 1))
    for size, period in ((8, 0.02), (16, 0.01), (32, 0.015), (64, 0.012)):
        for _ in range(10):
            model.observe(ran(1, size, period))
    fitted = model._step_time
    costs = [fitted.seconds(1, size, 0) for size in range(1, 200)]
    assert costs == sorted(costs)
    assert fitted.seconds(1, 8, 0) <= fitted.seconds(3, 8, 0)


def test_no_cells_no_fit():
    model = StepTime()
    model.fit({})
    assert not model.fitted
