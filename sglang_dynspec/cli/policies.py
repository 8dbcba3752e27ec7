"""
``dynspec policies``: the policies that can be selected by name.
"""

from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sglang_dynspec._plugins import list_policies
from sglang_dynspec.cli._output import AsJson, print_json, print_table


def command(*, as_json: AsJson = False) -> None:
    """
    List the policies that --dynspec-policy takes by name, and their options.
    """
    infos = list_policies()
    if as_json:
        print_json([asdict(info) for info in infos])
        return
    table = Table("policy", "what it does", "options (--dynspec-option)", box=SIMPLE_HEAD)
    for info in infos:
        options = "\n".join(f"{name}={default}" for name, default in info.options.items())
        table.add_row(info.name, escape(info.summary), escape(options))
    print_table(table)
