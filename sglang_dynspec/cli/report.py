"""
``dynspec report``: a trace as a table and a picture.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sglang_dynspec.cli.output import AsJson, depth_name, print_json, print_table
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.trace import Trace, read_trace
from sglang_dynspec.trace.figure import require_matplotlib
from sglang_dynspec.trace.phases import PhaseRow, phase_rows, phases_by_batch_size
from sglang_dynspec.trace.timeline import draw_timeline


def command(
    trace_file: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A file recorded with --dynspec-trace.")
    ],
    *,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw batch size and depth over time.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Summarise a trace, one row per phase.

    A phase ends where the batch size moves to another power of two and stays there.
    """
    if png is not None and png.suffix.lower() != ".png":
        raise ConfigError(
            expected="a picture whose name ends in .png",
            found=repr(str(png)),
            remedy="choose another name for --png",
        )
    if png is not None:
        # Before a long trace is read.
        require_matplotlib()
    trace = read_trace(trace_file)
    phases = phases_by_batch_size(trace.rounds)
    rows = phase_rows(trace, phases)
    if png is not None:
        draw_timeline(trace, png, phases=phases)
    if as_json:
        print_json([row.as_json() for row in rows])
        return
    print_table(phase_table(trace, rows))
    if png is not None:
        typer.echo(f"picture: {png}")


def phase_table(trace: Trace, rows: list[PhaseRow]) -> Table:
    """
    Lay rows out as a table.

    Args:
        trace: The trace they come from.

        rows: One per phase.

    Returns:
        A table with a column for each depth that ran.
    """
    ran = sorted({depth for row in rows for depth in row.shares})
    table = Table(
        box=SIMPLE_HEAD, title=f"{escape(trace.header.policy)}: {len(trace.rounds)} rounds"
    )
    table.add_column("phase")
    shares = map(depth_name, ran)
    # Policies that probe are few.
    probes = ["probes"] if any(row.probes for row in rows) else []
    headings = ("rounds", "mean batch", *shares, "accepted length", "tokens/s", "switches")
    for heading in (*headings, *probes):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            str(row.rounds),
            f"{row.batch_size:.1f}",
            *(f"{row.shares.get(depth, 0.0):.0%}" for depth in ran),
            "-" if row.accepted_length is None else f"{row.accepted_length:.2f}",
            "-" if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}",
            str(row.switches),
            *([str(row.probes)] if probes else []),
        )
    return table
