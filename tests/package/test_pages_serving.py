"""
What a server supports, refuses, logs and shows is what the pages say.
"""

import ast
import json
import re
import sys
import tomllib
from pathlib import Path

from sglang_dynspec import Config
from sglang_dynspec.account.counters import Counters
from sglang_dynspec.loading.plugins import load_policy
from sglang_dynspec.policy import Limits
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec_hooks.contract import version as sglang_version
from sglang_dynspec_hooks.launch import finders
from sglang_dynspec_hooks.launch.refusals import RULES, Rule
from tests.core.by_hand import observation
from tests.package.conftest import ROOT, run
from tests.package.pages import page, quoted

LIMITS = page("limits")
OPERATING = page("operating")
HOOKS = ROOT / "hooks" / "sglang_dynspec_hooks"


def test_every_rule_is_on_the_page() -> None:
    refused, unproved = LIMITS.tables("rule")
    for rows, is_liftable in ((refused, False), (unproved, True)):
        written = {row["rule"].strip("`"): row["expected"] for row in rows}
        rules = {rule.name: rule for rule in RULES if rule.is_liftable is is_liftable}
        lacking = [_row(rule) for name, rule in rules.items() if name not in written]
        assert lacking == [], "docs/limits.md lacks these rows"
        assert written == {name: rule.expected for name, rule in rules.items()}
        assert [row["rule"] for row in rows if not row["why"]] == []


def _row(rule: Rule) -> str:
    return f"| `{rule.name}` | {rule.expected} | {rule.remedy} |"


def test_what_is_supported_is_what_is_checked() -> None:
    rows = {row[""]: row["what is supported"] for row in LIMITS.table("")}
    assert rows["SGLang"].startswith(f"{sglang_version.SUPPORTED.removeprefix('==')}.")
    assert sglang_version.ALLOW_VERSION in rows["SGLang"]
    assert sorted(quoted(rows["attention backends"])) == sorted(finders.BACKENDS)
    named = rows["algorithms"].partition(", with ")[0]
    assert tuple(named.split(", ")) == finders.ALGORITHMS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, last = re.findall(r"3\.(\d+)", rows["Python"])
    assert project["requires-python"] == f">=3.{first},<3.{int(last) + 1}"


_RESERVED = """
from types import SimpleNamespace
from unittest.mock import patch
from sglang.srt.managers import utils

def reserved(algorithm):
    spec = SimpleNamespace(
        speculative_algorithm=algorithm, speculative_eagle_topk=1, speculative_num_steps=3
    )
    with (
        patch.object(utils, "get_spec", lambda: spec),
        patch.object(utils, "max_speculative_num_draft_tokens", lambda: 4),
    ):
        return utils.compute_num_reserved_tokens()

print(*map(reserved, ("EAGLE", "EAGLE3", "STANDALONE", None)))
"""


def test_sglang_keeps_the_end_of_the_context_for_drafts() -> None:
    """
    As the page says: the largest depth + 1 tokens, and none for STANDALONE. NEXTN is EAGLE by then.
    """
    done = run([sys.executable, "-c", _RESERVED], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "4 4 0 0"


def test_a_healthy_start_is_logged_as_shown() -> None:
    (block,) = OPERATING.blocks("text")
    logged = [_pattern(text) for path in HOOKS.rglob("*.py") for text in _log_texts(path)]
    for line in block.splitlines():
        assert [each for each in logged if re.fullmatch(each, line)] != [], line


def _log_texts(path: Path) -> list[str]:
    """
    The texts of a module's calls of `logger.info`.
    """
    return [
        node.args[0].value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "logger.info"
        and isinstance(node.args[0], ast.Constant)
    ]


def _pattern(text: str) -> str:
    return ".+".join(re.escape(part) for part in re.split(r"%[.\d]*[sdf]", text))


def test_the_state_that_is_shown_has_these_keys() -> None:
    (block,) = OPERATING.blocks("json")
    shown = json.loads(block)
    config = Config().resolve(3)
    depths = config.depths or ()
    policy = load_policy(config, Limits(depths=depths))
    rounds = Rounds(policy=policy, config=config, depths=depths)
    rounds.plan(observation(depths=depths))
    state = rounds.summary()
    assert shown.keys() - state.keys() == set()
    assert shown["rounds_by_depth"].keys() == state["rounds_by_depth"].keys()
    decision = shown["decision"]
    assert decision.keys() - state["decision"].keys() == set()
    assert decision["policy"].keys() - state["decision"]["policy"].keys() == set()
    assert decision["policy"]["predicted"].keys() == state["rounds_by_depth"].keys()


def test_faults_are_counted_where_the_page_says() -> None:
    bridge = (HOOKS / "bridge" / "bridge.py").read_text()
    for row in OPERATING.table("fault"):
        (counter,) = quoted(row["counted as"])
        last = counter.rpartition(".")[2]
        assert last in Counters.__slots__ or f'"{last}"' in bridge, counter


def test_the_reserve_is_that_of_the_default_depth() -> None:
    largest = Config().resolve(None).depths[-1]  # type: ignore[index]
    assert f"{2 * (largest + 1)} at the default largest" in " ".join(LIMITS.text.split())
