"""What the guard does with a policy that fails."""

import logging
import math

import pytest

from sglang_dynspec import Plan
from sglang_dynspec.guard import BUDGET_EXHAUSTED, POLICY_FAILED
from tests.core.scripted import GARBAGE, OUTCOME, Scripted, plans


class TestFaults:
    @pytest.mark.parametrize(
        "fault",
        [
            *GARBAGE,
            ValueError("x"),
            SystemExit(3),
            GeneratorExit(),
            RecursionError(),
            MemoryError(),
        ],
        ids=repr,
    )
    def test_the_last_good_depth_stays(self, guard, fault):
        ask = guard(Scripted(Plan(depth=1), fault, Plan(depth=1)))
        ask()
        assert ask() == Plan(depth=1, reason=POLICY_FAILED)
        assert ask.counters.policy_errors == 1
        assert ask() == Plan(depth=1)

    def test_before_any_good_one_it_is_plain(self, guard):
        assert guard(Scripted(ValueError()))().depth == 0

    def test_a_held_depth_is_the_good_one(self, guard):
        ask = guard(Scripted(*plans(3, 0), ValueError()))
        assert [ask().depth for _ in range(3)] == [3, 3, 3]

    def test_past_the_budget_every_round_is_plain(self, guard):
        policy = Scripted(Plan(depth=3), ValueError())
        ask = guard(policy, error_budget=2)
        assert [ask().depth for _ in range(5)] == [3, 3, 3, 0, 0]
        assert ask() == Plan(depth=0, reason=BUDGET_EXHAUSTED)
        assert ask.guard.exhausted
        assert ask.counters.policy_errors == 3
        assert policy.asked == 4

    def test_a_budget_of_nothing(self, guard):
        ask = guard(Scripted(Plan(depth=3), ValueError()), error_budget=0)
        assert [ask().depth for _ in range(3)] == [3, 0, 0]

    def test_learning_counts_and_stops_too(self, guard):
        policy = Scripted(Plan(depth=3))
        policy.learn = lambda outcome: 1 / 0
        ask = guard(policy, error_budget=1)
        for _ in range(4):
            ask.guard.learn(OUTCOME)
        assert ask.counters.policy_errors == 2
        assert ask().depth == 0

    def test_an_exhausted_policy_learns_no_more(self, guard):
        policy = Scripted(ValueError())
        ask = guard(policy, error_budget=0)
        ask()
        ask.guard.learn(OUTCOME)
        assert policy.learned == []

    def test_a_keyboard_interrupt_passes(self, guard):
        policy = Scripted(KeyboardInterrupt())
        ask = guard(policy)
        with pytest.raises(KeyboardInterrupt):
            ask()
        policy.learn = policy.decide
        with pytest.raises(KeyboardInterrupt):
            ask.guard.learn(OUTCOME)
        assert ask.counters.policy_errors == 0

    def test_a_plan_whose_repr_raises(self, guard):
        class Vicious:
            def __repr__(self):
                raise SystemExit(1)

        assert guard(Scripted(Vicious()))().reason == POLICY_FAILED

    def test_an_error_whose_message_raises(self, guard):
        class Vicious(Exception):  # noqa: N818
            def __str__(self):
                raise ValueError

        assert guard(Scripted(Vicious()))().reason == POLICY_FAILED


class TestLog:
    def test_faults_are_logged_once_and_the_budget_once(self, guard, caplog):
        ask = guard(Scripted(ZeroDivisionError("by zero")), error_budget=3)
        for _ in range(10):
            ask()
        first, last = caplog.messages
        assert first.startswith("policy_failed policy=Scripted method=decide ")
        assert "ZeroDivisionError: by zero" in first
        assert "scripted.py:" in first
        assert last.startswith("error_budget_exhausted policy=Scripted faults=4 error_budget=3 ")
        assert {record.levelno for record in caplog.records} == {logging.ERROR}

    @pytest.mark.parametrize(
        ("plan", "said"),
        [
            (Plan(depth=7), "Plan.depth is 7, not one of the candidates 0, 1, 3"),
            (Plan(depth=True), "Plan.depth is True, not an int"),
            (3, "decide() returned 3, not a Plan"),
            (Plan(depth=3, gain=math.nan), "Plan.gain is nan, not a finite number or None"),
            (Plan(depth=3, reason=None), "Plan.reason is None, not a str"),
        ],
    )
    def test_garbage_is_named(self, guard, caplog, plan, said):
        guard(Scripted(plan))()
        assert f"PolicyError: {said}" in caplog.messages[0]
