"""What holds for the guard whatever the policy, the engine and the clock do."""

import math

from hypothesis import given
from hypothesis import strategies as st

from sglang_dynspec import Config, Limits, Outcome, Plan
from sglang_dynspec.account.counters import Counters
from sglang_dynspec.guard import Guard
from tests.core.scripted import DEPTHS, GARBAGE, Scripted, observation

answers = st.one_of(
    st.sampled_from(DEPTHS).map(lambda depth: Plan(depth=depth)),
    st.sampled_from(DEPTHS).map(lambda depth: Plan(depth=depth, probe=True)),
    st.builds(Plan, depth=st.integers(-2, 5), gain=st.none() | st.floats()),
    st.sampled_from([*GARBAGE, ValueError(), SystemExit()]),
)

periods = st.one_of(
    st.none(),
    st.floats(1e-4, 1.0),
    st.sampled_from([0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1e300]),
)

#: What an engine gone wrong may tell.
rounds = st.fixed_dictionaries(
    {
        "late": st.integers(-2, 700),
        "depth": st.sampled_from([0, 1, 3, 3, 7, -1]),
        "batch_size": st.sampled_from([0, 1, 2, 64, 65, 5000, -1]),
        "accepted": st.lists(st.integers(-1, 5), max_size=4).map(tuple),
        "tokens": st.sampled_from([0, 1, 5, 300, -3]),
        "period": periods,
        "upkeep": st.booleans(),
        "guesses": st.integers(-1, 4),
        "right_guesses": st.integers(-1, 9),
        "probed_from": st.none() | st.sampled_from(DEPTHS),
    }
)


def build(script, **fields):
    policy = Scripted(*script)
    policy.configure(Limits(depths=DEPTHS))
    counters = Counters(DEPTHS)
    config = Config(**fields).resolve(None)
    return Guard(policy, config=config, counters=counters), counters


@given(
    script=st.lists(answers, min_size=1, max_size=40),
    min_dwell=st.integers(0, 5),
    budget=st.integers(0, 10),
)
def test_whatever_the_policy_does_the_guard_keeps_its_promises(script, min_dwell, budget):
    guard, counters = build(script, min_dwell=min_dwell, error_budget=budget)
    depth = age = probes = 0
    ages = []
    for index in range(len(script)):
        was_exhausted = guard.exhausted
        plan = guard.decide(observation(round=index, depth=depth, depth_age=age))
        assert type(plan.depth) is int
        assert plan.depth in DEPTHS
        assert not was_exhausted or plan.depth == 0
        if plan.depth == depth or plan.probe:
            probes = probes + 1 if plan.depth != depth else 0
            age += 1
        else:
            # The first round is free, and so is the fall back to plain.
            if age and not guard.exhausted:
                ages.append(age)
            depth, age, probes = plan.depth, 1, 0
        assert probes <= 2
    assert all(age >= min_dwell for age in ages)
    assert guard.exhausted == (counters.policy_errors > budget)


@given(
    script=st.lists(answers, min_size=1, max_size=40),
    told=st.lists(rounds, min_size=1, max_size=40),
    budget=st.sampled_from([0.0, 0.005, 1.0]),
)
def test_no_outcome_makes_it_raise_or_forget_itself(script, told, budget):
    guard, _ = build(script, never_worse=True, exploration_budget=budget, error_budget=100)
    for index, fields in enumerate(told):
        plan = guard.decide(
            observation(fields["batch_size"], round=index, depth=3, depth_age=index)
        )
        assert plan.depth in DEPTHS
        late, probed_from = fields.pop("late"), fields.pop("probed_from")
        guard.learn(Outcome(round=index - late, planned=3, **fields), probed_from)
    lost = guard.summary(len(told))["probe_tokens_lost"]
    assert math.isfinite(lost)
    for depth in DEPTHS:
        for cell in guard._evidence._rates._cells[depth]:
            values = (cell.rounds, cell.tokens, cell.seconds, cell.requests)
            assert all(math.isfinite(value) and value >= 0.0 for value in values)
            assert (cell.rounds > 0.0) == (cell.seconds > 0.0) == (cell.requests > 0.0)


@given(told=st.lists(rounds, max_size=20))
def test_equal_outcomes_make_equal_decisions(told):
    script = [Plan(depth=depth) for depth in (3, 3, 0, 1)] * 5
    first, second = (build(script, never_worse=True)[0] for _ in range(2))
    for index, fields in enumerate(told):
        seen = observation(fields["batch_size"], round=index, depth=3, depth_age=index)
        assert first.decide(seen) == second.decide(seen)
        for guard in (first, second):
            outcome = {k: v for k, v in fields.items() if k not in ("late", "probed_from")}
            guard.learn(Outcome(round=index, planned=3, **outcome), fields["probed_from"])
    assert repr(first.summary(20)) == repr(second.summary(20))
