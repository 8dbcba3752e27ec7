"""
What a server supports, refuses, logs and shows is what the pages say.
"""

import json
import re
import tomllib

from sglang_dynspec import Config
from sglang_dynspec.account.counters import Counters
from sglang_dynspec.loading.plugins import load_policy
from sglang_dynspec.policy import Limits
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec_hooks.contract import version as sglang_version
from sglang_dynspec_hooks.launch import finders
from sglang_dynspec_hooks.launch.refusals import RULES, Rule
from tests.core.scripted import observation
from tests.package.conftest import ROOT
from tests.package.pages import ask_sglang, page, quoted

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


def test_sglang_keeps_the_end_of_the_context_for_drafts() -> None:
    """
    As the page says: the largest depth + 1 tokens, and none for STANDALONE. NEXTN is EAGLE by then.
    """
    assert ask_sglang()["reserved"] == {"EAGLE": 4, "EAGLE3": 4, "STANDALONE": 0}


def test_a_healthy_start_is_logged_as_shown() -> None:
    (block,) = OPERATING.blocks("text")
    modules = [path.read_text() for path in HOOKS.rglob("*.py")]
    for line in block.splitlines():
        event, *fields = re.sub(r"'.*?'", "text", line).split()
        names = [field.partition("=")[0] for field in fields]
        assert any(
            f'"{event}"' in module
            and all(f"{name}=" in module or f'"{name}"' in module for name in names)
            for module in modules
        ), line


def test_the_state_that_is_shown_has_these_keys() -> None:
    (block,) = OPERATING.blocks("json")
    shown = json.loads(block)
    config = Config().resolve(3)
    policy = load_policy(config, Limits(depths=config.depths))
    rounds = Rounds(policy=policy, config=config)
    rounds.plan(observation(depths=config.depths))
    state = rounds.summary()
    assert shown.keys() - state.keys() == set()
    assert shown["rounds_by_depth"].keys() == state["rounds_by_depth"].keys()
    decision = shown["decision"]
    assert decision.keys() - state["decision"].keys() == set()
    assert decision["policy"].keys() - state["decision"]["policy"].keys() == set()
    assert decision["policy"]["predicted"].keys() == state["rounds_by_depth"].keys()


def test_faults_are_counted_where_the_page_says() -> None:
    upkeep = (HOOKS / "worker" / "upkeep.py").read_text()
    for row in OPERATING.table("fault"):
        (counter,) = quoted(row["counted as"])
        key = counter.removeprefix("upkeep.")
        known = f'"{key}":' in upkeep if key != counter else key in Counters.__slots__
        assert known, counter


def test_the_reserve_is_that_of_the_default_depth() -> None:
    largest = Config().resolve(None).depths[-1]
    assert f"{2 * (largest + 1)} at the default largest" in " ".join(LIMITS.text.split())
