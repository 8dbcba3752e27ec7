import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_dynspec import Config, Limits, Outcome, Plan, Policy
from sglang_dynspec.counters import HELD_DEAD_BAND, HELD_DWELL, Counters
from sglang_dynspec.guard import BUDGET_EXHAUSTED, POLICY_FAILED, Guard

DEPTHS = (0, 1, 3)


class Scripted(Policy):
    """Answers from a list: an exception is raised, a callable called, anything else returned."""

    def __init__(self, *script):
        self.script = list(script)
        self.learned = []
        self.asked = 0

    def decide(self, observation):
        self.asked += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else step

    def learn(self, outcome):
        self.learned.append(outcome)


class Clock:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


OUTCOME = Outcome(round=0, depth=0, planned=0, batch_size=1, accepted=(), tokens=1)


@pytest.fixture
def guard(observe):
    """Build a guard whose `ask()` keeps depth and age as `Rounds` would."""

    def build(policy, *, clock=None, **fields):
        counters = Counters(DEPTHS)
        guard = Guard(
            policy,
            config=Config(**fields).resolve(None),
            depths=DEPTHS,
            counters=counters,
            clock=clock or Clock(),
        )
        return _Asking(guard, counters, observe())

    return build


class _Asking:
    def __init__(self, guard, counters, observation):
        self.guard = guard
        self.counters = counters
        self.observation = observation
        self.depth = self.age = 0

    def __call__(self):
        plan = self.guard.decide(self.observation, self.depth, self.age)
        self.age = self.age + 1 if plan.depth == self.depth else 1
        self.depth = plan.depth
        return plan


def plans(*depths, **fields):
    return [Plan(depth=depth, **fields) for depth in depths]


class TestDwell:
    def test_a_depth_stays_for_min_dwell_rounds(self, guard):
        ask = guard(Scripted(*plans(3, 0)), min_dwell=4)
        assert [ask().depth for _ in range(6)] == [3, 3, 3, 3, 0, 0]
        assert ask.counters.guard_holds == {HELD_DWELL: 3, HELD_DEAD_BAND: 0}

    def test_a_held_plan_says_so(self, guard):
        ask = guard(Scripted(*plans(3, 0)))
        ask()
        assert ask() == Plan(depth=3, reason=HELD_DWELL)

    @pytest.mark.parametrize("min_dwell", [0, 1])
    def test_no_dwell(self, guard, min_dwell):
        ask = guard(Scripted(*plans(3, 0, 1, 3)), min_dwell=min_dwell)
        assert [ask().depth for _ in range(4)] == [3, 0, 1, 3]

    def test_holding_allocates_nothing(self, guard):
        ask = guard(Scripted(*plans(3, 0)))
        ask()
        assert ask() is ask()


class TestDeadBand:
    @pytest.mark.parametrize(
        ("gain", "depth"), [(0.019, 0), (0.02, 3), (-1.0, 0), (0, 0), (1, 3), (None, 3)]
    )
    def test_a_change_has_to_promise_enough(self, guard, gain, depth):
        ask = guard(Scripted(Plan(depth=3, gain=gain)), dead_band=0.02)
        assert ask().depth == depth
        assert ask.counters.guard_holds[HELD_DEAD_BAND] == (depth == 0)

    def test_staying_needs_no_gain(self, guard):
        ask = guard(Scripted(Plan(depth=0, gain=-5.0, reason="stay")))
        assert ask().reason == "stay"


GARBAGE = [
    None,
    3,
    "3",
    object(),
    Plan(depth=2),
    Plan(depth=-1),
    Plan(depth=True),
    Plan(depth=3.0),
    Plan(depth="3"),
    Plan(depth=None),
    Plan(depth=[]),
    Plan(depth=3, gain=math.nan),
    Plan(depth=3, gain=math.inf),
    Plan(depth=3, gain="0.5"),
    Plan(depth=3, gain=True),
    Plan(depth=3, reason=None),
]


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
        assert f"{__file__}:" in first
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


class TestSlowPolicy:
    @pytest.fixture
    def clock(self):
        return Clock()

    def slow(self, clock, microseconds):
        def decide():
            clock.now += microseconds * 1e-6
            return Plan(depth=0)

        return decide

    def test_deciding(self, guard, clock, caplog):
        ask = guard(Scripted(self.slow(clock, 600)), clock=clock, slow_policy_us=500.0)
        for _ in range(3):
            ask()
        assert ask.counters.slow_policies == 3
        (message,) = caplog.messages
        assert message.startswith(
            "slow_policy_noticed policy=Scripted microseconds=600 limit=500.0"
        )

    def test_deciding_and_learning_count_together(self, guard, clock):
        policy = Scripted(self.slow(clock, 300))
        policy.learn = policy.decide
        ask = guard(policy, clock=clock, slow_policy_us=500.0)
        ask()
        assert ask.counters.slow_policies == 0
        ask.guard.learn(OUTCOME)
        assert ask.counters.slow_policies == 1
        ask()
        assert ask.counters.slow_policies == 1

    def test_a_round_counts_once(self, guard, clock):
        policy = Scripted(self.slow(clock, 600))
        policy.learn = policy.decide
        ask = guard(policy, clock=clock, slow_policy_us=500.0)
        ask()
        ask.guard.learn(OUTCOME)
        assert ask.counters.slow_policies == 1

    def test_failing_slowly_counts_as_well(self, guard, clock):
        def fail():
            clock.now += 1.0
            raise ValueError

        ask = guard(Scripted(fail), clock=clock)
        ask()
        assert (ask.counters.slow_policies, ask.counters.policy_errors) == (1, 1)

    def test_a_quick_policy_is_not_counted(self, guard, clock):
        ask = guard(Scripted(self.slow(clock, 499)), clock=clock, slow_policy_us=500.0)
        ask()
        assert ask.counters.slow_policies == 0


answers = st.one_of(
    st.sampled_from(DEPTHS).map(lambda depth: Plan(depth=depth)),
    st.builds(Plan, depth=st.integers(-2, 5), gain=st.none() | st.floats()),
    st.sampled_from([*GARBAGE, ValueError(), SystemExit()]),
)


@given(
    script=st.lists(answers, min_size=1, max_size=40),
    min_dwell=st.integers(0, 5),
    budget=st.integers(0, 10),
)
def test_whatever_the_policy_does_the_guard_keeps_its_promises(script, min_dwell, budget):
    policy = Scripted(*script)
    policy.configure(Limits(depths=DEPTHS))
    counters = Counters(DEPTHS)
    config = Config(min_dwell=min_dwell, error_budget=budget).resolve(None)
    ask = _Asking(Guard(policy, config=config, depths=DEPTHS, counters=counters), counters, None)
    ages = []
    for _ in script:
        before, age, was_exhausted = ask.depth, ask.age, ask.guard.exhausted
        plan = ask()
        assert plan.depth in DEPTHS
        assert type(plan.depth) is int
        assert not was_exhausted or plan.depth == 0
        # The first round is free, and so is the fall back to plain.
        if plan.depth != before and age and not ask.guard.exhausted:
            ages.append(age)
    assert all(age >= min_dwell for age in ages)
    assert ask.guard.exhausted == (counters.policy_errors > budget)
