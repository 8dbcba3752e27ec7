"""What the account says of time and of the last decision."""

import json
import math

import pytest

from sglang_dynspec import Outcome, Plan
from sglang_dynspec.account.timed import LARGEST_TABLE, TimedTable
from sglang_dynspec.rounds.decision import describe_decision
from tests.core.scripted import Scripted

DEPTHS = (0, 1, 3)


def ran(depth=3, period=0.02, *, size=4, padded=8, **fields):
    return Outcome(
        round=0,
        depth=depth,
        planned=depth,
        batch_size=size,
        accepted=(),
        tokens=10,
        period=period,
        padded_batch_size=padded,
        **fields,
    )


class TestTimed:
    def test_a_row_for_each_depth_and_padded_batch_size(self):
        table = TimedTable()
        for _ in range(3):
            table.count(ran(seq_len_sum=100))
        table.count(ran(0, 0.01, padded=16))
        table.count(ran(0, 0.015, padded=16, upkeep=True))
        assert table.summary() == [
            {
                "depth": 0,
                "padded_batch_size": 16,
                "requests": 4,
                "rounds": 1,
                "seconds": 0.01,
                "seq_len_sum": 0,
                "tokens": 10,
                "upkeep_rounds": 1,
                "upkeep_seconds": 0.015,
            },
            {
                "depth": 3,
                "padded_batch_size": 8,
                "requests": 12,
                "rounds": 3,
                "seconds": pytest.approx(0.06),
                "seq_len_sum": 300,
                "tokens": 30,
                "upkeep_rounds": 0,
                "upkeep_seconds": 0.0,
            },
        ]

    def test_without_a_padded_size_it_is_the_batch_size(self):
        table = TimedTable()
        table.count(ran(padded=0))
        assert table.summary()[0]["padded_batch_size"] == 4

    @pytest.mark.parametrize("period", [None, 0.0, -1.0, math.nan, math.inf])
    def test_periods_that_say_nothing_are_left_out(self, period):
        table = TimedTable()
        assert table.count(ran(period=period)) is False
        assert table.summary() == []

    def test_it_is_bounded(self):
        table = TimedTable()
        for size in range(1, LARGEST_TABLE + 100):
            assert table.count(ran(padded=size))
        assert len(table.summary()) == LARGEST_TABLE
        table.count(ran(padded=1))
        assert table.summary()[0]["rounds"] == 2

    def test_it_is_in_the_summary(self, cycle):
        run = cycle(Scripted(Plan(depth=3)))
        run(8, period=0.02)
        run(8, period=math.nan)
        summary = run.rounds.summary()
        assert [row["rounds"] for row in summary["timed"]] == [1]
        assert summary["untimed_rounds"] == 1
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary


class TestDecision:
    def test_none_before_the_first_round(self, cycle):
        assert cycle(Scripted(Plan(depth=3))).rounds.summary()["decision"] is None

    def test_what_was_decided_and_what_the_policy_wanted(self, cycle):
        wanted = Plan(
            depth=3,
            reason="goodput",
            gain=0.001,
            predicted=(100.0, 120.0, 90.0),
            confidence=0.7,
            blocked="hysteresis",
        )
        run = cycle(Scripted(Plan(depth=1), wanted))
        for _ in range(6):
            run()
        assert run.rounds.summary()["decision"] == {
            "depth": 1,
            "reason": "dead_band",
            "probe": False,
            "policy": {
                "depth": 3,
                "reason": "goodput",
                "probe": False,
                "gain": 0.001,
                "confidence": 0.7,
                "blocked": "hysteresis",
                "predicted": {"0": 100.0, "1": 120.0, "3": 90.0},
            },
        }

    def test_a_forced_depth_was_not_the_policys(self, cycle):
        run = cycle(Scripted(Plan(depth=3)))
        run.rounds.force(0)
        run()
        assert run.rounds.summary()["decision"] == {
            "depth": 0,
            "reason": "forced",
            "probe": False,
            "policy": None,
        }

    @pytest.mark.parametrize(
        ("predicted", "told"),
        [
            ((), {}),
            ((1.0,), {"0": 1.0}),
            ((math.nan, math.inf, None), {"0": None, "1": None, "3": None}),
            (("x", 10**400, True), {"0": None, "1": None, "3": 1.0}),
            ([1, 2, 3, 4], {"0": 1.0, "1": 2.0, "3": 3.0}),
            (None, {}),
            (7, {}),
        ],
    )
    def test_whatever_a_policy_predicts(self, predicted, told):
        plan = Plan(depth=0, predicted=predicted, confidence=math.nan)
        decision = describe_decision(plan, plan, DEPTHS)
        assert decision["policy"]["predicted"] == told
        assert decision["policy"]["confidence"] is None
        json.dumps(decision, allow_nan=False)
