"""Read our flags from the parsed command line, and enable ourselves if they say so."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec_hooks._seam import PLUGIN, Kind, Seam
from sglang_dynspec_hooks.seams.add_cli_args import DESTS

if TYPE_CHECKING:
    import argparse

SEAM: Final = Seam(
    target="sglang.srt.server_args.ServerArgs.from_cli_args",
    kind=Kind.AFTER,
    parameters=("cls", "args"),
    reason="the record it returns is where the configuration travels to every process",
    removal="SGLang hands plugins their parsed arguments",
)


def handler(result: Any, cls: type, args: argparse.Namespace) -> None:  # noqa: ARG001
    """
    Attach the configuration to the record when `--enable-plugin` names us.

    Side effects, when it does: `SGLANG_DYNSPEC` is set for child processes and the launcher's
    further hooks are registered.

    Args:
        result: The `ServerArgs` that was built.
        cls: Its class.
        args: The parsed command line.

    Raises:
        SystemExit: With status 78, for a configuration that is refused or an SGLang that does
            not fit.
    """
    asked = {flag: getattr(args, dest, None) for flag, dest in _dests(args).items()}
    is_enabled = PLUGIN in _names(asked.pop("enable_plugin", None))
    given = {flag: value for flag, value in asked.items() if value is not None}
    if not is_enabled and not given:
        from sglang_dynspec_hooks import _record

        _record.withdraw()
        return
    from sglang_dynspec_hooks.entry import exits_on_error

    with exits_on_error():
        if not is_enabled:
            _refuse_stray(given)
        _enable(result, given)


def _dests(args: argparse.Namespace) -> dict[str, str]:
    dests: dict[str, str] = getattr(args, DESTS, {})
    return dests


def _names(value: object) -> Iterable[str]:
    """List the plugins named by `--enable-plugin`, whatever action another plugin gave it."""
    if isinstance(value, str):
        yield from (name.strip() for name in value.split(","))
    elif isinstance(value, Iterable):
        for item in value:
            yield from _names(item)


def _refuse_stray(given: dict[str, Any]) -> None:
    from sglang_dynspec.errors import ConfigError

    flags = ", ".join(f"--{flag.replace('_', '-')}" for flag in given)
    raise ConfigError(
        expected=f"--enable-plugin {PLUGIN} beside {flags}",
        found="no such flag",
        remedy=f"add --enable-plugin {PLUGIN}, or drop {flags}",
    )


def _enable(server_args: Any, given: dict[str, Any]) -> None:
    from sglang_dynspec.config import Config
    from sglang_dynspec_hooks import _activate, _record

    file = given.pop("dynspec_config", None)
    pairs = given.pop("dynspec_option", None) or []
    config = Config.load(
        flags={flag.removeprefix("dynspec_"): value for flag, value in given.items()},
        option_pairs=pairs,
        config_file=None if file is None else Path(file),
        environ=os.environ,
    )
    _activate.enable_launcher()
    _record.attach(server_args, config)
    setattr(server_args, _record.FROM_COMMAND_LINE, True)
    _record.export(config)
