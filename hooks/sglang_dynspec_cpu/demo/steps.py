"""Progress on standard error: one line for each step that is done, and what goes on now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

#: Tells what a step is at, in place of what was told before.
Tell = Callable[[str], None]

#: Seconds between two lines of a step where lines cannot be replaced.
_INTERVAL = 15.0


class Steps:
    """Prints steps: a spinner on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(escape(line), soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Tell]:
        """
        Print a step when it begins, goes on and is done.

        Args:
            title: What is being done.

        Yields:
            A function that tells how far it is.
        """
        began = time.monotonic()
        latest = ""
        printed = began
        if not self._console.is_terminal:
            self.say(f"{title} ...")
        with self._console.status(escape(title)) as status:

            def tell(text: str) -> None:
                nonlocal latest, printed
                latest, now = text, time.monotonic()
                status.update(f"{escape(title)}: {escape(text)} ({now - began:.0f} s)")
                if not self._console.is_terminal and now - printed > _INTERVAL:
                    printed = now
                    self.say(f"  {text} ({now - began:.0f} s)")

            yield tell
        done = f": {latest}" if latest else ""
        self.say(f"done: {title}{done} ({time.monotonic() - began:.1f} s)")

    @contextmanager
    def stream(self, title: str) -> Iterator[Tell]:
        """
        Print a step whose own words are worth reading.

        Args:
            title: What is being done.

        Yields:
            A function that prints a piece of text as it is.
        """
        began = time.monotonic()
        self.say(f"{title} ...")

        def show(text: str) -> None:
            # Without a spinner, which would be drawn over a line that is not complete.
            self._console.print(text, end="", markup=False, emoji=False, soft_wrap=True)

        yield show
        self.say(f"done: {title} ({time.monotonic() - began:.1f} s)")
