"""
The README says what is so: its code runs, its tables are complete, its examples are accepted.
"""

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from sglang_dynspec import Config
from sglang_dynspec.cli import build_app
from sglang_dynspec.config.flags import FLAGS
from sglang_dynspec_hooks.contract import version as sglang_version
from tests.package.conftest import ROOT, LightEnvironment, run

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def modules() -> dict[str, str]:
    """
    The blocks that are whole modules, by the file name in their first line.
    """
    named = [(re.match(r"# (\w+\.py)\n", block), block) for block in blocks("python")]
    return {match[1]: block for match, block in named if match}


def table(heading: str) -> dict[str, list[str]]:
    """
    The rows of the table whose first heading is given: first cell to the other cells.
    """
    lines = iter(README.splitlines())
    next(line for line in lines if line.startswith(f"| {heading} |"))
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, *others = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        rows[first.strip("`")] = others
    rows.pop("---")
    return rows


@pytest.fixture
def project(light: LightEnvironment) -> Path:
    """
    The README's modules in a directory, with the entry point of the observer installed.
    """
    directory = light.directory / "readme"
    info = directory / "watch-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    for name, source in modules().items():
        (directory / name).write_text(source)
    (entry_point,) = [block for block in blocks("toml") if "entry-points" in block]
    (group, entries), *_ = tomllib.loads(entry_point)["project"]["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: watch\nVersion: 1\n")
    return directory


def test_policy_test_and_observer_take_less_than_forty_lines() -> None:
    assert sorted(modules()) == ["mine.py", "test_mine.py", "watch.py"]
    # The first line of each is the name of its file, not code.
    assert sum(len(block.splitlines()) - 1 for block in modules().values()) < 40


def test_the_policys_tests_pass_without_an_engine(light: LightEnvironment, project: Path) -> None:
    arguments = ["-m", "pytest", "-q", "-k", "not changes_no_token"]
    done = light.run(*arguments, "test_mine.py", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed, 1 deselected" in done.stdout


@pytest.mark.engine
@pytest.mark.slow
def test_the_policys_tests_pass_with_sglangs_engine(project: Path) -> None:
    done = run([sys.executable, "-m", "pytest", "-q", "test_mine.py"], cwd=project)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert "7 passed" in done.stdout


_SERVE = """
from sglang_dynspec.loading.plugins import find_policy, plugin_manager
plugin_manager().hook.dynspec_depth_changed(old=3, new=0, reason="many and short")
print(find_policy("mine:LongOrFew").__doc__)
"""


def test_observer_and_policy_are_found(light: LightEnvironment, project: Path) -> None:
    done = light.run("-c", _SERVE, cwd=project, env={"PYTHONPATH": str(project)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "depth 3 -> 0: many and short",
        "Speculate for few requests, or for long contexts.",
    ]


def test_the_flags_are_ours() -> None:
    assert list(table("flag")) == [flag.usage for flag in FLAGS]


def test_the_keys_are_those_of_the_configuration() -> None:
    keys = table("key")
    assert list(keys) == list(Config.model_fields)
    for name, (default, _) in keys.items():
        value = Config.model_fields[name].default
        if default.startswith("`") and name != "options":
            written = default.strip("`")
            assert written == (value if isinstance(value, str) else json.dumps(value)), name


def test_the_policies_are_those_registered() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    registered = project["entry-points"]["sglang_dynspec.policies"]
    assert sorted(table("policy")) == sorted(registered)


def test_the_toml_file_is_accepted(tmp_path: Path) -> None:
    (text,) = [block for block in blocks("toml") if "entry-points" not in block]
    path = tmp_path / "dynspec.toml"
    path.write_text(text)
    config = Config.load(flags=None, option_pairs=[], config_file=path, environ={})
    assert config.policy == "depth_table"
    assert config.resolve(3).depths == (0, 1, 3)


def test_the_yaml_file_says_the_same(tmp_path: Path) -> None:
    import yaml

    (text,) = blocks("yaml")
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


def test_the_commands_exist() -> None:
    commands = {command.name for command in build_app().registered_commands}
    mentioned = set(re.findall(r"\bdynspec ([a-z]+)\b(?=[^\n]*)", "\n".join(_code())))
    assert mentioned
    assert mentioned <= commands
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)\b", "\n".join(_code()))) <= targets


def test_the_serve_command_parses() -> None:
    (command,) = [block for block in blocks("console") if "sglang serve" in block]
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:2] == ["sglang", "serve"]
    assert words[-2:] == ["--enable-plugin", "dynspec"]


def test_the_supported_range_is_the_one_that_is_checked() -> None:
    (row,) = [line for line in README.splitlines() if line.startswith("| SGLang |")]
    assert row.startswith(f"| SGLang | {sglang_version.SUPPORTED.removeprefix('==')}.")
    assert sglang_version.ALLOW_VERSION in row


def _code() -> list[str]:
    """
    Console blocks, and code within the text.
    """
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    return [*blocks("console"), *re.findall(r"`([^`]+)`", prose)]
