"""Rows of an upkeep pass, and how what the host knows of them gets to the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """
    The input of one upkeep pass over n requests.

    Attributes:
        tokens: Produced tokens, int32, shape (n * width,); oldest first, then padding.
        hidden: Target hidden rows, shape (n * width, hidden size), or None.
        slots: Request slot that each row belongs to, int64, shape (n * width,); 0 for padding.
        positions: Each row's position in its sequence, int64, shape (n * width,); 0 for padding.
        taken: Rows that count per request, at least 1, int64, shape (n,); on the device.
        taken_cpu: The same on the host.
        owing: 1 for requests that owed anything, else 0; int64, shape (n,); on the device.
    """

    tokens: torch.Tensor
    hidden: torch.Tensor | None
    slots: torch.Tensor
    positions: torch.Tensor
    taken: torch.Tensor
    taken_cpu: npt.NDArray[np.int64]
    owing: torch.Tensor


def upload(values: npt.NDArray[np.int64], device: str) -> torch.Tensor:
    """Copy host values to the device without waiting for it; the shape stays."""
    host = torch.from_numpy(values)
    if torch.device(device).type == "cuda":
        # Only a copy from pinned memory is asynchronous.
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


def hidden_rows(worker: Any) -> tuple[int, torch.dtype] | None:
    """Length and dtype of the target's hidden rows that the draft reads, or None."""
    from sglang.srt.speculative.eagle_utils import get_draft_input_from_target_hidden_dim

    if worker.speculative_algorithm.is_standalone():
        return None
    runner = worker.draft_worker.draft_runner
    return get_draft_input_from_target_hidden_dim(runner), runner.model_config.dtype
