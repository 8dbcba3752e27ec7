import json
import logging

import pytest

from sglang_dynspec import Config, ConfigError, Outcome, Plan, Policy
from sglang_dynspec.policies import Always, Never, Threshold
from sglang_dynspec.rounds.rounds import EXACT_SAMPLING, FORCED, Rounds

pytest_plugins = ["sglang_dynspec.testing"]


class Recorder(Policy):
    """Speculates, and remembers what it was told."""

    def __init__(self):
        self.observed = []
        self.learned = []

    def decide(self, observation):
        self.observed.append(observation)
        return Plan(depth=3)

    def learn(self, outcome):
        self.learned.append(outcome)


def outcome(index, depth, *, planned=None, accepted=(), batch_size=1, tokens=1):
    return Outcome(
        round=index,
        depth=depth,
        planned=depth if planned is None else planned,
        batch_size=batch_size,
        accepted=accepted,
        tokens=tokens,
    )


class TestPlan:
    def test_state_before_and_after(self, cycle):
        run = cycle(Always())
        rounds = run.rounds
        assert (rounds.round, rounds.depth, rounds.depth_age) == (0, 0, 0)
        run()
        assert (rounds.round, rounds.depth, rounds.depth_age) == (1, 3, 1)
        run()
        assert (rounds.round, rounds.depth, rounds.depth_age) == (2, 3, 2)

    def test_the_first_round_is_no_switch(self, cycle):
        run = cycle(Threshold(batch_size=8), config=Config(min_dwell=1))
        for size in (1, 1, 9, 9, 1):
            run(size)
        assert run.rounds.counters.switches == 2

    def test_exact_sampling_makes_the_round_plain(self, cycle):
        policy = Recorder()
        run = cycle(policy)
        assert run(4, plain_requests=1) == Plan(depth=0, reason=EXACT_SAMPLING)
        assert run.rounds.counters.exact_sampling_rounds == 1
        assert policy.observed == []
        assert len(policy.learned) == 1

    def test_exact_sampling_comes_before_a_forced_depth_and_warm_up(self, cycle):
        run = cycle(Always())
        run.rounds.force(3)
        assert [run(4, plain_requests=n).depth for n in (0, 1, 0)] == [3, 0, 3]
        run.rounds.warm_up.on = True
        depths = [run(4, plain_requests=1).depth for _ in range(8)]
        assert depths == [0] * 8
        assert {run(4).depth for _ in range(8)} == {0, 1, 3}

    def test_exact_sampling_can_be_turned_off(self, cycle):
        run = cycle(Always(), config=Config(exact_sampling=False))
        assert run(4, plain_requests=1).depth == 3
        assert run.rounds.counters.exact_sampling_rounds == 0

    def test_after_exact_sampling_the_dwell_counts(self, cycle):
        run = cycle(Always(), config=Config(min_dwell=3))
        depths = [run(plain_requests=1 if index == 1 else 0).depth for index in range(6)]
        assert depths == [3, 0, 0, 0, 3, 3]


class TestForce:
    def test_it_comes_before_the_policy(self, cycle):
        policy = Recorder()
        run = cycle(policy)
        run.rounds.force(1)
        assert run.rounds.forced == 1
        assert run() == Plan(depth=1, reason=FORCED)
        run.rounds.force(0)
        assert run().depth == 0
        assert policy.observed == []

    def test_none_hands_the_decision_back(self, cycle):
        run = cycle(Always(), config=Config(min_dwell=1))
        run.rounds.force(0)
        run()
        run.rounds.force(None)
        assert run() == Plan(depth=3, reason="always")

    @pytest.mark.parametrize("depth", [2, -1, True, 1.0, "1"])
    def test_only_candidates(self, cycle, depth):
        rounds = cycle(Always()).rounds
        with pytest.raises(ValueError, match="is not one of the candidates 0, 1, 3"):
            rounds.force(depth)
        assert rounds.forced is None

    def test_it_outlives_an_exhausted_budget(self, cycle):
        class Failing(Policy):
            def decide(self, observation):
                raise ValueError(observation)

        run = cycle(Failing(), config=Config(error_budget=0))
        assert run().depth == 0
        run.rounds.force(3)
        assert run().depth == 3


class TestOverlap:
    def test_an_outcome_belongs_to_its_own_round(self, cycle, observe):
        policy = Recorder()
        rounds = cycle(policy).rounds
        seen = observe(1), observe(2, round=1, depth=3, depth_age=1)
        first, second = [rounds.plan(each) for each in seen]
        assert first.depth == second.depth == 3
        rounds.learn(seen[0], first, outcome(0, 3))
        rounds.learn(seen[1], second, outcome(1, 3))
        assert [each.round for each in policy.learned] == [0, 1]
        assert rounds.counters.mismatches == 0

    def test_a_round_without_an_outcome_is_not_missed(self, cycle, observe):
        rounds = cycle(Always()).rounds
        for index in range(50):
            rounds.plan(observe(round=index, depth=rounds.depth, depth_age=rounds.depth_age))
        assert (rounds.round, rounds.counters.rounds, rounds.counters.mismatches) == (50, 0, 0)


class TestAccounts:
    def test_counters_and_rates(self, cycle):
        run = cycle(Always())
        run(2, accepted=(3, 0))
        run(1, accepted=(1,))
        run.rounds.force(0)
        run(5)
        counters = run.rounds.counters
        assert counters.rounds == 3
        assert counters.rounds_by_depth == {0: 1, 1: 0, 3: 2}
        assert (counters.drafted, counters.accepted, counters.tokens) == (9, 4, 12)
        summary = run.rounds.summary()
        assert summary["acceptance_rate"] == 4 / 9
        at_three = summary["by_depth"]["3"]
        assert at_three["share"] == 2 / 3
        assert at_three["acceptance_rate"] == 4 / 9
        assert at_three["mean_accepted_length"] == pytest.approx(1 + 4 / 3)
        assert summary["by_depth"]["0"]["mean_accepted_length"] == 1.0
        assert summary["by_depth"]["0"]["acceptance_rate"] is None
        assert summary["by_depth"]["1"]["mean_accepted_length"] is None

    def test_rates_stay_in_range_across_mixed_depths(self, policy_run):
        run = policy_run(
            "threshold", [(n % 60, 5) for n in range(80)], options={"batch_size": 30}, min_dwell=0
        )
        assert 0.0 < run.share(3) < 1.0
        summary = run.counters.summary()
        assert sum(each["share"] for each in summary["by_depth"].values()) == pytest.approx(1.0)
        for rates in (summary, *summary["by_depth"].values()):
            assert rates["acceptance_rate"] is None or 0.0 <= rates["acceptance_rate"] <= 1.0

    def test_the_summary_is_plain_json(self, cycle):
        run = cycle(Always())
        run()
        summary = run.rounds.summary()
        assert json.loads(json.dumps(summary)) == summary
        assert summary["policy"] == "Always"
        assert (summary["depth"], summary["depth_age"], summary["forced"]) == (3, 1, None)
        assert summary["guard_holds"] == {
            "dwell": 0,
            "dead_band": 0,
            "switch_rate": 0,
            "exploration_budget": 0,
            "never_worse": 0,
            "watchdog": 0,
        }
        assert summary["rounds_by_depth"] == {"0": 0, "1": 0, "3": 1}
        assert summary["error_budget_exhausted"] is False

    def test_before_the_first_round(self, cycle):
        summary = cycle(Never()).rounds.summary()
        assert summary["acceptance_rate"] is None
        assert summary["by_depth"]["0"]["share"] == 0.0

    def test_a_mismatch_is_counted_and_said_once(self, cycle, observe, caplog):
        rounds = cycle(Always()).rounds
        for index, ran in enumerate((0, 3, 7)):
            plan = rounds.plan(observe())
            rounds.learn(observe(), plan, outcome(index, ran, planned=3))
        assert rounds.counters.mismatches == 2
        assert rounds.counters.rounds_by_depth == {0: 1, 1: 0, 3: 1}
        (message,) = caplog.messages
        assert message.startswith("plan_disobeyed round=0 planned=3 ran=0")

    def test_a_mismatch_is_judged_by_our_own_plan(self, cycle, observe):
        rounds = cycle(Always()).rounds
        plan = rounds.plan(observe())
        rounds.learn(observe(), plan, outcome(0, 1, planned=1))
        assert rounds.counters.mismatches == 1

    @pytest.mark.parametrize("accepted", [(4,), (-1,), (2, 2)])
    def test_an_impossible_outcome_spoils_no_rate(self, cycle, observe, accepted):
        rounds = cycle(Always()).rounds
        plan = rounds.plan(observe())
        rounds.learn(observe(), plan, outcome(0, 3, accepted=accepted))
        assert rounds.counters.impossible_outcomes == 1
        assert (rounds.counters.drafted, rounds.counters.accepted) == (0, 0)

    def test_nothing_grows_with_the_rounds(self, policy_run):
        run = policy_run(
            "threshold",
            [(9 * (n % 2) + 1, 4) for n in range(500)],
            options={"batch_size": 8},
            switches_per_1000=1000,
        )
        assert run.switches == 499
        assert len(run.counters.by_depth) == len(run.counters.rounds_by_depth) == 3


class TestLog:
    def test_through_a_logger_of_the_caller(self, limits, observe, caplog):
        class Failing(Policy):
            def decide(self, observation):
                raise ValueError(observation)

        policy = Failing()
        policy.configure(limits)
        rounds = Rounds(
            policy=policy,
            config=Config().resolve(None),
            log=logging.getLogger("sglang.theirs"),
        )
        rounds.plan(observe())
        assert [record.name for record in caplog.records] == ["sglang.theirs"]

    def test_ours_by_default(self, cycle, observe, caplog):
        rounds = cycle(Always()).rounds
        plan = rounds.plan(observe())
        rounds.learn(observe(), plan, outcome(0, 1, planned=3))
        assert [record.name for record in caplog.records] == ["sglang_dynspec.rounds"]
        assert [record.filename for record in caplog.records] == ["rounds.py"]


def test_a_configuration_that_is_not_resolved_is_no_concern(limits, observe):
    policy = Never()
    policy.configure(limits)
    rounds = Rounds(policy=policy, config=Config().resolve(None))
    assert rounds.plan(observe()).depth == 0


def test_refusals_are_the_policys_own(policy_run):
    with pytest.raises(ConfigError, match="it would never switch off"):
        policy_run(Threshold, [1], options={"batch_size": 9}, max_running_requests=8)
