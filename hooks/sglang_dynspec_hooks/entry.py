"""
Where SGLang, and the core's `enable()`, enter this package.

SGLang swallows every exception of a plugin, so a package that could not load would leave a
server that silently does not do what was asked. This module therefore imports the standard
library alone, catches everything itself, and stops the process by `SystemExit`, which SGLang
lets pass.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

#: Holds the configuration as JSON for child processes; its presence means "enabled".
ENABLED: Final = "SGLANG_DYNSPEC"
#: The distribution that SGLang's entry point belongs to.
DISTRIBUTION: Final = "sglang-dynspec"
#: The exit status of a refusal (EX_CONFIG of sysexits.h).
EXIT_STATUS: Final = 78

logger = logging.getLogger("sglang_dynspec")


class Role(Enum):
    """What the present process is to an SGLang server."""

    #: Parses arguments and starts the others: `sglang serve`, or a script with an `Engine`.
    LAUNCHER = "launcher"
    #: Runs the model.
    SCHEDULER = "scheduler"
    #: Has nothing to decide and must not fail on our account: detokenizer, DP controller.
    BYSTANDER = "bystander"
    #: A child process this module does not recognise.
    UNKNOWN = "unknown"


#: SGLang's process entry functions: `load_plugins()` is called inside one of them.
_ROLES: Final = {
    "run_scheduler_process": Role.SCHEDULER,
    "run_detokenizer_process": Role.BYSTANDER,
    "run_data_parallel_controller_process": Role.BYSTANDER,
}


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
        from sglang_dynspec_hooks import _activate

        _activate.activate(present_role(), is_enabled=is_wanted)
    except Exception as error:  # noqa: BLE001 - SGLang would swallow it
        if is_wanted:
            exit_with(error)
        # Somebody else's server: say why we are absent, once, and stay out of the way.
        logger.warning("plugin_not_loaded error=%r: it was not asked for, nothing changes", error)


def arm(enabled: bool) -> None:
    """
    Prepare this process for an engine built after `sglang_dynspec.enable()`.

    Checks what `activate` would check, where a failure can still reach the caller, and hooks
    the launcher's functions when SGLang has loaded its plugins already. Nothing needs to be
    undone for `disable()`: the hooks leave a record alone unless `SGLANG_DYNSPEC` is set.

    Args:
        enabled: True from `enable()`, False from `disable()`.

    Raises:
        SeamError: When the installed SGLang is not one this package fits.
    """
    if not enabled:
        return
    from sglang_dynspec_hooks import _activate

    _activate.check_launcher()
    plugins = sys.modules.get("sglang.srt.plugins")
    if plugins is not None and plugins._plugins_loaded:
        _activate.enable_launcher()


def present_role() -> Role:
    """
    Tell what the present process is, from the functions that are being called.

    The call stack rather than the process's target, because a user may wrap SGLang's entry
    functions in one of his own.

    Returns:
        The role; a main process that runs none of SGLang's entry functions is a launcher.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        role = _ROLES.get(frame.f_code.co_name)
        if role is not None:
            return role
        frame = frame.f_back
    import multiprocessing

    return Role.LAUNCHER if multiprocessing.parent_process() is None else Role.UNKNOWN


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


def exit_with(error: BaseException) -> NoReturn:
    """
    Stop the process with one line on standard error.

    Args:
        error: A `DynspecError`, whose text is complete, or anything unforeseen.

    Raises:
        SystemExit: Always, with status 78.
    """
    print(f"dynspec: error: {one_line(error)}", file=sys.stderr, flush=True)  # noqa: T201
    raise SystemExit(EXIT_STATUS) from None


def one_line(error: BaseException) -> str:
    """
    Put an error into one line that says what was expected, what was found, and what to do.

    Args:
        error: A `DynspecError` that says so itself, or anything unforeseen.

    Returns:
        "expected ...; found ...; ...".
    """
    text = " ".join(str(error).split())
    if text.startswith("expected "):
        return text
    return (
        f"expected {DISTRIBUTION} to load and run; found {type(error).__name__}: {text}; "
        "run `dynspec doctor`, reinstall it, or start without --enable-plugin dynspec"
    )


@contextlib.contextmanager
def exits_on_error() -> Iterator[None]:
    """
    Turn any exception of the block into `exit_with`.

    Yields:
        Nothing; the block is the command line's path, where a traceback helps nobody.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a launcher must stop, whatever it was
        exit_with(error)
