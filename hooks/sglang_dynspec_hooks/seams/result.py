"""Seam: the processing of a decode round's result. The outcome is made here."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sglang_dynspec_hooks.contract.seam import Kind, Seam

if TYPE_CHECKING:
    from collections.abc import Callable

SEAM = Seam(
    target=(
        "sglang.srt.managers.scheduler_components.batch_result_processor."
        "SchedulerBatchResultProcessor.process_batch_result_decode"
    ),
    kind=Kind.AROUND,
    parameters=("self", "batch", "result"),
    reason="turn a processed round into an outcome, tagged with the depth that ran",
    removal="SGLang hands a policy of ours the round's result with its depth",
)


def handler(original: Callable[..., None], processor: Any, batch: Any, result: Any) -> None:
    """Process the result as SGLang does, and settle the round with the core."""
    bridge = getattr(processor.draft_worker, "dynspec", None)
    if bridge is None:
        original(processor, batch, result)
    else:
        bridge.settle(batch, result, functools.partial(original, processor, batch, result))
