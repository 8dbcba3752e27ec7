"""The linear model of a round's cost."""

from sglang_dynspec._cells import Cell, Row
from sglang_dynspec._step_time import StepTime


def rows(*cells):
    made = {0: Row(), 1: Row()}
    for depth, batch_size, seconds, rounds in cells:
        made[depth].put(batch_size, Cell(seconds, batch_size, 0, rounds=rounds))
    return made


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
