"""
Tables of a replay.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sglang_dynspec.cli.output import depth_name
from sglang_dynspec.replay.checks import Check
from sglang_dynspec.replay.recorded import TraceReplay
from sglang_dynspec.replay.suite_run import mean_share, shares_by_scenario
from sglang_dynspec.simulator import Scenario


def scenario_table(scenarios: Iterable[Scenario]) -> Table:
    """
    Lay scenarios out as a table.
    """
    table = Table(box=SIMPLE_HEAD, title="Scenarios")
    for heading in ("scenario", "server", "depths", "what is special about it"):
        table.add_column(heading, no_wrap=heading == "scenario")
    for scenario in scenarios:
        depths = ", ".join(map(str, scenario.depths))
        table.add_row(scenario.name, scenario.server.name, depths, escape(scenario.summary))
    return table


def figure_table(document: Mapping[str, Any]) -> Table:
    """
    Lay the policy's own figures out as a table, a row for each scenario.

    Where there are several seeds, shares are means and everything else is the worst.
    """
    policy = document["policy"]
    table = Table(box=SIMPLE_HEAD, title=f"{escape(policy)}: figures by scenario")
    table.add_column("scenario", no_wrap=True)
    for heading in (
        *("share", "worst window", "oracle tok/s", "switches / 1000", "probes"),
        *("probe loss", "plain", "off after", "on after"),
    ):
        table.add_column(heading, justify="right")
    for scenario in document["scenarios"]:
        name = scenario["name"]
        rows = [
            row for row in document["results"] if row["entry"] == policy and row["scenario"] == name
        ]
        table.add_row(
            name,
            f"{_mean(rows, 'share'):.2%}",
            f"{min(row['worst_window'] for row in rows):.1%}",
            f"{_mean(rows, 'oracle_tokens_per_second'):,.0f}",
            f"{max(row['switches_per_1000'] for row in rows):.1f}",
            str(max(row["probe_rounds"] for row in rows)),
            f"{max(row['probe_loss'] for row in rows):.2%}",
            f"{sum(row['depth_shares']['0'] for row in rows) / len(rows):.0%}",
            _took(rows, "off"),
            _took(rows, "on"),
        )
    return table


def share_table(document: Mapping[str, Any]) -> Table:
    """
    Lay every entry's share of the oracle out as a table.
    """
    results = document["results"]
    entries = [entry["name"] for entry in document["entries"]]
    table = Table(box=SIMPLE_HEAD, title="Share of the oracle's tokens")
    table.add_column("scenario", no_wrap=True)
    for entry in entries:
        table.add_column(escape(entry), justify="right")
    columns = [shares_by_scenario(results, entry) for entry in entries]
    for scenario in document["scenarios"]:
        table.add_row(scenario["name"], *(f"{column[scenario['name']]:.1%}" for column in columns))
    table.add_section()
    table.add_row(
        "geometric mean", *(f"{mean_share(results, entry):.2%}" for entry in entries), style="bold"
    )
    return table


def check_table(checks: Sequence[Check]) -> Table:
    """
    Lay criteria out as a table.
    """
    table = Table(box=SIMPLE_HEAD, title="Criteria")
    table.add_column("")
    table.add_column("criterion")
    for heading in ("figure", "bound"):
        table.add_column(heading, justify="right")
    table.add_column("where it is worst")
    for each in checks:
        passed = "ok" if each.passed else "FAIL"
        table.add_row(
            passed if each.measured else "-",
            each.name,
            "-" if each.figure is None else f"{each.figure:.4g}",
            f"{'<=' if each.at_most else '>='} {each.bound:.4g}",
            escape(each.where),
            style=None if each.passed else "bold red",
        )
    return table


def trace_table(result: TraceReplay) -> Table:
    """
    Lay the replay of a trace out as a table.
    """
    policy = escape(result.policy)
    title = f"{policy} on {result.rounds} recorded rounds, {result.covered:.1%} of them told"
    table = Table(box=SIMPLE_HEAD, title=title)
    table.add_column("")
    shares = map(depth_name, result.depth_shares)
    for heading in (*shares, "switches", "tokens/s"):
        table.add_column(heading, justify="right")
    for name, depths, switches, rate in (
        ("recorded", result.recorded_shares, "-", result.recorded_tokens_per_second),
        ("replayed", result.depth_shares, str(result.switches), result.tokens_per_second),
    ):
        table.add_row(
            name,
            *(f"{share:.0%}" for share in depths.values()),
            switches,
            "-" if rate is None else f"{rate:,.0f}",
        )
    return table


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(row[name] for row in rows) / len(rows))


def _took(rows: Sequence[Mapping[str, Any]], turns: str) -> str:
    due = [
        reaction["took"]
        for row in rows
        for reaction in row["reactions"]
        if reaction["turns"] == turns and reaction["due"] is not None
    ]
    if not due:
        return "-"
    return "never" if None in due else str(max(due))
