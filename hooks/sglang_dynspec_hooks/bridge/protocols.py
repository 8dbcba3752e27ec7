"""What the bridge needs of the worker, which is all that it knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt


class DraftUpkeep(Protocol):
    """What the bridge needs of upkeep. No method raises."""

    @property
    def window(self) -> int:
        """Plain rounds between two passes, as it is set now; 0 for no upkeep."""

    def release(self, scheduler: Any, batch: Any, rows: Sequence[int]) -> None:
        """Keep the draft rows of requests that finished whole, and forget their slots."""

    @property
    def prefills(self) -> int:
        """Prefills of which upkeep has noted something, so far."""

    def forget_gone(self, slots_cpu: npt.NDArray[np.int64], prefills: int) -> None:
        """Drop what slots owe whose requests were gone before ``prefills`` prefills."""

    def summary(self) -> dict[str, Any]:
        """Give its state as plain JSON types."""


class Worker(Protocol):
    """What the bridge needs of the worker."""

    @property
    def upkeep(self) -> DraftUpkeep:
        """Its upkeep of the draft model."""

    #: Batch sizes that plain rounds have CUDA graphs for, ascending; empty without.
    graph_sizes: tuple[int, ...]

    def build_costs(self) -> dict[str, Any]:
        """Give what the tiers took to build as plain JSON types."""
