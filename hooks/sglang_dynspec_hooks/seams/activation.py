"""Decide which seams the present process gets, check them, and register them with SGLang."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sglang_dynspec_hooks import seams
from sglang_dynspec_hooks.contract.seam import PLUGIN, Hook, Kind, confirm_wrapped
from sglang_dynspec_hooks.process import DISTRIBUTION, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

_registered: set[str] = set()


def activate(role: Role, *, is_enabled: bool) -> None:
    """
    Register the seams of one process, while SGLang loads its plugins.

    Args:
        role: What the process is.
        is_enabled: Whether the command line or the environment asks for this plugin.

    Raises:
        SeamError: When the plugin is enabled and the installed SGLang does not fit.
    """
    if role is Role.BYSTANDER:
        return
    if role is Role.SCHEDULER:
        # The launcher checked these seams; `create_worker` confirms that they are in force.
        if is_enabled:
            register(seams.scheduler())
        return
    if not is_enabled:
        # A child that is not SGLang's own may build an engine too, so it gets the same two.
        register(seams.idle())
        return
    check_launcher()
    register((*seams.idle(), *seams.launcher()))
    if role is Role.UNKNOWN:
        # It may be a scheduler under a name of its own; plain SGLang would then run unnoticed.
        register(seams.scheduler())


def check_launcher() -> None:
    """
    Load the core, and compare every seam of every process with the installed SGLang's files.

    Raises:
        ImportError: When this package or one of its dependencies is broken.
        SeamError: When the version is out of range, or a function is missing or has other
            parameters than its record says. A changed body is logged, not raised.
    """
    # First the core itself: a dependency of it that does not import must show here.
    import_module("sglang_dynspec.loading.plugins")
    from sglang_dynspec_hooks.contract import comparison
    from sglang_dynspec_hooks.contract import version as sglang_version

    version = sglang_version.require_supported()
    comparison.require(seams.records(), version)


def enable_launcher() -> None:
    """
    Check and register the launcher's seams after SGLang has loaded its plugins.

    This is how the plugin is enabled by a configuration file, or by `sglang_dynspec.enable()`
    once SGLang has been used. Calling it again does nothing.

    Raises:
        SeamError: When the installed SGLang does not fit, or a hook did not take.
    """
    check_launcher()
    hooks = (*seams.idle(), *seams.launcher())
    register_late(hooks)
    confirm_wrapped(hooks)


def register(hooks: Iterable[Hook]) -> list[Hook]:
    """
    Hand handlers to SGLang, which applies them when every plugin has loaded.

    Args:
        hooks: What to register; a hook that this process registered before is left out.

    Returns:
        Those that were new.
    """
    from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook
    from sglang.srt.plugins.hook_registry import HookRegistry, HookSource, HookType

    new = [hook for hook in hooks if hook.seam.target not in _registered]
    for hook in new:
        target, kind = hook.seam.target, hook.seam.kind
        if kind is Kind.STEP:
            register_resolution_hook(target.rpartition(".")[2])(hook.handler)
        else:
            HookRegistry.register(
                target,
                hook.handler,
                HookType[kind.value],
                source=HookSource(PLUGIN, DISTRIBUTION),
            )
        _registered.add(target)
    return new


def register_late(hooks: Iterable[Hook]) -> None:
    """
    Register hooks and apply them at once.

    Args:
        hooks: What to register.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookSource, HookType

    source = HookSource(PLUGIN, DISTRIBUTION)
    for hook in register(hooks):
        target = hook.seam.target
        if target in HookRegistry._patched:
            # Another plugin patched it, and `apply_hooks` patches a target once only.
            HookRegistry._apply_target(
                target, [(HookType[hook.seam.kind.value], hook.handler, source)]
            )
    HookRegistry.apply_hooks()
