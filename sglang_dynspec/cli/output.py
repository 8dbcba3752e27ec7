"""
What the commands print with.
"""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

#: Columns of a table that does not go to a terminal.
_WIDEST = 120

#: The option every command has.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def depth_name(depth: int) -> str:
    """
    Name a depth as people read it.

    Args:
        depth: The depth; 0 is plain.
    """
    return f"depth {depth}" if depth else "plain"


def print_json(value: Any) -> None:
    """
    Print a value as JSON.

    Args:
        value: Plain JSON types.
    """
    typer.echo(json.dumps(value, indent=2))


def print_table(table: Table) -> None:
    """
    Print a table, as wide as the terminal.

    In a pipe or a file, where rich would assume 80 columns, it is as wide as it needs to be.

    Args:
        table: The table.
    """
    console = Console()
    if not console.is_terminal:
        needed = Console(width=_WIDEST).measure(table).maximum
        console = Console(width=max(console.width, needed))
    console.print(table)
