"""The goodput policy: what it chooses, when it changes and what it looks at."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_dynspec import ConfigError, Limits, Observation, Outcome
from sglang_dynspec.estimates.calibration import Calibration, CostCell
from sglang_dynspec.identity import Identity
from sglang_dynspec.policies import Goodput
from sglang_dynspec.policies.goodput import HYSTERESIS, MEASURING, PROBE, START
from sglang_dynspec.simulator import find_scenario, run_scenario
from sglang_dynspec.testing import PolicyContract

pytest_plugins = ["sglang_dynspec.testing"]

DEPTHS = (0, 1, 3)


def flat(depth, batch_size):
    """Memory-bound: tokens are free, drafts are cheap."""
    return 0.010 * (1 + 0.08 * depth)


def steep(depth, batch_size):
    """Every token through the target costs the same: speculation never pays."""
    return 0.002 + 0.001 * (depth + 1) * batch_size


def knee(depth, batch_size):
    """Memory-bound to 64 target tokens, then bound by arithmetic."""
    return 0.010 * max(1.0, (depth + 1) * batch_size / 64) * (1 + 0.03 * depth)


def noisy(period, seed=0, noise=0.02):
    draw = random.Random(seed)
    return lambda depth, batch_size: period(depth, batch_size) * draw.lognormvariate(0, noise)


def in_force(run):
    """Depth of each round that was no probe."""
    return [plan.depth for plan in run.plans if not plan.probe]


class TestGoodputContract(PolicyContract):
    policy = "goodput"


class TestGoodputWithoutProbesContract(PolicyContract):
    policy = "goodput"
    options = {"exploration": 0.0}  # noqa: RUF012


class TestChoice:
    @pytest.mark.parametrize("batch_size", [1, 16, 128])
    def test_deep_where_tokens_are_free(self, policy_run, batch_size):
        run = policy_run(Goodput, [(batch_size, 400)], period=noisy(flat), acceptance=0.8)
        assert set(in_force(run)[100:]) == {3}, repr(run)
        assert run.faults == 0

    @pytest.mark.parametrize("batch_size", [16, 128])
    def test_plain_where_nothing_pays(self, policy_run, batch_size):
        run = policy_run(Goodput, [(batch_size, 2000)], period=noisy(steep), acceptance=0.5)
        assert set(in_force(run)) == {0}, repr(run)
        # Nobody guesses here, so one draft is tried every 200 rounds; three are all but never.
        probes = [plan.depth for plan in run.plans if plan.probe]
        assert (probes.count(3) <= 3, 8 <= probes.count(1) <= 24) == (True, True)

    def test_free_guesses_stand_in_for_probes(self):
        run = run_scenario(Goodput, find_scenario("pcie-64"), rounds=1500)
        assert set(in_force(run)) == {0}
        assert sum(plan.probe for plan in run.plans) <= 4

    def test_the_depth_between(self, policy_run):
        run = policy_run(Goodput, [(32, 600)], period=noisy(knee), acceptance=0.6)
        # 51.2 tokens in 10.3 ms, against 32 in 10 and 69.6 in 21.8.
        assert set(in_force(run)[100:]) == {1}, repr(run)

    @pytest.mark.parametrize("depths", [(0, 1), (0, 3), (0, 1, 2, 3, 4), (0, 1, 3, 5, 7, 11, 16)])
    def test_any_candidates(self, policy_run, depths):
        run = policy_run(Goodput, [(16, 400)], period=noisy(flat), acceptance=0.98, depths=depths)
        # Deep drafts are nearly all right, and a draft step costs 8 %.
        assert set(in_force(run)[200:]) == {depths[-1]}, repr(run)

    def test_what_a_plan_says(self, policy_run):
        run = policy_run(Goodput, [(16, 400)], period=noisy(flat), acceptance=0.8)
        plan = run.plans[-1]
        rates = [
            16 * tokens / flat(depth, 16)
            for depth, tokens in zip(DEPTHS, (1, 1.8, 1 + 0.8 + 0.64 + 0.512), strict=True)
        ]
        assert plan.predicted == pytest.approx(rates, rel=0.05)
        assert plan.confidence > 0.95
        assert (plan.blocked, plan.reason) == ("", "goodput")


class TestStart:
    def first(self, observe, batch_size, **limits):
        policy = Goodput()
        policy.configure(Limits(depths=DEPTHS, **limits))
        return policy.decide(observe(batch_size))

    def test_small_batches_start_deep_and_large_ones_plain(self, observe):
        assert self.first(observe, 8).depth == 3
        assert self.first(observe, 9).depth == 0
        assert self.first(observe, 9).reason == START

    def test_an_empty_batch(self, observe):
        assert self.first(observe, 0).depth == 0
        assert self.first(observe, 0).reason == MEASURING

    def test_a_calibration_says_where_to_start(self, observe, tmp_path):
        path = tmp_path / "costs.json"
        cells = [
            CostCell(depth=depth, batch_size=32, seconds=seconds, rounds=50)
            for depth, seconds in ((0, 0.010), (1, 0.011), (3, 0.020))
        ]
        Calibration(cells=cells, identity=Identity(gpu="H200", sglang="0.5.23")).save(path)
        assert self.first(observe, 32, calibration=path).depth == 1

    def test_a_calibration_of_another_gpu(self, observe, tmp_path):
        path = tmp_path / "costs.json"
        Calibration(cells=[], identity=Identity(gpu="H200")).save(path)
        with pytest.raises(ConfigError, match="found one of H200"):
            self.first(observe, 8, calibration=path, identity=Identity(gpu="B200"))

    def test_a_calibration_of_another_version_is_told(self, observe, tmp_path, caplog):
        path = tmp_path / "costs.json"
        Calibration(cells=[], identity=Identity(sglang="0.5.23")).save(path)
        self.first(observe, 8, calibration=path, identity=Identity(sglang="0.5.24"))
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == "calibration_differed what=sglang measured_on=0.5.23 found=0.5.24"


class TestSwitching:
    def test_off_after_a_ramp_and_on_after_a_drain(self, policy_run):
        sizes = [*range(4, 129), *[128] * 300, *range(128, 3, -1), *[4] * 300]
        run = policy_run(
            Goodput, [(4, 300), *sizes], period=noisy(knee), acceptance=0.5, depths=(0, 3)
        )
        # Depth 3 delivers 1.875 tokens a request and takes 1.09 x 4 B / 64 rounds: off from 30 on.
        depths = run.depths
        assert 3 in depths[300:326]
        assert set(in_force(run)[341:700]) == {0}, repr(run)
        assert set(depths[-250:]) == {3}, repr(run)

    def test_after_a_jump_to_sizes_never_seen_a_few_rounds_decide(self, policy_run):
        run = policy_run(Goodput, [(4, 300), (100, 10)], period=noisy(knee), acceptance=0.8)
        # A probe of plain comes first; its outcome and those beside it arrive a round later.
        assert [plan.depth for plan in run.plans[:300] if not plan.probe][-1] == 3
        assert [plan.depth for plan in run.plans[300:] if not plan.probe][:2] == [3, 3]
        assert {plan.depth for plan in run.plans[306:] if not plan.probe} == {0}

    def test_after_a_jump_where_speculation_still_pays_it_goes_on(self, policy_run):
        run = policy_run(Goodput, [(1, 300), (100, 10)], period=noisy(flat), acceptance=0.8)
        assert {plan.depth for plan in run.plans[299:] if not plan.probe} == {3}

    def test_a_tie_does_not_flip(self, policy_run):
        # E(1) = 1.5 in 15 ms, and plain in 10.
        run = policy_run(
            Goodput,
            [(64, 3000)],
            period=noisy(lambda depth, size: 0.010 + 0.005 * (depth > 0)),
            acceptance=0.5,
            depths=(0, 1),
        )
        assert run.switches <= 6, repr(run)

    def test_a_better_depth_waits_its_turn(self, policy_run):
        run = policy_run(Goodput, [(64, 3000)], period=noisy(knee), acceptance=0.9)
        waiting = [plan for plan in run.plans if plan.blocked == HYSTERESIS]
        assert all(plan.gain is None and not plan.probe for plan in waiting)

    def test_a_collapse_and_a_recovery(self, policy_run):
        run = policy_run(
            Goodput,
            [(16, 2500)],
            period=noisy(flat),
            acceptance=lambda position, index: 0.01 if 800 <= index < 1500 else 0.7,
        )
        assert set(in_force(run)[200:780]) == {3}
        assert set(run.depths[816:820]) == {0}, repr(run)
        # Without guesses only probes can tell.
        assert set(run.depths[-400:]) == {3}, repr(run)

    def test_a_server_that_slows_down_changes_nothing(self, policy_run):
        slow = iter(range(10_000))
        period = noisy(knee)
        run = policy_run(
            Goodput,
            [(32, 2000)],
            period=lambda depth, size: period(depth, size) * (1.4 if next(slow) > 1000 else 1.0),
            acceptance=0.6,
        )
        assert set(in_force(run)[200:]) == {1}, repr(run)


class TestProbes:
    def test_they_are_short_and_apart(self, policy_run):
        run = policy_run(Goodput, [(64, 3000)], period=noisy(knee), acceptance=0.6)
        rounds = [index for index, plan in enumerate(run.plans) if plan.probe]
        starts = [index for index in rounds if index - 1 not in rounds]
        assert len(starts) > 3
        assert max(rounds.count(index) + (index + 1 in rounds) for index in starts) <= 2
        assert min(b - a for a, b in pairwise(starts)) >= 5
        assert {run.plans[index].reason for index in rounds} == {PROBE}

    def test_close_contenders_are_looked_at_and_hopeless_ones_are_not(self, policy_run):
        run = policy_run(Goodput, [(64, 4000)], period=noisy(knee), acceptance=0.15)
        # Plain 64 in 10 ms; depth 1 73.6 in 20.6 ms; depth 3 75 in 43.6 ms.
        assert set(in_force(run)) == {0}
        assert sum(plan.probe and plan.depth == 3 for plan in run.plans) <= 3

    def test_none_without_a_budget(self, policy_run):
        run = policy_run(
            Goodput,
            [(4, 1000), (64, 1000)],
            period=noisy(knee),
            options={"exploration": 0.0},
        )
        assert not any(plan.probe for plan in run.plans)

    def test_what_they_cost(self, policy_run):
        run = policy_run(Goodput, [(64, 8000)], period=noisy(knee), acceptance=0.55)
        best = max(
            64 * tokens / knee(depth, 64) for depth, tokens in ((0, 1), (1, 1.55), (3, 2.02))
        )
        lost = sum(
            best * knee(plan.depth, 64) - outcome.tokens
            for plan, outcome in zip(run.plans, run.outcomes, strict=True)
            if plan.probe
        )
        assert lost / run.tokens < 0.005

    def test_a_refused_probe_is_tried_again(self, policy_run):
        run = policy_run(
            Goodput,
            [(64, 600)],
            period=noisy(knee),
            acceptance=0.6,
            exploration_budget=0.0,
        )
        assert run.counters.probe_rounds == 0
        assert run.faults == 0
        # Nothing is known of what speculating costs, so it stays plain.
        assert set(run.depths) == {0}


class TestOptions:
    @pytest.mark.parametrize("value", [-0.1, 1.0])
    @pytest.mark.parametrize("name", ["exploration", "min_gain"])
    def test_shares(self, name, value):
        with pytest.raises(ConfigError, match=f"expected {name} from 0 to below 1"):
            Goodput(**{name: value})

    def test_it_uses_time(self):
        assert Goodput.uses_time is True


def test_equal_runs_are_equal(policy_run):
    runs = [
        policy_run(Goodput, [(8, 300), (80, 300)], period=noisy(knee), seed=3) for _ in range(2)
    ]
    assert runs[0].plans == runs[1].plans


def sizes_of(policy):
    """Lengths of everything the policy holds that could grow."""
    cost, acceptance = policy.cost, policy.acceptance
    return (
        sum(len(row) for row in cost._rows.values()),
        len(cost._upkeep._passes),
        len(acceptance._pool) + sum(map(len, acceptance._by_length)),
        len(policy._forecast._costs) // 65,
        len(policy._probing._pending) // 3,
    )


def test_memory_does_not_grow_with_rounds(observe):
    draw = random.Random(5)
    policy = Goodput()
    policy.configure(Limits(depths=DEPTHS))
    seen = []
    depth = 0
    for index in range(24_000):
        size = (1, 2, 8, 24, 64, 256)[index // 16 % 6]
        plan = policy.decide(observe(size, depth=depth, depth_age=index, round=index))
        accepted = tuple(draw.randint(0, plan.depth) for _ in range(4)) if plan.depth else ()
        policy.learn(
            Outcome(
                round=index,
                depth=plan.depth,
                planned=plan.depth,
                batch_size=4,
                accepted=accepted,
                tokens=size,
                period=knee(plan.depth, size) * draw.lognormvariate(0, 0.1),
                padded_batch_size=size,
                seq_lens=(100, 3000, 9000, 70_000)[: len(accepted)],
                upkeep=index % 4 == 0,
            )
        )
        if not plan.probe:
            depth = plan.depth
        if index % 8000 == 7999:
            seen.append(sizes_of(policy))
    assert seen[0] == seen[1] == seen[2]


numbers = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(1e-4, 1.0))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 3000),
            st.integers(-1, 3000),
            st.integers(0, 10**12),
            st.sampled_from((0, 1, 2, 3)),
            st.integers(0, 5),
            numbers,
            st.lists(st.integers(-1, 4), max_size=5),
            st.booleans(),
            st.sampled_from((None, 0, 1, 3, 7)),
        ),
        max_size=80,
    )
)
def test_any_observation_gives_a_candidate(rounds):
    policy = Goodput()
    policy.configure(Limits(depths=DEPTHS))
    for index, (size, padded, total, depth, age, period, accepted, upkeep, ran) in enumerate(
        rounds
    ):
        plan = policy.decide(
            Observation(
                batch_size=size,
                padded_batch_size=padded,
                running=size,
                waiting=0,
                seq_len_sum=total,
                seq_len_max=total,
                kv_free=0.5,
                depths=DEPTHS,
                depth=depth,
                depth_age=age,
                round=index,
            )
        )
        assert plan.depth in DEPTHS
        assert plan.gain is None or abs(plan.gain) < 1e12
        policy.learn(
            Outcome(
                round=index,
                depth=plan.depth if ran is None else ran,
                planned=plan.depth,
                batch_size=size,
                accepted=tuple(accepted),
                tokens=size,
                period=period,
                padded_batch_size=padded,
                seq_len_sum=total,
                upkeep=upkeep,
            )
        )
