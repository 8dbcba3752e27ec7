"""
Putting the commands together.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from sglang_dynspec._version import __version__
from sglang_dynspec.cli import flags, policies, replay, report
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.log import describe

_GROUP = "sglang_dynspec.commands"


def build_app() -> typer.Typer:
    """
    Build the application, with the commands of every installed package.

    Returns:
        The application. A command that does not load is still listed, and says why when called.
    """
    app = typer.Typer(
        name="dynspec",
        help="Dynamic speculative decoding for SGLang.",
        no_args_is_help=True,
        add_completion=False,
        # Docstrings become help: their paragraphs are filled, not broken where the source is.
        rich_markup_mode="markdown",
        # A traceback of ours is for a bug report: plain, complete, and without local variables.
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name, command in (
        ("flags", flags.command),
        ("policies", policies.command),
        ("replay", replay.command),
        ("report", report.command),
    ):
        app.command(name)(command)
    for found in sorted(entry_points(group=_GROUP), key=lambda found: found.name):
        app.command(found.name)(_loaded(found))
    return app


def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            help="Print the version and exit.",
            callback=lambda given: _print_version(given=given),
        ),
    ] = False,
) -> None:
    """
    Dynamic speculative decoding for SGLang.
    """


def _print_version(*, given: bool) -> None:
    if given:
        typer.echo(__version__)
        raise typer.Exit


def _loaded(found: EntryPoint) -> Callable[..., None]:
    try:
        command: Callable[..., None] = found.load()
    except Exception as error:  # noqa: BLE001  # one broken command must not take the others along
        return _broken(found.name, describe(error))
    return command


def does_not_load(what: str, found: str) -> ConfigError:
    """
    Explain that something cannot be imported.

    Args:
        what: What was to load.

        found: What happened instead.
    """
    return ConfigError(
        expected=f"{what} to load",
        found=found,
        remedy="install what is missing: pip install 'sglang-dynspec[sglang,testing]'",
    )


def _broken(name: str, found: str) -> Callable[..., None]:
    def command() -> None:
        raise does_not_load(f"the command {name}", found)

    command.__doc__ = f"(does not load: {found})"
    return command
