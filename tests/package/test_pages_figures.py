"""
The figures on the pages are those of the results on file.
"""

import json
from statistics import median
from typing import Any

import pytest

from sglang_dynspec.replay.suite_run import mean_share
from tests.package.conftest import ROOT
from tests.package.pages import README, page, quoted

RESULTS = ROOT / "benchmarks" / "results"
MEASURED = page("measured")

#: Run and engine of each column of what the policy makes of it, as `h200_modes.json` names them.
_COLUMNS = {
    "SGLang at depth 1": (3, "fixed_1"),
    "depth 2": (2, "fixed_2"),
    "depth 3": (3, "fixed_3"),
    "depth 5": (2, "fixed_5"),
    "SGLang's `--speculative-adaptive`": (4, "stock"),
    "the option forced to no steps": (5, "stock_off"),
    "`goodput` among 0, 1, 3": (1, "auto"),
}


def load(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def test_what_a_plain_round_costs() -> None:
    rows = load("h200_off_tax.json")["off_tax"]
    found = {(row["concurrency"], row["upkeep_window"]): row for row in rows}
    plain, _ = MEASURED.tables("concurrency")
    assert [row["concurrency"] for row in plain] == ["1", "8", "32", "64", "128", "256"]
    for row in plain:
        off, window = (found[int(row["concurrency"]), each] for each in (0, 4))
        server = off["plain_tok_s"]
        assert list(row.values())[1:] == [
            f"{server:.0f}",
            f"{off['forced_plain_tok_s'] / server:.3f}",
            f"{window['forced_plain_tok_s'] / server:.3f}",
            f"{off['noise']:.3f}",
        ]


@pytest.mark.parametrize("column", _COLUMNS)
def test_what_modes_deliver(column: str) -> None:
    run, engine = _COLUMNS[column]
    tokens = load("h200_modes.json")["runs"][run]["tok_s"]
    _, modes = MEASURED.tables("concurrency")
    for row in modes:
        here = row["concurrency"]
        ratio = median(tokens[engine][here]) / median(tokens["plain"][here])
        assert row[column] == f"{ratio:.2f}", here


def test_the_readmes_table_is_taken_from_the_page() -> None:
    plain, modes = MEASURED.tables("concurrency")
    names = {"plain, tok/s": "plain server, tok/s", "`goodput`": "`goodput` among 0, 1, 3"}
    for row, costs, delivered in zip(README.table("concurrency"), plain, modes, strict=True):
        whole = {**costs, **delivered}
        assert row == {name: whole[names.get(name, name)] for name in row}


def test_shares_of_the_oracle() -> None:
    document = load("replay.json")
    (row,) = page("replay").table("`goodput`")
    entries = {
        "`goodput`": "goodput",
        "`bandit`": "bandit",
        "best `threshold`": "threshold",
        "SGLang's own": "stock",
        "largest depth": "deepest",
    }
    assert {entries.get(name, name) for name in row} == {
        entry["name"] for entry in document["entries"]
    }
    for name, share in row.items():
        found = mean_share(document["results"], entries.get(name, name))
        assert share == f"{100 * found:.1f} %", name
    text = " ".join(page("replay").text.split())
    assert f"({len(document['scenarios'])} scenarios, {len(document['seeds'])} seeds;" in text


def test_shares_in_the_hard_worlds() -> None:
    document = load("replay_hard_7f390dd.json")
    kinds = {each["kind"]: each for each in document["kinds"]}
    (described,) = page("replay").tables("kind")
    assert {kind for row in described for kind in quoted(row["kind"])} == {*kinds}
    (rows,) = page("replay").tables("kind of world")
    assert [row["kind of world"] for row in rows] == [f"`{kind}`" for kind in kinds]
    for row in rows:
        each = kinds[row["kind of world"].strip("`")]
        assert list(row.values())[1:] == [
            str(each["worlds"]),
            *(f"{100 * each[name]:.1f}" for name in ("share", "worst_share")),
            *(f"{100 * each[name]:.1f}" for name in ("of_best", "worst_of_best")),
            str(each["stuck"]),
        ]
    text = " ".join(page("replay").text.split())
    mean = next(each for each in document["checks"] if each["name"] == "mean share")["figure"]
    assert f"**{100 * mean:.1f} % of the oracle** in the geometric mean" in text
    failed = [each["name"] for each in document["checks"] if not each["passed"]]
    assert f"misses {len(failed)} of {len(document['checks'])} criteria" in text
