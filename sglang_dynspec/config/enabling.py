"""
`enable` and `disable`: dynamic speculation for engines started from Python.

`sglang serve` has command-line flags for this. ``sgl.Engine(...)`` does not parse any, so the
configuration travels in the environment, which SGLang's child processes inherit.
"""

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from sglang_dynspec.config import Config
from sglang_dynspec.errors import ConfigError

#: Holds the configuration as JSON. Its presence is what enables us in SGLang's processes.
VARIABLE = "SGLANG_DYNSPEC"

#: Our name in SGLang's entry-point group of plugins.
PLUGIN = "dynspec"

_GROUP = "sglang_dynspec.runtime"


def enable(**fields: Any) -> Config:
    """
    Enable dynamic speculation for engines this process starts from now on.

    Call it before ``sgl.Engine(...)``::

        sglang_dynspec.enable(policy="threshold", options={"batch_size": 16})

    Args:
        **fields: Fields of `Config`. What is not given comes from the environment or the defaults.

    Returns:
        The configuration in force.

    Raises:
        ConfigError: A field is refused, or SGLang would not load this package.
    """
    config = Config.load(flags=fields, option_pairs=[], config_file=None, environ=os.environ)
    _check_allowed(os.environ.get("SGLANG_PLUGINS", ""))
    arm = _arm()
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = config.to_json()
    try:
        arm(True)
    except BaseException:
        _restore(before)
        raise
    return config


def disable() -> None:
    """
    Undo `enable`: engines this process starts from now on are SGLang's own again.

    An engine that is already running keeps what it was started with.
    """
    os.environ.pop(VARIABLE, None)
    _arm()(False)


def _check_allowed(plugins: str) -> None:
    # SGLang loads every plugin when the variable is empty, else those it lists.
    allowed = [name.strip() for name in plugins.split(",") if name.strip()]
    if allowed and PLUGIN not in allowed:
        raise ConfigError(
            expected=f"SGLANG_PLUGINS to be unset or to list {PLUGIN}",
            found=f"SGLANG_PLUGINS={plugins!r}",
            remedy=f"set SGLANG_PLUGINS={','.join([*allowed, PLUGIN])}",
        )


def _arm() -> Callable[[bool], None]:
    found = list(entry_points(group=_GROUP))
    if not found:
        raise ConfigError(
            expected=f"an entry point in the group {_GROUP}",
            found="none",
            remedy="install the package with its metadata: pip install sglang-dynspec",
        )
    arm: Callable[[bool], None] = found[0].load()
    return arm


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = before
