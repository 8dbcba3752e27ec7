"""The harness that policy authors use, used as they use it."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from sglang_dynspec import ConfigError, Plan, Policy
from sglang_dynspec.policies import Always
from sglang_dynspec.testing import assert_lossless, engine, run_policy

pytest_plugins = ["pytester", "sglang_dynspec.testing"]


class Failing(Policy):
    def decide(self, observation):
        raise ZeroDivisionError(observation.round)


class TestPolicyRun:
    def test_a_policy_an_instance_or_a_name(self, policy_run):
        for policy in (Always, Always(), "always", "sglang_dynspec.policies:Always"):
            assert policy_run(policy, [1, 1]).depths == [3, 3]

    def test_options(self, policy_run):
        assert policy_run("always", [1], options={"depth": 1}).depths == [1]
        with pytest.raises(ConfigError, match="did you mean depth"):
            policy_run(Always, [1], options={"dept": 1})
        with pytest.raises(TypeError, match="not with an instance"):
            policy_run(Always(), [1], options={"depth": 1})

    def test_rounds_and_phases(self, policy_run):
        run = policy_run("never", [5, (2, 3), (7, 1)])
        assert run.batch_sizes == [5, 2, 2, 2, 7]
        assert run.tokens == 5 + 2 * 3 + 7

    @pytest.mark.parametrize(
        ("acceptance", "accepted"),
        [
            (1.0, 3),
            (0.0, 0),
            ([1.0, 0.0], 1),
            ([1.0], 3),
            (lambda position, index: position <= index, None),
        ],
    )
    def test_acceptance(self, policy_run, acceptance, accepted):
        run = policy_run("always", [2, 2, 2], acceptance=acceptance)
        expected = [accepted] * 3 if accepted is not None else [0, 1, 2]
        assert [outcome.accepted for outcome in run.outcomes] == [(n, n) for n in expected]

    def test_a_seed_decides_it_all(self, policy_run):
        runs = [policy_run("always", [8] * 20, acceptance=0.5, seed=seed) for seed in (1, 1, 2)]
        assert runs[0].outcomes == runs[1].outcomes
        assert runs[0].outcomes != runs[2].outcomes

    def test_acceptance_is_a_probability(self, policy_run):
        run = policy_run("always", [64] * 100, options={"depth": 1}, acceptance=0.7)
        assert run.counters.summary()["acceptance_rate"] == pytest.approx(0.7, abs=0.03)

    @pytest.mark.parametrize("lag", [0, 1])
    def test_lag(self, policy_run, lag):
        order = []

        class Ordered(Policy):
            def decide(self, observation):
                order.append(("decide", observation.round))
                return Plan(depth=1)

            def learn(self, outcome):
                order.append(("learn", outcome.round))

        policy_run(Ordered, [1, 1], lag=lag)
        overlapped = [("decide", 0), ("decide", 1), ("learn", 0), ("learn", 1)]
        assert order == (overlapped if lag else sorted(order, key=lambda step: step[1]))

    def test_periods(self, policy_run):
        run = policy_run("always", [4], period=lambda depth, size: depth + size / 10)
        assert run.outcomes[0].period == 3.4
        assert policy_run("always", [4]).outcomes[0].period is None

    def test_the_guard_is_the_real_one(self, policy_run):
        run = policy_run(Failing, [1] * 5, error_budget=2)
        assert (run.faults, run.depths) == (3, [0] * 5)
        assert run.share(0) == 1.0
        assert run.share(3) == 0.0

    def test_a_repr_tells_all(self, policy_run):
        run = policy_run("threshold", [(4, 20), (64, 20)], acceptance=1.0)
        assert repr(run).splitlines() == [
            "<PolicyRun of Threshold: 40 rounds, 1 switches, 1600 tokens, 0 faults",
            "  rounds     0 to    19: batch    4, depth 3  (within_threshold)",
            "  rounds    20 to    39: batch   64, depth 0  (above_threshold)>",
        ]

    def test_a_repr_shows_faults_and_stays_short(self, policy_run):
        shown = repr(policy_run(Failing, range(200), error_budget=500)).splitlines()
        assert len(shown) == 1 + 24 + 1 + 1
        assert shown[-2] == "  ..."
        assert (
            "log: policy_failed policy=Failing method=decide error='ZeroDivisionError: 0"
            in shown[-1]
        )

    def test_no_rounds(self, policy_run):
        assert policy_run("always", []).share(3) == 0.0

    def test_the_fixture_is_the_function(self, policy_run):
        assert policy_run is run_policy


CONTRACT = """
    from sglang_dynspec import Plan, Policy
    from sglang_dynspec.testing import PolicyContract

    pytest_plugins = ["sglang_dynspec.testing"]

    class Mine(Policy):
        def __init__(self, *, depth: int = 3) -> None:
            self.depth = depth
            self.count = 0

        def decide(self, observation):
            {decide}

        def learn(self, outcome):
            {learn}

    class TestMine(PolicyContract):
        policy = Mine
        options = {{"depth": 1}}
"""


class TestPolicyContract:
    def run(self, pytester, decide="return Plan(depth=observation.depths[1])",
            learn="pass"):  # fmt: skip
        pytester.makepyfile(CONTRACT.format(decide=decide, learn=learn))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error")

    def test_a_good_policy_passes(self, pytester):
        self.run(pytester).assert_outcomes(passed=5)

    @pytest.mark.parametrize(
        ("decide", "said"),
        [
            ("return Plan(depth=2)", "blocked='') is no candidate of"),
            ("return 3", "decide() returned 3, not a Plan, for Observation(batch_size=0,"),
            ("return Plan(depth=True)", "has a depth that is no int"),
        ],
    )
    def test_garbage_fails(self, pytester, decide, said):
        result = self.run(pytester, decide)
        assert result.parseoutcomes()["failed"] >= 2
        assert said in result.stdout.str()

    def test_an_empty_batch_is_tried(self, pytester):
        result = self.run(pytester, "return Plan(depth=0 if 1 / observation.batch_size else 1)")
        assert result.parseoutcomes()["failed"] >= 1
        result.stdout.fnmatch_lines(["*ZeroDivisionError*"])

    def test_a_single_depth_is_tried(self, pytester):
        result = self.run(pytester, "return Plan(depth=observation.depths[2])")
        result.assert_outcomes(passed=4, failed=1)
        result.stdout.fnmatch_lines(["FAILED *test_plans_candidates_when_there_is_one_depth*"])

    def test_chance_is_found(self, pytester):
        result = self.run(pytester, "import random; return Plan(depth=random.choice((0, 1)))")
        result.assert_outcomes(passed=3, failed=2)
        result.stdout.fnmatch_lines(["FAILED *test_is_deterministic*"])

    def test_learning_is_tried(self, pytester):
        result = self.run(pytester, learn="self.count += 1 / len(outcome.accepted)")
        assert result.parseoutcomes()["failed"] >= 2
        result.stdout.fnmatch_lines(["FAILED *test_learns_from_outcomes_of_any_depth*"])

    def test_a_fault_behind_the_guard_is_shown(self, pytester):
        result = self.run(pytester, "return Plan(depth=9 if observation.seq_len_max == 512 else 0)")
        result.stdout.fnmatch_lines(["FAILED *test_serves_without_a_fault*", "*1 failed*4 passed*"])
        assert "log: policy_failed policy=Mine" in result.stdout.str()


class TestPlugin:
    def test_the_conftest_way(self, pytester):
        pytester.makeconftest('pytest_plugins = ["sglang_dynspec.testing"]')
        pytester.makepyfile(
            """
            import os

            def test_it(policy_run):
                assert policy_run("threshold", [(4, 50), (64, 50)]).share(0) == 0.5
            """
        )
        result = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider")
        result.assert_outcomes(passed=1)

    def test_nothing_is_automatic(self, pytester):
        pytester.makeconftest('pytest_plugins = ["sglang_dynspec.testing"]')
        pytester.makepyfile(
            """
            def test_it(request):
                assert not {"policy_run", "dynspec_engine"} & set(request.fixturenames)
            """
        )
        pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)

    def test_importing_it_changes_no_environment(self):
        code = (
            "import os; a = dict(os.environ); import sglang_dynspec.testing; print(a == os.environ)"
        )

        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout == "True\n"


class TestEngineFixture:
    @pytest.fixture
    def found(self, monkeypatch):
        """Stand in for what the entry point loads."""

        def put(load):
            class Found(EntryPoint):
                def load(self):
                    return load()

            entries = [Found(name="engine", value="x:y", group="g")] if load else []
            monkeypatch.setattr(engine, "entry_points", lambda **_: entries)

        return put

    def start(self, tmp_path_factory):
        # The fixture's own function: a session fixture would be made only once.
        return engine.dynspec_engine.__wrapped__(tmp_path_factory)

    def test_it_hands_out_the_factory_and_closes_it(self, found, tmp_path_factory):
        closed = []

        class Factory:
            def __init__(self, paths):
                self.paths = paths

            def close(self):
                closed.append(self)

        found(lambda: Factory)
        fixture = self.start(tmp_path_factory)
        factory = next(fixture)
        assert factory.paths is tmp_path_factory
        assert closed == []
        assert next(fixture, None) is None
        assert closed == [factory]

    def test_the_extra_is_missing(self, found, tmp_path_factory):
        def load():
            raise ModuleNotFoundError("No module named 'sglang'")

        found(load)
        with pytest.raises(pytest.fail.Exception, match="No module named 'sglang'; pip install"):
            next(self.start(tmp_path_factory))

    def test_the_entry_point_is_missing(self, found, tmp_path_factory):
        found(None)
        with pytest.raises(pytest.fail.Exception, match="expected the extra"):
            next(self.start(tmp_path_factory))


class TestLossless:
    def test_equal(self):
        assert_lossless([[1, 2], []], [(1, 2), []])

    def test_the_first_difference_is_named(self):
        plain = [[1], list(range(20)), [3]]
        dynspec = [[1], [*range(9), 99, *range(10, 20)], [4]]
        with pytest.raises(AssertionError) as caught:
            assert_lossless(plain, dynspec)
        assert str(caught.value).splitlines() == [
            "outputs differ in 2 of 3 requests; first in request 1 at position 9",
            "  plain:   ... 4 5 6 7 8 9 10 11 12 13 14 ... (20 tokens)",
            "  dynspec: ... 4 5 6 7 8 99 10 11 12 13 14 ... (20 tokens)",
        ]

    def test_one_is_shorter(self):
        with pytest.raises(AssertionError, match="first in request 0 at position 2"):
            assert_lossless([[1, 2, 3]], [[1, 2]])

    def test_a_request_is_missing(self):
        with pytest.raises(AssertionError, match="2 plain outputs, 1 dynspec outputs"):
            assert_lossless([[1], [2]], [[1]])
