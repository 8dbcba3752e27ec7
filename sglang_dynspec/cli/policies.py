"""
``dynspec policies``: the policies that can be selected by name.
"""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sglang_dynspec.cli.output import AsJson, print_json, print_table
from sglang_dynspec.loading.infos import PolicyInfo, list_policies, policy_info


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="Say what this policy does, by name or package.module:Class."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """
    List the policies that --dynspec-policy takes by name, and their options.
    """
    infos = list_policies() if name is None else [policy_info(name)]
    if as_json:
        print_json([{**asdict(info), "summary": info.summary} for info in infos])
    elif name is not None:
        defaults = "".join(f"\n    {key}={value}" for key, value in infos[0].options.items())
        typer.echo(infos[0].documentation or "It has no documentation.")
        typer.echo(f"\nDefaults:{defaults}" if defaults else "\nIt has no options.")
    else:
        print_table(_table(infos))


def _table(infos: list[PolicyInfo]) -> Table:
    table = Table("policy", "what it does", "options (--dynspec-option)", box=SIMPLE_HEAD)
    for info in infos:
        options = "\n".join(f"{name}={default}" for name, default in info.options.items())
        table.add_row(info.name, escape(info.summary), escape(options))
    return table
