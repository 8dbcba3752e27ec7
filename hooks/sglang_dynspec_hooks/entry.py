"""
Where SGLang, and the core's `enable()`, enter this package.

SGLang swallows every exception of a plugin, so a package that could not load would leave a
server that silently does not do what was asked. This module therefore imports the standard
library alone, catches everything itself, and stops the process by `SystemExit`, which SGLang
lets pass.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from sglang_dynspec_hooks.process import ENABLED, exit_with, present_role

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("sglang_dynspec")


def activate() -> None:
    """
    Register what this process needs; SGLang calls it once in each of its processes.

    Not enabled, a launcher gets two hooks on `ServerArgs`, enough to notice the flag, and other
    processes get none.

    Raises:
        SystemExit: With status 78, when the plugin was asked for and cannot load.
    """
    is_wanted = ENABLED in os.environ or names_plugin(sys.argv[1:])
    try:
        from sglang_dynspec_hooks.seams import activation

        activation.activate(present_role(), is_enabled=is_wanted)
    except Exception as error:  # noqa: BLE001 - SGLang would swallow it
        if is_wanted:
            exit_with(error)
        # Somebody else's server: say why we are absent, once, and stay out of the way.
        logger.warning("plugin_not_loaded error=%r note='not asked for, nothing changes'", error)


def arm(enabled: bool) -> None:
    """
    Prepare this process for an engine built after `sglang_dynspec.enable()`.

    Checks what `activate` would check, where a failure can still reach the caller, and hooks
    the launcher's functions when SGLang has loaded its plugins already. Nothing needs to be
    undone for `disable()`: the hooks leave arguments alone unless `SGLANG_DYNSPEC` is set.

    Args:
        enabled: True from `enable()`, False from `disable()`.

    Raises:
        SeamError: When the installed SGLang is not one this package fits.
    """
    if not enabled:
        return
    from sglang_dynspec_hooks.seams import activation

    activation.check_launcher()
    plugins = sys.modules.get("sglang.srt.plugins")
    if plugins is not None and plugins._plugins_loaded:
        activation.enable_launcher()


def names_plugin(arguments: Sequence[str]) -> bool:
    """
    Tell whether a command line asks for this plugin, before it is parsed.

    Args:
        arguments: The command line without the program's name.

    Returns:
        True when `dynspec` is among the values of `--enable-plugin`.
    """
    is_value = False
    for argument in arguments:
        if argument.startswith("-"):
            flag, _, value = argument.partition("=")
            is_value = flag == "--enable-plugin"
            if is_value and "dynspec" in value.split(","):
                return True
        elif is_value and "dynspec" in argument.split(","):
            return True
    return False
