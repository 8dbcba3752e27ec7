"""
When to look at a depth that is not in force: what may be spent on it, and what it may bring.
"""

#: Rounds' worth of tokens that may be lost before any were earned, and that are saved up at most.
_ALLOWANCE = 4.0
_SAVINGS = 6.0

#: Rounds between two probes of a depth: first, and doubled each time up to the last.
_FIRST_INTERVAL = 8
_LAST_INTERVAL = 64

#: Rounds between two probes of a depth at most, and the share of the budget each depth may use.
_LONGEST_INTERVAL = 200
_DEPTH_SHARE = 0.25

#: The same for a depth that cannot win by what is known.
_HOPELESS_INTERVAL = 2000

#: Rounds until a probe that was not run is tried again.
_RETRY = 32

#: Rounds between the end of a probe and the next one: its outcomes have to be in.
_SPACING = 4


class Budget:
    """
    Tokens that probes may lose: a share of those delivered, and a little in advance.

    Args:
        share: The share, 0.005 for 0.5 %.

    Attributes:
        tokens: What may be lost now; below 0 where a probe cost more than expected.
    """

    __slots__ = ("_opened", "_share", "tokens")

    def __init__(self, share: float) -> None:
        self._share = share
        self._opened = False
        self.tokens = 0.0

    def earn(self, tokens: float) -> None:
        """
        Count the tokens of a round.
        """
        if not self._opened and tokens > 0.0 and self._share > 0.0:
            self._opened = True
            self.tokens = _ALLOWANCE * tokens
        if self.tokens < _SAVINGS * tokens:
            self.tokens += self._share * tokens

    def spend(self, tokens: float) -> None:
        """
        Count the tokens lost by a probe.
        """
        self.tokens -= tokens


class Schedule:
    """
    When each depth may be probed next.

    Args:
        count: Number of candidate depths.

    Attributes:
        probes: Probes begun.
    """

    __slots__ = ("_due", "_intervals", "_last", "_quiet_until", "probes")

    def __init__(self, count: int) -> None:
        self._intervals = [_FIRST_INTERVAL] * count
        self._due = [0] * count
        self._last = [0] * count
        self._quiet_until = _SPACING
        self.probes = 0

    def quiet(self, now: int) -> bool:
        """
        Say whether it is too early for any probe.
        """
        return now < self._quiet_until

    def due(self, index: int, now: int, *, hopeless: bool, unmeasured: bool) -> bool:
        """
        Say whether a depth may be probed.

        Args:
            index: The depth's place among the candidates.

            now: Rounds so far.

            hopeless: Whether it cannot win by what is known.

            unmeasured: Whether it never ran at this batch size.
        """
        if unmeasured and not hopeless:
            return now >= self._last[index] + _RETRY // 2
        if hopeless:
            return now >= self._last[index] + _HOPELESS_INTERVAL
        return now >= self._due[index]

    def begin(self, index: int, now: int, rounds: int, cost: float) -> None:
        """
        Note that a probe begins.

        Args:
            index: The depth's place among the candidates.

            now: Rounds so far.

            rounds: Rounds it takes.

            cost: Tokens it loses, as a share of what the budget earns in a round.
        """
        self.probes += 1
        self._last[index] = now
        self._quiet_until = now + rounds + _SPACING
        afforded = min(cost / _DEPTH_SHARE, _LONGEST_INTERVAL)
        self._due[index] = now + max(self._intervals[index], int(afforded))
        self._intervals[index] = min(2 * self._intervals[index], _LAST_INTERVAL)

    def ran(self, index: int, now: int) -> None:
        """
        Note that a depth ran, probed or not.
        """
        self._last[index] = now

    def refuse(self, index: int, now: int) -> None:
        """
        Note that a probe was not run as planned, so that it is tried again before long.
        """
        self._due[index] = now + _RETRY

    def restart(self) -> None:
        """
        Probe often again: something changed.
        """
        for index in range(len(self._due)):
            self._intervals[index] = _FIRST_INTERVAL
            self._due[index] = 0
