"""
Our loggers: structured, on top of the standard library's.

structlog's global configuration belongs to the application, which here is SGLang, so each logger is
wrapped with a chain of its own and `structlog.configure` is never called.
"""

import logging
import traceback
from typing import Any, cast

import structlog
from structlog.typing import EventDict, WrappedLogger

#: structlog's own frames between our call and the standard library's, plus one.
_STACKLEVEL = 4


def structured(log: logging.Logger | None, name: str) -> structlog.stdlib.BoundLogger:
    """
    Wrap a standard library logger.

    Args:
        log: The logger to write through, or None for the one called `name`.

        name: Name of the logger to write through otherwise.

    Returns:
        A logger whose methods take an event and fields: ``log.error("policy_failed", faults=1)``
        writes the line ``policy_failed faults=1``, with a traceback where ``exc_info`` is given.
    """
    wrapped: Any = structlog.wrap_logger(
        log if log is not None else logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _line],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("structlog.stdlib.BoundLogger", wrapped)


def describe(error: BaseException) -> str:
    """
    Describe an exception in one line: its type, its message and the line that raised it.
    """
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # a fault in somebody's __str__ must not become ours
        message = "(its message cannot be shown)"
    text = f"{type(error).__name__}: {message}"
    frames = traceback.extract_tb(error.__traceback__)
    # The import system's own frames say nothing about where the fault is.
    told = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    if told:
        text += f" ({told[-1].filename}:{told[-1].lineno} in {told[-1].name})"
    return text


def _line(_: WrappedLogger, __: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    name, exc_info = event.pop("event"), event.pop("exc_info", None)
    # Of a helper that logs for its caller.
    frames = event.pop("frames", 0)
    fields = [f"{key}={_value(value)}" for key, value in event.items()]
    line = " ".join([str(name), *fields])
    return (line,), {"stacklevel": _STACKLEVEL + frames, "exc_info": exc_info}


def _value(value: object) -> str:
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  # as in describe
        text = "(it cannot be shown)"
    # Whatever would end the line or look like another field.
    return text if text.isprintable() and text and " " not in text else repr(text)
