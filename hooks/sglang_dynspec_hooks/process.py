"""
What the present process is to an SGLang server, and how it stops on our account.

Imports the standard library alone, as `entry` does, which uses it.
"""

from __future__ import annotations

import contextlib
import sys
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: Holds the configuration as JSON for child processes; its presence means "enabled".
ENABLED: Final = "SGLANG_DYNSPEC"
#: The distribution that SGLang's entry point belongs to.
DISTRIBUTION: Final = "sglang-dynspec"
#: The exit status of a refusal (EX_CONFIG of sysexits.h).
EXIT_STATUS: Final = 78


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
