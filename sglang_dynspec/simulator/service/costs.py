"""
What rounds cost, as a table over depth and padded batch size: it may fall, and it may jump.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.server import SyntheticServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Bend:
    """
    Batch sizes at which rounds cost another factor than the formula says: other kernels run there.

    Attributes:
        sizes: The smallest and the largest padded batch size concerned.

        factor: What the formula's seconds are multiplied with.

        depths: The depths concerned; empty for all.
    """

    sizes: tuple[int, int]
    factor: float
    depths: tuple[int, ...] = ()


class CostTable:
    """
    Seconds of a round by depth and padded batch size, and of an upkeep pass.

    Built from a server's formula, whose values at its CUDA graph sizes become the table, bent where
    kernels switch. Context is charged on top, per token, and a speculative round takes what the
    host needs at least.

    Args:
        server: Gives the formula, the graph sizes, context and floor.

        depths: The depths that have a row, ascending.

        bends: Where the table leaves the formula. Those that overlap multiply.

    Attributes:
        sizes: The padded batch sizes, ascending. There is no other.

        rounds: Seconds of a round without context and upkeep; shape (depths, sizes).

        passes: Seconds of an upkeep pass; shape (sizes,).
    """

    def __init__(
        self, server: SyntheticServer, depths: tuple[int, ...], bends: tuple[Bend, ...] = ()
    ) -> None:
        self.sizes = server.graph_sizes
        self.rounds = np.array(
            [
                [server.seconds_without_context(depth, size) for size in self.sizes]
                for depth in depths
            ]
        )
        at = np.array(self.sizes)
        for bend in bends:
            rows = np.array([not bend.depths or depth in bend.depths for depth in depths])
            columns = (at >= bend.sizes[0]) & (at <= bend.sizes[1])
            self.rounds[np.ix_(rows, columns)] *= bend.factor
        self.passes = np.array([server.upkeep_seconds(size) for size in self.sizes])
        self._rows: list[list[float]] = self.rounds.tolist()
        self._context = server.context
        self._floor = [server.floor if depth else 0.0 for depth in depths]

    def column(self, batch_size: int) -> int:
        """
        Find the column of the padded size that a batch runs at.

        Args:
            batch_size: Requests in the batch, 1 to the largest size.

        Raises:
            ValueError: The batch is larger than the largest size.
        """
        column = bisect_left(self.sizes, batch_size)
        if column == len(self.sizes):
            raise ValueError(
                f"expected a batch of at most {self.sizes[-1]} requests; found {batch_size}; "
                "lower the world's max_running"
            )
        return column

    def seconds(self, row: int, column: int, seq_len_sum: int) -> float:
        """
        Give the time of a round without noise, upkeep and re-entry.

        Args:
            row: Place of its depth.

            column: Place of its padded batch size.

            seq_len_sum: Tokens of context of its requests.
        """
        return max(self._floor[row], self._rows[row][column] + self._context * seq_len_sum)

    def over(
        self, columns: NDArray[np.int64], seq_len_sums: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """
        Give `seconds` of every depth in many rounds.

        Args:
            columns: Places of their padded batch sizes; shape (rounds,).

            seq_len_sums: Tokens of context of their requests; shape (rounds,).

        Returns:
            Shape (depths, rounds).
        """
        seconds = self.rounds[:, columns] + self._context * seq_len_sums
        most: NDArray[np.float64] = np.maximum(np.array(self._floor)[:, None], seconds)
        return most
