"""
Rounds before the server serves, that have what is slow the first time behind them.
"""

from typing import Final

from sglang_dynspec.observation import Plan


class WarmUp:
    """
    Plans for every depth in turn, with a plain round before each, so that re-entry is among them.

    What has to be compiled or loaded at a depth's first round is there afterwards. Neither policy
    nor counters, observers and trace know of these rounds.

    Args:
        depths: Candidate depths, ascending, beginning with 0.

    Attributes:
        on: Whether the server is being warmed up.
    """

    #: The reason of these plans.
    REASON: Final = "warm_up"

    __slots__ = ("_turns", "on")

    def __init__(self, depths: tuple[int, ...]) -> None:
        self._turns = [
            Plan(depth=turn, reason=self.REASON) for depth in depths[1:] for turn in (0, depth)
        ]
        self.on = False

    def made(self, plan: Plan) -> bool:
        """
        Tell one of these plans from one that only gives the same reason.
        """
        return any(plan is turn for turn in self._turns)

    def plan(self, index: int) -> Plan:
        """
        Give the plan of a round.

        Args:
            index: Its index.
        """
        return self._turns[index % len(self._turns)]
