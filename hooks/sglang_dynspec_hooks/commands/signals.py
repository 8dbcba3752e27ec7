"""Ending a command in order."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal that ends a command end the block: it undoes what the command began."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in _ENDING]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """
    Let SIGTERM and SIGHUP end the block like Ctrl-C does, so that what it began is undone.

    The latter comes when a terminal is closed or a connection to it breaks; ``nohup`` ignores it,
    and so does the block then.
    """

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
