import pytest

from sglang_dynspec import Plan
from sglang_dynspec.account.counters import HELD_DEAD_BAND, HELD_DWELL, HOLDS
from tests.core.scripted import OUTCOME, Clock, Scripted, plans


class TestDwell:
    def test_a_depth_stays_for_min_dwell_rounds(self, guard):
        ask = guard(Scripted(*plans(3, 0)), min_dwell=4)
        assert [ask().depth for _ in range(6)] == [3, 3, 3, 3, 0, 0]
        assert ask.counters.guard_holds == dict.fromkeys(HOLDS, 0) | {HELD_DWELL: 3}

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
