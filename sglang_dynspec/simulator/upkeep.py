"""
Passes that a synthetic draft model's KV cache is owed.
"""


class Upkeep:
    """
    Counts plain rounds, and says which rounds have a pass.

    Args:
        window: Plain rounds between two passes; 0 for none.

        guess_every: Every so many of the passes in plain rounds yields a guess of a token.

    Attributes:
        guessed: Whether the round noted last was plain and had a pass that guesses.
    """

    def __init__(self, window: int, *, guess_every: int = 1) -> None:
        self._window = window
        self._guess_every = guess_every
        self._pending = 0
        self._passes = 0
        self.guessed = False

    def plain(self) -> bool:
        """
        Note a plain round, and say whether it has a pass.
        """
        self._pending += 1
        due = self._pending == self._window
        self.guessed = due and self._passes % self._guess_every == 0
        if due:
            self._pending = 0
            self._passes += 1
        return due

    def speculative(self) -> bool:
        """
        Note a speculative round, and say whether it has a pass: one that is a re-entry does.
        """
        owing = self._pending > 0 and self._window > 0
        self._pending, self.guessed = 0, False
        return owing
