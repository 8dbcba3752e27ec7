"""The one loop that drives rounds where nothing is served."""

import pytest

from sglang_dynspec import Config, Outcome, Plan, Policy
from sglang_dynspec.rounds.driving import KeptLog, drive
from sglang_dynspec.rounds.rounds import Rounds


class Telling(Policy):
    """Tells when it decides and learns, or fails."""

    def __init__(self, *, fails=False):
        self.told = []
        self.fails = fails

    def decide(self, observation):
        self.told.append(f"decide {observation.round}")
        return Plan(depth=1) if not self.fails else None

    def learn(self, outcome):
        self.told.append(f"learn {outcome.round}")


@pytest.fixture
def driven(observe, limits):
    """Drive three rounds; those in `unknown` have no outcome."""

    def run(policy, lag, unknown=()):
        policy.configure(limits)
        log = KeptLog()
        rounds = Rounds(policy=policy, config=Config().resolve(None), log=log)

        def outcome(observation, plan):
            index = observation.round
            policy.told.append(f"run {index}")
            return None if index in unknown else Outcome(
                round=index, depth=plan.depth, planned=plan.depth,
                batch_size=1, accepted=(0,), tokens=1,
            )  # fmt: skip

        observations = (
            observe(depth=rounds.depth, depth_age=rounds.depth_age, round=index)
            for index in range(3)
        )
        drive(rounds, observations, outcome, lag=lag)
        return rounds, log

    return run


@pytest.mark.parametrize(
    ("lag", "told"),
    [
        (0, ["run 0", "learn 0", "decide 1", "run 1", "learn 1", "decide 2", "run 2", "learn 2"]),
        (1, ["run 0", "decide 1", "run 1", "learn 0", "decide 2", "run 2", "learn 1", "learn 2"]),
        (2, ["run 0", "decide 1", "run 1", "decide 2", "run 2", "learn 0", "learn 1", "learn 2"]),
        (9, ["run 0", "decide 1", "run 1", "decide 2", "run 2", "learn 0", "learn 1", "learn 2"]),
    ],
)
def test_outcomes_arrive_late_and_all_of_them(driven, lag, told):
    policy = Telling()
    driven(policy, lag)
    assert policy.told == ["decide 0", *told]


def test_a_round_nobody_knows_of_holds_no_other_up(driven):
    policy = Telling()
    rounds, _ = driven(policy, 1, unknown=(1,))
    ran = ["decide 0", "run 0", "decide 1", "run 1", "learn 0", "decide 2", "run 2", "learn 2"]
    assert policy.told == ran
    assert rounds.counters.rounds == 2


def test_each_observation_is_taken_after_the_plan_before_it(driven):
    policy = Telling()
    seen = []
    policy.decide = lambda observation: seen.append(observation) or Plan(depth=1)
    driven(policy, 1)
    assert [(each.depth, each.depth_age) for each in seen] == [(0, 0), (1, 1), (1, 2)]


def test_what_a_policy_provokes_is_kept_and_not_logged(driven, caplog):
    _, log = driven(Telling(fails=True), 1)
    (line,) = log.lines
    assert line.startswith("policy_failed policy=Telling method=decide")
    assert not caplog.records
