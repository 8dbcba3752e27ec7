"""
What rounds took, by depth and batch size: the part of the account that ``calibrate`` reads.
"""

from typing import Any

from sglang_dynspec.observation import Outcome

#: Rows that a table may have. CUDA graphs pad to some fifty batch sizes.
LARGEST_TABLE = 512


class TimedRounds:
    """
    Totals over the rounds of known period at one depth and one padded batch size.

    Attributes:
        rounds: Rounds without an upkeep pass.

        seconds: Their periods.

        tokens: Tokens they delivered.

        requests: Counted requests, summed over them.

        seq_len_sum: Sums of their requests' lengths in tokens, summed over them.

        upkeep_rounds: Rounds with an upkeep pass, which the totals above leave out.

        upkeep_seconds: Their periods.
    """

    __slots__ = (
        "requests",
        "rounds",
        "seconds",
        "seq_len_sum",
        "tokens",
        "upkeep_rounds",
        "upkeep_seconds",
    )

    def __init__(self) -> None:
        self.rounds = 0
        self.seconds = 0.0
        self.tokens = 0
        self.requests = 0
        self.seq_len_sum = 0
        self.upkeep_rounds = 0
        self.upkeep_seconds = 0.0

    def count(self, outcome: Outcome, period: float) -> None:
        """
        Add a round.

        Args:
            outcome: What the round did.

            period: Its seconds.
        """
        if outcome.upkeep:
            self.upkeep_rounds += 1
            self.upkeep_seconds += period
            return
        self.rounds += 1
        self.seconds += period
        self.tokens += outcome.tokens
        self.requests += outcome.batch_size
        self.seq_len_sum += outcome.seq_len_sum


class TimedTable:
    """
    `TimedRounds` by depth and padded batch size.

    Bounded: rounds that would make it larger than `LARGEST_TABLE` rows are in none of them.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], TimedRounds] = {}

    def count(self, outcome: Outcome) -> bool:
        """
        Add a round.

        Args:
            outcome: What the round did.

        Returns:
            Whether it can be measured by: see `Outcome.usable_period`.
        """
        period = outcome.usable_period
        if period is None:
            return False
        key = (outcome.depth, outcome.padded_batch_size or outcome.batch_size)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= LARGEST_TABLE:
                return True
            row = self._rows[key] = TimedRounds()
        row.count(outcome, period)
        return True

    def summary(self) -> list[dict[str, Any]]:
        """
        Give the rows as plain JSON types.

        Returns:
            A row for each ``depth`` and ``padded_batch_size``, sorted by both, with the fields of
            `TimedRounds`.
        """
        return [
            {"depth": depth, "padded_batch_size": size}
            | {name: getattr(row, name) for name in row.__slots__}
            for (depth, size), row in sorted(self._rows.items())
        ]
