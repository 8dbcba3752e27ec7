"""`dynspec calibrate`: what rounds cost on a running server, into a file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sglang_dynspec.cli.output import AsJson, depth_name, print_json, print_table
from sglang_dynspec.files import is_device

if TYPE_CHECKING:
    from rich.table import Table

    from sglang_dynspec.estimates.calibration import Calibration
    from sglang_dynspec_hooks.client import Client
    from sglang_dynspec_hooks.commands._measurement import Measured


def command(
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:30000",
    *,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The calibration file to write.")
    ] = Path("dynspec-calibration.json"),
    max_batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Largest batch size. Default: what the server runs at most."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=16, help="Rounds to measure of each depth and batch size.")
    ] = 64,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of the prompts.")] = 128,
    api_key: Annotated[
        str | None, typer.Option(help="The server's key; its admin key, where it has one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Measure what a round costs on a running server, by depth and batch size, and write it to a file.

    Give the file to the next server as `--dynspec-option calibration=FILE`: a policy that predicts
    time then starts with what it would have to find out. Takes one to three minutes. Nobody else
    may use the server meanwhile: each depth is forced in turn under a load of random prompts. At
    the end, and on Ctrl-C, the decision is handed back to the policy.
    """
    from sglang_dynspec_hooks.client import Client
    from sglang_dynspec_hooks.commands.signals import terminable

    _check_writable(out)
    began = time.monotonic()
    with terminable(), Client(url, api_key=api_key) as server:
        measured = _measure(server, max_batch_size, rounds, prompt_tokens)
    calibration = measured.calibration()
    calibration.save(out)
    seconds = time.monotonic() - began
    if as_json:
        print_json(_document(measured, calibration, out, seconds))
        return
    print_table(_table(measured))
    for line in measured.skipped:
        typer.echo(f"skipped    {line}")
    typer.echo(f"written    {out} ({seconds:.0f} s)")


def _check_writable(out: Path) -> None:
    """Refuse, before a minute's work, a file that could not be written."""
    from sglang_dynspec.errors import ConfigError

    directory = out.absolute().parent
    if not directory.is_dir():
        expected, found = f"a directory for {out}", "none"
    elif out.is_dir():
        expected, found = "the name of a file", f"a directory, {out}"
    # A file is replaced, not written to.
    elif not os.access(out if is_device(out) else out.resolve().parent, os.W_OK):
        expected, found = f"a directory for {out}", "no permission to write there"
    else:
        return
    raise ConfigError(
        expected=expected,
        found=found,
        remedy="create it, or choose another file with --out",
    )


def _measure(server: Client, largest: int | None, rounds: int, prompt_tokens: int) -> Measured:
    """Measure, with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    from sglang_dynspec_hooks.commands._measurement import measure

    console = Console(stderr=True, highlight=False)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("warm up", total=None)

        def tell(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=what)
            if not console.is_terminal:
                console.print(f"{done} of {total}: {what}")

        return measure(
            server, largest=largest, rounds=rounds, prompt_tokens=prompt_tokens, tell=tell
        )


def _costs(measured: Measured) -> dict[int, dict[int, float]]:
    """Return seconds by batch size and depth."""
    costs: dict[int, dict[int, float]] = {}
    for cell in measured.cells:
        costs.setdefault(cell.batch_size, {})[cell.depth] = cell.seconds
    return costs


def _pays_above(row: dict[int, float], depth: int) -> float | None:
    """Return the mean accepted length from which a depth delivers more than plain."""
    return row[depth] / row[0] if depth in row and 0 in row else None


def _table(measured: Measured) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    gpu = measured.identity.gpu or "CPU"
    table = Table(box=SIMPLE_HEAD, title=f"milliseconds a round takes ({gpu})")
    table.add_column("batch size", justify="right")
    for depth in measured.depths:
        table.add_column(depth_name(depth), justify="right")
    for depth in measured.depths[1:]:
        table.add_column(f"{depth} pays above", justify="right")
    table.add_column("upkeep", justify="right")
    for size, row in sorted(_costs(measured).items()):
        ratios = [_pays_above(row, depth) for depth in measured.depths[1:]]
        upkeep = measured.upkeep.get(size)
        table.add_row(
            str(size),
            *(f"{1e3 * row[depth]:.2f}" if depth in row else "-" for depth in measured.depths),
            *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            "-" if upkeep is None else f"{1e3 * upkeep:.2f}",
        )
    table.caption = "pays above: mean accepted length from which it delivers more than plain"
    return table


def _document(
    measured: Measured, calibration: Calibration, out: Path, seconds: float
) -> dict[str, Any]:
    return {
        "file": str(out),
        "seconds": round(seconds, 1),
        "skipped": measured.skipped,
        "calibration": calibration.model_dump(mode="json"),
        "pays_above": {
            str(size): {str(depth): _pays_above(row, depth) for depth in row if depth}
            for size, row in sorted(_costs(measured).items())
        },
    }
