"""
How the configuration travels on SGLang's `ServerArgs` and in the environment.

On the arguments it reaches every process that they describe, but a child loads its plugins before
it sees them. So the environment says *that* we are enabled, and holds the configuration as the user
gave it; the arguments hold the one that was resolved for that server.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec_hooks.process import ENABLED

if TYPE_CHECKING:
    from sglang_dynspec.config import Config, ResolvedConfig

#: The bookkeeping attribute of `ServerArgs`: JSON, and pickled to children with the rest.
CONFIG: Final = "_dynspec"
#: Set beside it when the arguments were made from a command line.
FROM_COMMAND_LINE: Final = "_dynspec_from_command_line"

#: What this process last exported for a command line, to know it from what a user exported.
_exported: str | None = None


def attach(server_args: Any, config: Config) -> None:
    """
    Write a configuration on a server's arguments; allowed before, during and after resolution.

    Args:
        server_args: SGLang's `ServerArgs`.
        config: The configuration.
    """
    setattr(server_args, CONFIG, config.to_json())


def config_of(server_args: Any) -> ResolvedConfig:
    """
    Read the configuration that a server's arguments carry.

    Args:
        server_args: SGLang's `ServerArgs`, in any process.

    Returns:
        The configuration, as it was resolved for that server.

    Raises:
        SeamError: When they carry none, so that a server which was to be ours would run
            as plain SGLang.
    """
    from sglang_dynspec.config import ResolvedConfig
    from sglang_dynspec.errors import SeamError

    text = getattr(server_args, CONFIG, None)
    if text is None:
        raise SeamError(
            expected="server arguments that were resolved with this plugin loaded",
            found="a speculative server whose arguments carry no configuration of ours",
            remedy="let SGLang load its plugins before ServerArgs.resolve_once() runs "
            "(sglang.srt.plugins.load_plugins())",
        )
    return ResolvedConfig.from_json(text)


def requested(server_args: Any) -> Config | None:
    """
    Find the configuration that arguments are to be resolved with.

    Args:
        server_args: SGLang's `ServerArgs`, not yet resolved.

    Returns:
        What its command line asked for, else what the environment holds; `None` for arguments
        that are not ours. Those without a model serve SGLang's own bookkeeping.

    Raises:
        ConfigError: When the environment holds something else than a configuration.
    """
    from sglang_dynspec.config import Config

    text = getattr(server_args, CONFIG, None) or os.environ.get(ENABLED)
    if text is None or str(server_args.model_path).lower() in ("none", "dummy"):
        return None
    return Config.from_json(text)


def export(config: Config) -> None:
    """
    Tell child processes, through the environment, that a command line enabled us.

    Args:
        config: The configuration as the user gave it.
    """
    global _exported  # noqa: PLW0603 - the environment is as global
    _exported = os.environ[ENABLED] = config.to_json()


def withdraw() -> None:
    """Undo `export`, for a command line in the same process that does not ask for us."""
    global _exported  # noqa: PLW0603
    if _exported is not None and os.environ.get(ENABLED) == _exported:
        del os.environ[ENABLED]
    _exported = None
