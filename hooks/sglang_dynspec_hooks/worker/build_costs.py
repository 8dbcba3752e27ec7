"""What the tiers cost at start-up: seconds, and gigabytes of GPU memory."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_dynspec.errors import SeamError
from sglang_dynspec.log import structured

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = structured(None, "sglang_dynspec")

#: Key of what upkeep needs beside the tiers.
UPKEEP = "upkeep"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCost:
    """Seconds and gigabytes of GPU memory that building something took."""

    seconds: float
    gigabytes: float


class BuildCosts:
    """Measures, logs and keeps what each tier took, and explains the one that does not fit."""

    def __init__(self, worker: Any, *, upkeep_depth: int) -> None:
        """
        Begin with nothing built.

        Args:
            worker: The speculative worker.
            upkeep_depth: Depth of the tier that runs upkeep passes.
        """
        self._worker = worker
        self._upkeep_depth = upkeep_depth
        self._costs: dict[int | str, BuildCost] = {}
        self._begun = (0.0, 0.0)

    def begin(self) -> None:
        """Note that something is about to be built."""
        from sglang.srt.utils.common import get_available_gpu_memory

        worker = self._worker
        self._begun = time.perf_counter(), get_available_gpu_memory(worker.device, worker.gpu_id)

    def note(self, built: int | str) -> None:
        """
        Note that it is built.

        Args:
            built: The tier's depth, or `UPKEEP`.
        """
        since, before = self._begun
        self.begin()
        cost = BuildCost(seconds=self._begun[0] - since, gigabytes=before - self._begun[1])
        self._costs[built] = cost
        took = {"seconds": f"{cost.seconds:.1f}", "gigabytes": f"{cost.gigabytes:.2f}"}
        if built == UPKEEP:
            logger.info("upkeep_built", **took)
        else:
            logger.info("tier_built", depth=built, **took)

    @contextmanager
    def account(self, built: int | str) -> Iterator[None]:
        """
        Note what is built inside.

        Raises:
            SeamError: It does not fit; the message says what to leave out.
        """
        self.begin()
        try:
            yield
        except Exception as error:
            if "out of memory" not in str(error).lower():
                raise
            raise SeamError(
                expected=f"enough GPU memory for {_name(built)}",
                found=f"{self._begun[1]:.2f} GB free and: {error}",
                remedy=_remedy(built, self._upkeep_depth),
            ) from error
        self.note(built)

    def as_json(self) -> dict[str, dict[str, float]]:
        """Give the costs as plain JSON types."""
        return {
            str(built): {"seconds": round(cost.seconds, 2), "gigabytes": round(cost.gigabytes, 3)}
            for built, cost in self._costs.items()
        }


def _name(built: int | str) -> str:
    if built == UPKEEP:
        return "upkeep"
    return f"the tier of depth {built}" + (" (plain rounds)" if built == 0 else "")


def _remedy(built: int | str, upkeep_depth: int) -> str:
    """What a user can do when a tier, or what upkeep needs, does not fit."""
    if built == UPKEEP:
        return "lower --mem-fraction-static or --max-running-requests"
    if built == 0:
        return "set plain_graphs=false, lower --mem-fraction-static, or capture smaller batches"
    if built == upkeep_depth:
        return (
            f"choose an upkeep_window other than {upkeep_depth + 1}, or lower --mem-fraction-static"
        )
    return f"drop depth {built} from the candidate depths, or lower --mem-fraction-static"
