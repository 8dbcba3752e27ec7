"""
The policy, the test and the observer of "Writing a policy" run as they stand there.
"""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.package.conftest import LightEnvironment, run
from tests.package.pages import page

PAGE = page("writing-a-policy")


def modules() -> dict[str, str]:
    """
    The blocks that are whole modules, by the file name in their first line.
    """
    named = [(re.match(r"# (\w+\.py)\n", block), block) for block in PAGE.blocks("python")]
    return {match[1]: block for match, block in named if match}


@pytest.fixture
def project(light: LightEnvironment) -> Path:
    """
    The modules in a directory, with the page's entry points installed.
    """
    directory = light.directory / "writing"
    info = directory / "watch-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    for name, source in modules().items():
        (directory / name).write_text(source)
    lines = []
    for block in PAGE.blocks("toml"):
        for group, entries in tomllib.loads(block)["project"]["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
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
print(find_policy("mine:LongOrFew") is find_policy("long_or_few"))
print(find_policy("mine:LongOrFew").__doc__)
"""


def test_observer_and_policy_are_found(light: LightEnvironment, project: Path) -> None:
    done = light.run("-c", _SERVE, cwd=project, env={"PYTHONPATH": str(project)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "depth 3 -> 0: many and short",
        "True",
        "Speculate for few requests, or for long contexts.",
    ]
