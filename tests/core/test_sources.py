"""Where configuration comes from, and what wins."""

import pytest

from sglang_dynspec import Config
from tests.core.loading import load, refusal


class TestPrecedence:
    def test_each_source_wins_over_the_one_below(self, toml):
        environ = {f"SGLANG_DYNSPEC_{name}": "1" for name in ("MIN_DWELL", "ERROR_BUDGET", "SEED")}
        environ["SGLANG_DYNSPEC_DEAD_BAND"] = "0.1"
        file = toml("min_dwell = 2\nerror_budget = 2\nseed = 2")
        config = load("min_dwell=4", flags={"min_dwell": 3, "error_budget": 3}, file=file,
                      environ=environ)  # fmt: skip
        assert config.min_dwell == 4
        assert config.error_budget == 3
        assert config.seed == 2
        assert config.dead_band == 0.1
        assert config.slow_policy_us == 1000.0

    def test_a_flag_that_was_not_given_wins_over_nothing(self, toml):
        config = load(flags={"policy": None}, file=toml('policy = "never"'))
        assert config.policy == "never"

    def test_a_later_pair_wins(self):
        assert load("seed=1", "seed=2", "a=1", "a=2").options == {"a": 2}
        assert load("seed=1", "seed=2").seed == 2

    def test_options_of_one_policy_are_merged(self, toml):
        file = toml('policy = "threshold"\n[options]\nbatch_size = 8\nhysteresis = 1')
        assert load("batch_size=16", file=file).options == {"batch_size": 16, "hysteresis": 1}

    def test_options_stay_behind_with_their_policy(self, toml):
        file = toml('policy = "threshold"\n[options]\nbatch_size = 8')
        config = load("depth=1", flags={"policy": "always"}, file=file)
        assert (config.policy, config.options) == ("always", {"depth": 1})

    def test_options_without_a_policy_belong_to_the_default(self, toml):
        file = toml("[options]\nmin_gain = 0.05")
        assert load(flags={"policy": "never"}, file=file).options == {}
        assert load(flags={"policy": "goodput"}, file=file).options == {"min_gain": 0.05}


class TestPairs:
    @pytest.mark.parametrize(
        ("pair", "field", "value"),
        [
            ("depths=0,1,3", "depths", (0, 1, 3)),
            ("depths=[0, 2]", "depths", (0, 2)),
            ("depths=3", "depths", (0, 3)),
            ("min_dwell=7", "min_dwell", 7),
            ("dead_band=1", "dead_band", 1.0),
            ("exact_sampling=false", "exact_sampling", False),
            ("exact_sampling=0", "exact_sampling", False),
            ("allow_unproved=yes", "allow_unproved", True),
            ("never_worse=on", "never_worse", True),
            ("never_worse=0", "never_worse", False),
            ("never_worse=null", "never_worse", None),
            ("watchdog=off", "watchdog", False),
            ("policy=never", "policy", "never"),
            ("upkeep_window=null", "upkeep_window", None),
            ('options={"a": 1}', "options", {"a": 1}),
        ],
    )
    def test_a_field(self, pair, field, value):
        assert getattr(load(pair), field) == value

    @pytest.mark.parametrize(
        ("pair", "value"),
        [
            ("a=1", 1),
            ("a=x", "x"),
            ("a=[1, 2]", [1, 2]),
            ("a=x=y", "x=y"),
            ("a=", ""),
            ("a=1,2", "1,2"),
            ("a=" + "[" * 100_000, "[" * 100_000),
        ],
        ids=lambda text: str(text)[:8],
    )
    def test_an_option(self, pair, value):
        assert load(pair).options == {"a": value}

    @pytest.mark.parametrize("pair", ["batch_size", "=3", ""])
    def test_no_pair(self, pair):
        error = refusal(pair)
        assert error.expected == "--dynspec-option KEY=VALUE"
        assert error.found == repr(pair)


class TestUnknownKeys:
    def test_in_the_file(self, toml):
        error = refusal(file=toml("min_dwel = 3"))
        assert "'min_dwel'" in error.found
        assert "dynspec.toml" in error.found
        assert error.remedy.startswith("did you mean min_dwell? accepted: allow_unproved, ")

    def test_in_the_arguments(self):
        error = refusal(flags={"polcy": "never"})
        assert error.remedy.startswith("did you mean policy?")

    def test_in_the_environment(self):
        error = refusal(environ={"SGLANG_DYNSPEC_SEDE": "1"})
        assert error.found == "'sede' in the environment, as SGLANG_DYNSPEC_SEDE"
        assert error.remedy.startswith("did you mean seed?")

    def test_variables_of_the_engine_side_and_of_others_are_left_alone(self):
        environ = {"SGLANG_DYNSPEC_CPU_ENGINE": "1", "SGLANG_DYNSPEC": "{}", "SGLANG_X": "1"}
        assert load(environ=environ) == Config()
