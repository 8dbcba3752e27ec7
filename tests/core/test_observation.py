"""What goes into a decision and what comes out."""

import math

import pytest

from sglang_dynspec import Outcome


def ran(period, *, batch_size=16, tokens=16):
    return Outcome(
        round=0,
        depth=0,
        planned=0,
        batch_size=batch_size,
        accepted=(),
        tokens=tokens,
        period=period,
    )


@pytest.mark.parametrize("period", [1e-6, 0.01, 600.0])
def test_a_period_that_a_round_can_be_measured_by(period):
    assert ran(period).usable_period == period


@pytest.mark.parametrize(
    "period", [None, 0.0, -1.0, math.nan, math.inf, -math.inf, 9e-7, 601.0], ids=str
)
def test_periods_that_say_nothing(period):
    assert ran(period).usable_period is None


def test_nor_does_one_of_a_round_without_requests_or_with_fewer_tokens_than_none():
    assert ran(0.01, batch_size=0).usable_period is None
    assert ran(0.01, tokens=-1).usable_period is None
    assert ran(0.01, batch_size=1, tokens=0).usable_period == 0.01
