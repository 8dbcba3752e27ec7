"""
Flags, keys, files and policies are those of the code, and the examples are accepted.
"""

import json
import re
import tomllib
from pathlib import Path

import yaml

from sglang_dynspec import Config
from sglang_dynspec.config.flags import FLAGS
from sglang_dynspec.loading.infos import policy_info
from sglang_dynspec.policies import DepthTable
from sglang_dynspec.replay.suites import BOUNDS
from tests.package.conftest import ROOT
from tests.package.pages import page, quoted

CONFIGURATION = page("configuration")
POLICIES = page("policies")


def test_the_flags_are_ours() -> None:
    rows = CONFIGURATION.table("flag")
    assert [row["flag"].strip("`") for row in rows] == [flag.usage for flag in FLAGS]


def test_the_keys_are_those_of_the_configuration() -> None:
    keys = {row["key"].strip("`"): row["default"] for row in CONFIGURATION.table("key")}
    assert list(keys) == list(Config.model_fields)
    for name, default in keys.items():
        value = Config.model_fields[name].default
        if default.startswith("`") and name != "options":
            written = default.strip("`")
            assert written == (value if isinstance(value, str) else json.dumps(value)), name


def test_the_policies_are_those_registered() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    registered = project["entry-points"]["sglang_dynspec.policies"]
    rows = {row["policy"].strip("`"): row["options"] for row in POLICIES.table("policy")}
    assert sorted(rows) == sorted(registered)
    for name, options in rows.items():
        assert quoted(options) == list(policy_info(name).options), name


def test_the_bounds_are_the_guards() -> None:
    rows = POLICIES.table("bound")
    assert {row["key"].strip("`") for row in rows} == set(BOUNDS)


def test_the_toml_file_is_accepted(tmp_path: Path) -> None:
    (text,) = CONFIGURATION.blocks("toml")
    path = tmp_path / "dynspec.toml"
    path.write_text(text)
    config = Config.load(flags=None, option_pairs=[], config_file=path, environ={})
    assert config.policy == "depth_table"
    assert config.resolve(3).depths == (0, 1, 3)


def test_the_yaml_file_says_the_same() -> None:
    (text,) = CONFIGURATION.blocks("yaml")
    settings = yaml.safe_load(text)
    assert {f"--{name}" for name in settings} <= {flag.name for flag in FLAGS}
    assert settings["enable-plugin"] == ["dynspec"]
    config = Config.load(
        flags={"policy": settings["dynspec-policy"]},
        option_pairs=settings["dynspec-option"],
        config_file=None,
        environ={},
    )
    assert config.options == {"table": {"1-16": 3, "17-64": 1, "65-": 0}}
    assert config.min_dwell == 8


def test_the_environment_is_accepted() -> None:
    exported = [words[1].split("=", 1) for words in CONFIGURATION.commands if words[0] == "export"]
    config = Config.load(flags=None, option_pairs=[], config_file=None, environ=dict(exported))
    assert (config.depths, config.watchdog, config.options) == (
        (0, 3),
        False,
        {"exploration": 0.001},
    )


def test_the_options_of_served_commands_are_accepted() -> None:
    pairs = [
        pair
        for name in ("configuration", "operating", "replay", "writing-a-policy")
        for words in page(name).commands
        if "--dynspec-option" in words
        for pair in words[words.index("--dynspec-option") + 1 :]
    ]
    # The calibration file of the example is not there.
    given = [pair for pair in pairs if not pair.startswith("calibration=")]
    assert sorted(given) == ["batch_size=16", "batch_size=16", "min_dwell=8"]
    config = Config.load(flags=None, option_pairs=given, config_file=None, environ={})
    assert (config.options, config.min_dwell) == ({"batch_size": 16}, 8)


def test_the_forms_of_a_table_mean_what_is_said() -> None:
    forms = [json.loads(code) for code in POLICIES.code if re.match(r'\{"|\[\[', code)]
    found = [
        _depths(DepthTable(**{option: form}))
        for option, form in zip(("table", "vllm", "trtllm"), forms, strict=True)
    ]
    # The last row of vLLM's form holds above it, and nothing of TensorRT-LLM's does.
    assert found == [[3, 1, 0], [3, 1, 1], [1, 0, 0]]


def _depths(policy: DepthTable) -> list[int]:
    """
    Its depths at 16, 64 and 65 requests.
    """
    return [
        next(row.depth for row in policy.rows if row.low <= size <= (row.high or size))
        for size in (16, 64, 65)
    ]
