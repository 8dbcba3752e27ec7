"""
The command line, ``dynspec``: one file per command.

Commands that need the engine are found through the entry-point group ``sglang_dynspec.commands``.
"""

import sys

from sglang_dynspec.cli._app import build_app, does_not_load
from sglang_dynspec.errors import DynspecError

__all__ = ["build_app", "main"]


def main() -> None:
    """
    Run ``dynspec``.

    Raises:
        SystemExit: Always, with the exit status: 0, or 1 with one line on standard error where a
            command was refused, or 2 where the command line was wrong.
    """
    try:
        build_app()()
    except (DynspecError, OSError) as error:
        sys.exit(f"dynspec: {error}")
    except ModuleNotFoundError as error:
        # One of our own that is missing is a fault, and worth its traceback.
        if str(error.name).startswith("sglang_dynspec"):
            raise
        sys.exit(f"dynspec: {does_not_load('what this command imports', str(error))}")
