"""
The seams: every place where this package enters SGLang.

A module of this package holds one seam, as `SEAM` (the record) and `handler`. None imports
SGLang before its handler runs: the launcher reads all records, and importing SGLang's scheduler
takes seconds. `called` lists what the worker calls or overrides without hooking it, and
`activation` decides which seams the present process gets.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from sglang_dynspec_hooks.contract.seam import Called, Hook, Seam

#: In a launcher, always: just enough to notice `--enable-plugin dynspec`.
_IDLE: Final = ("add_cli_args", "from_cli_args")
#: In a launcher, once enabled.
_LAUNCHER: Final = ("resolve_once", "speculative_defaults", "request_schema")
#: In a scheduler process, once enabled.
_SCHEDULER: Final = (
    "create_worker",
    "run_batch",
    "result",
    "update_handlers",
    "get_internal_state",
)


def idle() -> tuple[Hook, ...]:
    """
    List the hooks of a launcher that may never be asked for this plugin.

    Returns:
        Two hooks on `ServerArgs`.
    """
    return _hooks(_IDLE)


def launcher() -> tuple[Hook, ...]:
    """
    List the further hooks of a launcher that was asked for this plugin.

    Returns:
        The hooks on argument resolution, and on what the HTTP server reads.
    """
    return _hooks(_LAUNCHER)


def scheduler() -> tuple[Hook, ...]:
    """
    List the hooks of a scheduler process.

    Returns:
        The hooks on the worker, the scheduler and its internal state.
    """
    return _hooks(_SCHEDULER)


def records() -> tuple[Seam | Called, ...]:
    """
    List everything this package relies on, hooked or called, in any process.

    Returns:
        The seams, then the calls.
    """
    from sglang_dynspec_hooks.seams.called import CALLED

    hooks = (*idle(), *launcher(), *scheduler())
    return (*(hook.seam for hook in hooks), *CALLED)


def _hooks(names: tuple[str, ...]) -> tuple[Hook, ...]:
    """Import seam modules by name."""
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(Hook(seam=module.SEAM, handler=module.handler) for module in modules)
