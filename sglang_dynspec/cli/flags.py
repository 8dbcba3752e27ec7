"""
``dynspec flags``: the flags this package adds to SGLang.
"""

from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sglang_dynspec.cli.output import AsJson, print_json, print_table
from sglang_dynspec.config.flags import FLAGS


def command(*, as_json: AsJson = False) -> None:
    """
    Show the flags this package adds to 'sglang serve'.

    SGLang prints its own help before it loads plugins, so 'sglang serve --help' cannot show them.
    """
    if as_json:
        print_json([asdict(flag) for flag in FLAGS])
        return
    table = Table("flag", "meaning", box=SIMPLE_HEAD, title="Flags of sglang serve")
    table.columns[0].no_wrap = True
    for flag in FLAGS:
        table.add_row(flag.usage, escape(flag.help))
    print_table(table)
