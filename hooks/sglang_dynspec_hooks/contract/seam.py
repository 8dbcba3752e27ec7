"""What a seam is: the record each hook, and each call, into SGLang must carry."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from sglang_dynspec_hooks.contract.version import SUPPORTED

#: The name under which SGLang knows this plugin (the entry point's, and `--enable-plugin`'s).
PLUGIN: Final = "dynspec"
#: SGLang's entry-point group of plugins.
GROUP: Final = "sglang.srt.plugins"
#: What a handler may be: its signature depends on the kind of its seam.
Handler = Callable[..., Any]


class Kind(Enum):
    """
    How a handler sits on its target.

    The first four are SGLang's `HookType` by name. `STEP` is SGLang's own extension point
    for resolution steps (`register_resolution_hook`), which patches nothing.
    """

    #: `handler(*args, **kwargs) -> (args, kwargs) | None`, before the target.
    BEFORE = "BEFORE"
    #: `handler(result, *args, **kwargs) -> result | None`, after the target.
    AFTER = "AFTER"
    #: `handler(original, *args, **kwargs) -> result`, in place of the target.
    AROUND = "AROUND"
    #: `handler(*args, **kwargs) -> result`, the original is never called.
    REPLACE = "REPLACE"
    #: `handler(server_args, previous) -> None`, around a named resolution step.
    STEP = "STEP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seam:
    """One place in SGLang that this package hooks."""

    #: Dotted path of the function or method, as `HookRegistry.register` takes it.
    target: str
    kind: Kind
    #: Parameter names as written, in order; `*args`, `**kwargs` and a bare `*` keep their stars.
    parameters: tuple[str, ...]
    #: Why the hook exists.
    reason: str
    #: What would have to be true of SGLang for the hook to be deleted.
    removal: str
    #: The SGLang versions this record was written for, as a PEP 440 specifier.
    sglang: str = SUPPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One function of SGLang that this package calls or overrides, but does not hook."""

    target: str
    parameters: tuple[str, ...]
    sglang: str = SUPPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A seam with the handler that is registered on it."""

    seam: Seam
    handler: Handler


def confirm_wrapped(hooks: Iterable[Hook]) -> None:
    """
    Check that SGLang's functions really carry our handlers.

    `HookRegistry.apply_hooks` logs a target it cannot patch and goes on, after our plugin
    function has returned; this is the check that notices. It imports each target's module.

    Args:
        hooks: What should be in force in this process.

    Raises:
        SeamError: Naming the first target that is not wrapped.
    """
    for hook in hooks:
        if not _is_wrapped(hook):
            from sglang_dynspec.errors import SeamError

            raise SeamError(
                expected=f"{hook.seam.target} to be hooked ({hook.seam.kind.value})",
                found="the function without our handler",
                remedy="look for `Failed to apply hooks` in SGLang's log, and run `dynspec doctor`",
            )


def _is_wrapped(hook: Hook) -> bool:
    """Look for the handler in the chain of wrappers that `HookRegistry` builds."""
    parent_path, _, name = hook.seam.target.rpartition(".")
    if hook.seam.kind is Kind.STEP:
        from sglang.srt.arg_groups import resolution_hooks

        return hook.handler in resolution_hooks._HOOKS.get(name, ())
    try:
        function = vars(pkgutil.resolve_name(parent_path)).get(name)
    except (ImportError, AttributeError):
        return False
    function = getattr(function, "__func__", function)
    while function is not None:
        cells = getattr(function, "__closure__", None) or ()
        if any(cell.cell_contents is hook.handler for cell in cells):
            return True
        function = getattr(function, "__wrapped__", None)
    return False
