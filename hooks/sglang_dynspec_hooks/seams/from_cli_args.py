"""Read our flags from the parsed command line, and enable ourselves if they say so."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec_hooks.contract.seam import GROUP, PLUGIN, Kind, Seam
from sglang_dynspec_hooks.seams.add_cli_args import DESTS

if TYPE_CHECKING:
    import argparse

SEAM: Final = Seam(
    target="sglang.srt.server_args.ServerArgs.from_cli_args",
    kind=Kind.AFTER,
    parameters=("cls", "args"),
    reason="what it returns is where the configuration travels to every process",
    removal="SGLang hands plugins their parsed arguments",
)


def handler(result: Any, cls: type, args: argparse.Namespace) -> None:  # noqa: ARG001
    """
    Attach the configuration to the arguments when `--enable-plugin` names us.

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
    names = list(_names(asked.pop("enable_plugin", None)))
    is_enabled = PLUGIN in names
    given = {flag: value for flag, value in asked.items() if value is not None}
    misspelt = None if is_enabled else _misspelt(names)
    if not is_enabled and not given and misspelt is None:
        from sglang_dynspec_hooks import carried_config

        carried_config.withdraw()
        return
    from sglang_dynspec_hooks.process import exits_on_error

    with exits_on_error():
        if misspelt is not None:
            _refuse_misspelt(misspelt)
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


def _misspelt(names: list[str]) -> str | None:
    """Find a name that is no installed plugin's and looks like ours."""
    if not names:
        return None
    from difflib import get_close_matches
    from importlib.metadata import entry_points

    installed = entry_points(group=GROUP).names
    for name in names:
        if name not in installed and get_close_matches(name.lower(), [PLUGIN]):
            return name
    return None


def _refuse_misspelt(name: str) -> None:
    from sglang_dynspec.errors import ConfigError

    # Without this the server would start, and never speculate by a policy.
    raise ConfigError(
        expected=f"--enable-plugin {PLUGIN}",
        found=f"{name!r}, which is no installed plugin",
        remedy=f"write {PLUGIN}",
    )


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
    from sglang_dynspec_hooks import carried_config
    from sglang_dynspec_hooks.seams import activation

    file = given.pop("dynspec_config", None)
    pairs = given.pop("dynspec_option", None) or []
    config = Config.load(
        flags={flag.removeprefix("dynspec_"): value for flag, value in given.items()},
        option_pairs=pairs,
        config_file=None if file is None else Path(file),
        environ=os.environ,
    )
    activation.enable_launcher()
    carried_config.attach(server_args, config)
    setattr(server_args, carried_config.FROM_COMMAND_LINE, True)
    carried_config.export(config)
