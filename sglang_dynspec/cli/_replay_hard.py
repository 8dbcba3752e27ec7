"""
``dynspec replay`` on the hard worlds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sglang_dynspec.cli._replay_tables import check_table
from sglang_dynspec.cli.output import print_json, print_table
from sglang_dynspec.replay.hard_ablations import ABLATED, ablate
from sglang_dynspec.replay.hard_checks import DRAWN, check_hard
from sglang_dynspec.replay.hard_run import find_any_world, replay_hard
from sglang_dynspec.replay.processes import Progress
from sglang_dynspec.replay.suites import Entry
from sglang_dynspec.replay.worlds import worlds
from sglang_dynspec.replay.worlds.drawn import PUBLISHED, PUBLISHED_SEED, drawn

#: The suites of hard worlds.
HARD: Final = "hard"
HARD_SUITES: Final = (HARD, DRAWN)

_NOT_TO_BE_TUNED_ON: Final = (
    f"the worlds of seed {PUBLISHED_SEED} are for publishing: a policy that is tuned on them makes "
    "them worthless"
)


def list_worlds(*, as_json: bool) -> None:
    """
    List the fixed worlds.

    Args:
        as_json: Whether as JSON.
    """
    if as_json:
        print_json(
            [
                {"name": each.name, "kind": each.kind, "summary": each.summary}
                for each in worlds().values()
            ]
        )
        return
    table = Table(box=SIMPLE_HEAD, title="Hard worlds")
    for heading in ("world", "server", "depths", "seconds", "what is special about it"):
        table.add_column(heading, no_wrap=heading == "world")
    for each in worlds().values():
        depths = ", ".join(map(str, each.depths))
        summary = escape(each.summary)
        table.add_row(each.name, each.server.name, depths, f"{each.seconds:g}", summary)
    print_table(table)


def run_hard(
    suite: str,
    entry: Entry,
    only: Sequence[str],
    *,
    seeds: int | None,
    jobs: int | None,
    progress: Progress,
) -> dict[str, Any]:
    """
    Replay a policy through the hard worlds.

    Args:
        suite: ``hard`` or ``drawn``.

        entry: The policy.

        only: Names of worlds; empty for all of the suite.

        seeds: How many seeds; None for the suite's.

        jobs: Processes.

        progress: Told of what is done.

    Returns:
        What `replay_hard` gives, with ``checks``.

    Raises:
        ConfigError: There is no such policy or world.
    """
    if only:
        names = [find_any_world(name).name for name in dict.fromkeys(only)]
    elif suite == DRAWN:
        names = [world.name for world in drawn(PUBLISHED_SEED, PUBLISHED)]
    else:
        names = [*worlds()]
    usual = 1 if suite == DRAWN else 2
    document = replay_hard(
        entry, names, suite=suite, seeds=seeds or usual, jobs=jobs, progress=progress
    )
    return document | {"checks": [each.as_json() for each in check_hard(document)]}


def show_hard(document: Mapping[str, Any]) -> None:
    """
    Print what `run_hard` gave as tables.

    Args:
        document: What it gave.
    """
    print_table(_kind_table(document))
    print_table(check_table(check_hard(document)))
    if document["suite"] == DRAWN:
        typer.echo(_NOT_TO_BE_TUNED_ON)


def run_ablations(
    entry: Entry, only: Sequence[str], *, seeds: int | None, jobs: int | None, progress: Progress
) -> dict[str, Any]:
    """
    Replay a policy through some hard worlds with each of its parts taken out.

    Args:
        entry: The policy.

        only: Names of worlds; empty for `ABLATED`.

        seeds: How many seeds; None for one.

        jobs: Processes.

        progress: Told of what is done.

    Returns:
        What `ablate` gives.

    Raises:
        ConfigError: There is no such policy, world or part.
    """
    names = [find_any_world(name).name for name in only] or ABLATED
    return ablate(entry, names, seeds=seeds or 1, jobs=jobs, progress=progress)


def show_ablations(document: Mapping[str, Any]) -> None:
    """
    Print what `run_ablations` gave as a table.

    Args:
        document: What it gave.
    """
    table = Table(box=SIMPLE_HEAD, title=f"{escape(document['entry'])} without one of its parts")
    for heading in ("part", "of", "mean share", "fails without it", "moves most", "", ""):
        table.add_column(heading)
    whole = document["whole"]["mean_share"]
    table.add_row("(whole)", "", f"{whole:.2%}", "", "", "whole", "without")
    for each in document["parts"]:
        moved = "nothing" if each["idle"] else each["moves"]
        figures = ("", "") if each["idle"] else (_figure(each["whole"]), _figure(each["without"]))
        table.add_row(
            each["part"],
            each["of"],
            f"{each['mean_share']:.2%}",
            ", ".join(each["fails"]),
            moved,
            *figures,
        )
    print_table(table)


def _figure(figure: float | None) -> str:
    return "never" if figure is None else f"{figure:.4g}"


def _kind_table(document: Mapping[str, Any]) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        title=f"{escape(document['policy'])} in the hard worlds",
        caption="p99: as many times as at the best fixed depth",
    )
    table.add_column("kind", no_wrap=True)
    for heading in (
        *("worlds", "of the oracle", "worst", "of the best depth", "worst", "first 512"),
        *("p99 s/token", "p99 gap", "stuck", "switches / 1000"),
    ):
        table.add_column(heading, justify="right")
    for each in document["kinds"]:
        table.add_row(
            each["kind"],
            str(each["worlds"]),
            *(f"{each[name]:.1%}" for name in ("share", "worst_share", "of_best")),
            *(f"{each[name]:.1%}" for name in ("worst_of_best", "first_share")),
            *(f"{each[name]:.2f}x" for name in ("token_p99", "gap_p99")),
            str(each["stuck"]),
            f"{each['switches_per_1000']:.1f}",
        )
    return table
