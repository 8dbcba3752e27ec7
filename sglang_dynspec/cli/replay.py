"""
``dynspec replay``: a policy against synthetic servers, or against a recorded trace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from sglang_dynspec.cli._replay_hard import (
    HARD,
    HARD_SUITES,
    list_worlds,
    run_ablations,
    run_hard,
    show_ablations,
    show_hard,
)
from sglang_dynspec.cli._replay_tables import (
    check_table,
    figure_table,
    scenario_table,
    share_table,
    trace_table,
)
from sglang_dynspec.cli.output import AsJson, print_json, print_table
from sglang_dynspec.config import Config
from sglang_dynspec.config.sources import closest
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.replay import suite_run as replaying
from sglang_dynspec.replay.checks import check
from sglang_dynspec.replay.pictures import draw_run, draw_shares
from sglang_dynspec.replay.processes import Progress
from sglang_dynspec.replay.recorded import COVERED, ENOUGH, replay_trace
from sglang_dynspec.replay.suites import BOUNDS, Entry, Suite, suites
from sglang_dynspec.simulator import find_scenario, run_scenario, scenarios
from sglang_dynspec.trace import read_trace
from sglang_dynspec.trace.figure import require_matplotlib

#: Gaps of a trace that are shown.
_SHOWN = 8


def command(
    *,
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="The policy, or package.module:Class.")
    ] = "goodput",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="An option of the policy, or a bound of the guard. Repeat."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Replay this recorded trace in place of synthetic servers."
        ),
    ] = None,
    suite: Annotated[
        str, typer.Option(metavar="NAME", help="standard, small, hard, or drawn.")
    ] = "standard",
    scenario: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this scenario or world. Repeat for more."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds. Default: the suite's.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Replay no baselines.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes to use. Default: one a core.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also draw pictures into this directory.")
    ] = None,
    must_pass: Annotated[
        bool, typer.Option("--check", help="Exit with 1 where a criterion is missed.")
    ] = False,
    ablations: Annotated[
        bool,
        typer.Option("--ablations", help="Take each part of goodput and guard out; hard alone."),
    ] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the scenarios and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Replay a policy on synthetic servers, and compare it with others and with an oracle.

    The oracle runs every round at the depth of the largest true rate. A policy's share is what it
    delivered of what the oracle would have in the same time. Baselines are SGLang's own policy,
    every fixed depth, bandit, and threshold with the settings that are best on these scenarios.
    Needs no engine and no GPU.

    The suite hard has worlds in which time goes by the clock and requests come and go; drawn has
    worlds that nobody is to tune a policy on. There a policy is compared with every fixed depth.

    With --trace the load of a recorded trace is replayed instead, as far as the trace tells what
    other depths would have done.
    """
    if list_all:
        (list_worlds if suite == HARD else _list)(as_json=as_json)
        return
    entry = _entry(policy, option or [])
    if trace is not None:
        if scenario or plot is not None or must_pass:
            raise ConfigError(
                expected="--trace without --scenario, --plot and --check",
                found="one of them beside it",
                remedy="replay a trace, or synthetic servers",
            )
        _replay_trace(trace, entry, as_json=as_json)
        return
    if suite in HARD_SUITES or ablations:
        if plot is not None or (ablations and (suite != HARD or must_pass)):
            raise ConfigError(
                expected="--suite hard or drawn without --plot, and --ablations with hard alone",
                found=f"--suite {suite}, and one of them",
                remedy="leave --plot out; with --ablations give --suite hard, and no --check",
            )
        run = partial(run_ablations, entry) if ablations else partial(run_hard, suite, entry)
        show = print_json if as_json else show_ablations if ablations else show_hard
        with _progress() as progress:
            table = run(scenario or [], seeds=seeds, jobs=jobs, progress=progress)
        show(table)
        _fail_if(must_pass and not all(each["passed"] for each in table["checks"]))
        return
    _replay_suite(
        _suite(suite, scenario or [], seeds),
        entry,
        alone=alone,
        jobs=jobs,
        plot=plot,
        must_pass=must_pass,
        as_json=as_json,
    )


def _replay_suite(
    chosen: Suite,
    entry: Entry,
    *,
    alone: bool,
    jobs: int | None,
    plot: Path | None,
    must_pass: bool,
    as_json: bool,
) -> None:
    if plot is not None:
        require_matplotlib()
        plot.mkdir(parents=True, exist_ok=True)
    with _progress() as progress:
        document = replaying.replay(entry, chosen, compare=not alone, jobs=jobs, progress=progress)
    checks = check(document)
    pictures = [] if plot is None else _draw(document, entry, chosen, plot)
    if as_json:
        print_json(
            {
                **document,
                "checks": [each.as_json() for each in checks],
                "pictures": [str(path) for path in pictures],
            }
        )
    else:
        print_table(share_table(document))
        print_table(figure_table(document))
        print_table(check_table(checks))
        for left_out in document["left_out"]:
            typer.echo(f"left out: {left_out['entry']}: {left_out['why']}")
        for path in pictures:
            typer.echo(f"picture: {path}")
    _fail_if(must_pass and not all(each.passed for each in checks))


def _fail_if(missed: bool) -> None:
    if missed:
        raise typer.Exit(1)


def _list(*, as_json: bool) -> None:
    if as_json:
        print_json([replaying.described(each) for each in scenarios().values()])
    else:
        print_table(scenario_table(scenarios().values()))


def _replay_trace(path: Path, entry: Entry, *, as_json: bool) -> None:
    result = replay_trace(read_trace(path), entry)
    if as_json:
        print_json(result.as_json())
        return
    print_table(trace_table(result))
    for each in result.missing[:_SHOWN]:
        typer.echo(
            f"not in the trace: depth {each.depth} at a padded batch size of "
            f"{each.padded_batch_size}, wanted for {each.wanted} rounds; {each.recorded} were "
            f"recorded, {ENOUGH} are needed"
        )
    if not result.tells:
        typer.echo(
            f"the trace tells {result.covered:.0%} of the rounds; {COVERED:.0%} are needed to "
            "compare the rates. Record one while depths are forced in turn."
        )


def _entry(policy: str, pairs: list[str]) -> Entry:
    config = Config.load(flags={"policy": policy}, option_pairs=pairs, config_file=None, environ={})
    guard = config.model_dump(include=config.model_fields_set - {"policy", "options"})
    for name in guard:
        if name not in BOUNDS:
            raise ConfigError(
                expected=f"an option of the policy {policy}, or a bound of the guard",
                found=repr(name),
                remedy=closest(name, list(BOUNDS)),
            )
    return Entry(name=config.policy, policy=config.policy, options=config.options, guard=guard)


def _suite(name: str, only: list[str], seeds: int | None) -> Suite:
    found = suites().get(name)
    if found is None:
        raise ConfigError(
            expected="the name of a suite", found=repr(name), remedy=closest(name, [*suites()])
        )
    if only:
        names = tuple(dict.fromkeys(find_scenario(each).name for each in only))
        found = replace(found, name="chosen", scenarios=names)
    return found if seeds is None else replace(found, seeds=seeds)


def _draw(document: dict[str, Any], entry: Entry, suite: Suite, directory: Path) -> list[Path]:
    pictures = [directory / "shares.png"]
    draw_shares(document, pictures[0])
    for name in suite.scenarios:
        run = run_scenario(
            entry.policy, find_scenario(name), options=entry.options, **dict(entry.guard)
        )
        pictures.append(directory / f"{name}.png")
        draw_run(run, pictures[-1], title=f"{entry.name} in {name}: {run.scenario.summary}")
    return pictures


@contextmanager
def _progress() -> Iterator[Progress]:
    """
    Show a bar on standard error while a block runs.
    """
    columns = (TextColumn("replay"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replay", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
