import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_dynspec import Config, ConfigError
from sglang_dynspec.config import ResolvedConfig
from tests.core.loading import load, refusal


def test_the_defaults():
    config = load()
    assert config == Config()
    assert config.policy == "goodput"
    assert config.options == {}
    assert (config.depths, config.upkeep_window) == (None, None)
    assert (config.min_dwell, config.dead_band) == (4, 0.01)
    assert (config.switches_per_1000, config.exploration_budget) == (10, 0.005)
    assert (config.never_worse, config.watchdog, config.calibration) == (None, True, None)
    assert (config.error_budget, config.slow_policy_us) == (8, 1000.0)
    assert (config.exact_sampling, config.allow_unproved) == (True, False)


class TestRefusals:
    @pytest.mark.parametrize(
        ("pair", "expected"),
        [
            ("min_dwell=x", "min_dwell to be a valid integer"),
            ("min_dwell=1.5", "min_dwell to be a valid integer"),
            ("min_dwell=true", "min_dwell to be a valid integer"),
            ("min_dwell=-1", "min_dwell to be greater than or equal to 0"),
            ("dead_band=NaN", "dead_band to be a finite number"),
            ("dead_band=-0.1", "dead_band to be greater than or equal to 0"),
            ("slow_policy_us=0", "slow_policy_us to be greater than 0"),
            ("switches_per_1000=0", "switches_per_1000 to be greater than or equal to 1"),
            ("switches_per_1000=1001", "switches_per_1000 to be less than or equal to 1000"),
            ("exploration_budget=-0.1", "exploration_budget to be greater than or equal to 0"),
            ("exploration_budget=2", "exploration_budget to be less than or equal to 1"),
            ("never_worse=maybe", "never_worse to be a valid boolean"),
            ("watchdog=2", "watchdog to be a valid boolean"),
            ("error_budget=-1", "error_budget to be greater than or equal to 0"),
            ("exact_sampling=2", "exact_sampling to be a valid boolean"),
            ("upkeep_window=-1", "upkeep_window to be greater than or equal to 0"),
            ("options=3", "options to be a valid dictionary"),
            ("seed=1.5", "seed to be a valid integer"),
        ],
    )
    def test_a_wrong_value(self, pair, expected):
        error = refusal(pair)
        assert error.expected == expected
        assert error.found == f"--dynspec-option {pair}"

    @pytest.mark.parametrize(
        ("depths", "found"),
        [
            ("0", "[0]"),
            ("0,17", "17 in [0, 17]"),
            ("0,-1", "-1 in [0, -1]"),
            ("1,1", "a repetition in [1, 1]"),
            ("0,true", "True in [0, True]"),
            ("0,1.0", "1.0 in [0, 1.0]"),
            ("0,x", "'x' in [0, 'x']"),
            ("[]", "[]"),
            ("[[1]]", "[1] in [[1]]"),
        ],
    )
    def test_depths(self, depths, found):
        error = refusal(f"depths={depths}")
        assert error.expected.startswith("depths to be whole numbers from 0 to 16, each once")
        assert error.found == f"{found} (--dynspec-option depths={depths})"

    def test_depths_that_are_no_list(self):
        assert refusal(flags={"depths": 3}).found == "3 (depths=3)"

    def test_the_place_is_named(self, toml):
        assert "seed in " in refusal(file=toml('seed = "1"')).found
        found = refusal(environ={"SGLANG_DYNSPEC_SEED": "x"}).found
        assert found == "SGLANG_DYNSPEC_SEED=x in the environment"
        assert refusal(flags={"seed": "1"}).found == "seed='1'"

    def test_options_json_cannot_hold(self):
        error = refusal(flags={"options": {"a": {1, 2}}})
        assert error.expected == "options to be JSON values"
        assert "{1, 2}" in error.found
        assert "nan" in refusal(flags={"options": {"a": float("nan")}}).found

    def test_a_missing_file(self, tmp_path):
        error = refusal(file=tmp_path / "none.toml")
        assert error.expected == f"a readable file at {tmp_path / 'none.toml'}"
        assert error.found == "FileNotFoundError: No such file or directory"

    @pytest.mark.parametrize("data", [b"policy = ", b"\xff", b"seed = " + b"[" * 100_000])
    def test_a_file_that_is_not_toml(self, tmp_path, data):
        path = tmp_path / "bad.toml"
        path.write_bytes(data)
        assert refusal(file=path).expected == f"TOML in {path}"

    def test_a_trace_where_there_is_no_directory(self, tmp_path):
        error = refusal(flags={"trace": tmp_path / "none" / "trace"})
        assert error.found == f"no directory {tmp_path / 'none'}"

    def test_a_trace_stays_where_it_was_checked(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert load("trace=here.jsonl").trace == tmp_path / "here.jsonl"

    def test_a_calibration_that_is_not_there(self, tmp_path):
        error = refusal(f"calibration={tmp_path}/none.json")
        assert error.expected == f"a readable calibration file at {tmp_path}/none.json"
        assert error.found == "FileNotFoundError: No such file or directory"
        assert refusal(flags={"calibration": tmp_path}).found.startswith("IsADirectoryError")

    def test_a_calibration_stays_where_it_was_checked(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "here.json").touch()
        environ = {"SGLANG_DYNSPEC_CALIBRATION": "here.json"}
        assert load(environ=environ).calibration == tmp_path / "here.json"

    @pytest.mark.parametrize("field", ["trace", "calibration"])
    def test_a_name_that_no_file_has(self, toml, field):
        error = refusal(file=toml(f'{field} = "a\\u0000b"'))
        assert (error.expected, "a\\x00b" in error.found) == ("the name of a file", True)
        assert refusal(flags={field: "\ud800"}).expected == "the name of a file"

    def test_a_name_that_is_too_long(self):
        assert refusal(flags={"trace": "a" * 300}).found == "OSError: File name too long"
        assert refusal(flags={"calibration": "a" * 300}).found == "OSError: File name too long"

    def test_a_trace_that_is_a_directory(self, tmp_path):
        assert refusal(flags={"trace": tmp_path}).found == "a directory of that name"

    def test_a_trace_that_may_not_be_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr("os.access", lambda path, mode: False)
        error = refusal(f"trace={tmp_path}/trace")
        assert error.found == "no permission to write there"


def test_the_configuration_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 3


class TestResolve:
    @pytest.mark.parametrize(
        ("depths", "largest", "resolved", "window"),
        [
            (None, None, (0, 1, 3), 4),
            (None, 1, (0, 1), 2),
            (None, 2, (0, 1, 2), 3),
            (None, 3, (0, 1, 3), 4),
            (None, 5, (0, 1, 3, 5), 4),
            ([2], None, (0, 2), 3),
            ([3, 1], 3, (0, 1, 3), 4),
        ],
    )
    def test_depths_and_window(self, depths, largest, resolved, window):
        config = Config(depths=depths).resolve(largest)
        assert (config.depths, config.upkeep_window) == (resolved, window)
        assert config.resolve(largest) == config

    def test_what_was_set_stays(self):
        assert Config(upkeep_window=0).resolve(3).upkeep_window == 0
        assert Config(upkeep_window=4).resolve(3).upkeep_window == 4

    def test_a_depth_above_the_largest(self):
        with pytest.raises(ConfigError, match="no depth above the largest, 3") as caught:
            Config(depths=[1, 5]).resolve(3)
        assert caught.value.found == "5 in depths=[0, 1, 5]"

    def test_the_largest_is_not_among_the_depths(self):
        with pytest.raises(ConfigError, match="the largest depth, 5") as caught:
            Config(depths=[1, 3]).resolve(5)
        assert caught.value.remedy == "add 5, or set --speculative-num-steps=3"

    def test_a_window_outside_its_range(self):
        with pytest.raises(ConfigError, match="upkeep_window from 0 to 4") as caught:
            Config(upkeep_window=5).resolve(3)
        assert caught.value.found == "5"

    @pytest.mark.parametrize("largest", [0, 17])
    def test_a_largest_depth_outside_its_range(self, largest):
        with pytest.raises(ConfigError, match="a largest depth from 1 to 16"):
            Config().resolve(largest)


class TestJson:
    def test_a_damaged_text_is_refused(self):
        with pytest.raises(ConfigError, match="the configuration to be valid"):
            Config.from_json("{")
        with pytest.raises(ConfigError, match="depths to be whole numbers"):
            Config.from_json('{"depths": [99]}')

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )  # fmt: skip

    @given(
        options=st.dictionaries(st.text(), json_values, max_size=3),
        depths=st.none() | st.sets(st.integers(1, 16), min_size=1).map(tuple),
        window=st.none() | st.integers(0, 17),
        trace=st.none() | st.just(Path("a b/t.jsonl")),
        dead_band=st.floats(0, 1e6),
        seed=st.integers(),
    )
    def test_round_trip(self, *, options, depths, window, trace, dead_band, seed):
        config = Config(
            options=options,
            depths=depths,
            upkeep_window=window,
            trace=trace,
            dead_band=dead_band,
            seed=seed,
        )
        assert Config.from_json(config.to_json()) == config
        json.loads(config.to_json())

    def test_a_resolved_configuration_round_trips(self):
        config = Config(options={"table": {"1-": 1}}).resolve(5)
        assert ResolvedConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("window", [-1, 18])
def test_a_resolved_configuration_keeps_the_bounds(window):
    with pytest.raises(ConfigError, match="upkeep_window"):
        ResolvedConfig.from_json(json.dumps({"depths": [0, 3], "upkeep_window": window}))


def test_a_file_whose_name_json_cannot_hold_is_refused():
    with pytest.raises(ConfigError, match="the name of a file"):
        load(flags={"trace": "half \udcff"})
