import pytest

from sglang_dynspec import ConfigError, Limits, Plan, Policy
from sglang_dynspec.policies import Always, DepthTable, Never, Threshold
from sglang_dynspec.testing import PolicyContract

pytest_plugins = ["sglang_dynspec.testing"]


def configured(policy, depths=(0, 1, 3), cap=None):
    policy.configure(Limits(depths=depths, max_running_requests=cap))
    return policy


class TestBase:
    def test_decide_is_required(self):
        with pytest.raises(TypeError, match="decide"):
            Policy()

    def test_configure_keeps_the_limits(self, limits):
        policy = Never()
        policy.configure(limits)
        assert policy.limits is limits
        assert limits.largest == 3

    def test_policies_do_not_use_time_unless_they_say_so(self):
        assert Policy.uses_time is False


class TestAlways:
    def test_the_largest_depth_by_default(self, observe):
        assert configured(Always()).decide(observe(500)) == Plan(depth=3, reason="always")

    def test_a_chosen_depth(self, observe):
        assert configured(Always(depth=1)).decide(observe()).depth == 1

    def test_a_depth_that_is_no_candidate(self):
        with pytest.raises(ConfigError, match="found depth 2; use one of 0, 1, 3"):
            configured(Always(depth=2))


def test_never(observe):
    assert configured(Never()).decide(observe(1)) == Plan(depth=0, reason="never")


class TestThreshold:
    def test_hysteresis(self, observe):
        policy = configured(Threshold(batch_size=8, hysteresis=3))
        sizes = [1, 8, 9, 8, 6, 5, 8, 9]
        assert [policy.decide(observe(size)).depth for size in sizes] == [3, 3, 0, 0, 0, 3, 3, 0]

    def test_no_hysteresis(self, observe):
        policy = configured(Threshold(batch_size=8, hysteresis=0, depth=1))
        assert [policy.decide(observe(size)).depth for size in (9, 8, 9)] == [0, 1, 0]

    def test_a_threshold_above_the_cap(self):
        with pytest.raises(ConfigError, match="it would never switch off") as caught:
            configured(Threshold(batch_size=33), cap=32)
        assert "at most 32" in caught.value.expected
        assert "raise --max-running-requests" in caught.value.remedy

    def test_the_default_fits_under_a_lower_cap(self):
        policy = configured(Threshold(), cap=3)
        assert (policy.batch_size, policy.hysteresis) == (3, 2)
        policy = configured(Threshold(), cap=100)
        assert (policy.batch_size, policy.hysteresis) == (32, 4)

    def test_a_chosen_hysteresis_above_the_lowered_default(self):
        with pytest.raises(ConfigError, match="hysteresis from 0 to 2"):
            configured(Threshold(hysteresis=3), cap=3)

    def test_a_threshold_at_the_cap_and_an_unknown_cap(self):
        configured(Threshold(batch_size=32), cap=32)
        configured(Threshold(batch_size=10_000), cap=None)

    def test_a_depth_that_is_no_candidate(self):
        with pytest.raises(ConfigError, match="found depth 2"):
            configured(Threshold(depth=2))

    def test_a_batch_size_no_batch_has(self):
        with pytest.raises(ConfigError, match="batch_size of at least 1; found 0"):
            Threshold(batch_size=0)

    @pytest.mark.parametrize("hysteresis", [-1, 8])
    def test_a_hysteresis_that_never_comes_back(self, hysteresis):
        with pytest.raises(ConfigError, match=f"hysteresis from 0 to 7 .*found {hysteresis};"):
            Threshold(batch_size=8, hysteresis=hysteresis)


class TestAlwaysContract(PolicyContract):
    policy = Always


class TestNeverContract(PolicyContract):
    policy = "never"


class TestThresholdContract(PolicyContract):
    policy = Threshold
    options = {"batch_size": 20}  # noqa: RUF012


class TestDepthTableContract(PolicyContract):
    policy = DepthTable
    options = {"table": {"1-16": 3, "17-64": 1, "65-": 0}}  # noqa: RUF012


def test_threshold_over_a_ramp(policy_run):
    run = policy_run(Threshold, [(4, 20), (16, 20), (4, 20)], options={"batch_size": 8})
    assert run.depths == [3] * 20 + [0] * 20 + [3] * 20
    assert run.switches == 2
