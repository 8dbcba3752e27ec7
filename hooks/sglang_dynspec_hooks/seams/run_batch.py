"""Seam: the launch of a batch. The plan is written on it here."""

from __future__ import annotations

from typing import Any

from sglang_dynspec_hooks.contract.seam import Kind, Seam

SEAM = Seam(
    target="sglang.srt.managers.scheduler.Scheduler.run_batch",
    kind=Kind.BEFORE,
    parameters=("self", "batch", "pp_proxy_tensors"),
    reason="observe the batch, the queue and the pools once per launched round, and plan it",
    removal="SGLang calls a policy object of ours before it launches a decode round",
)


def handler(scheduler: Any, batch: Any, *_args: Any, **_kwargs: Any) -> None:
    """Mark the batch with its plan. Never raises."""
    bridge = getattr(scheduler.draft_worker, "dynspec", None)
    if bridge is not None:
        bridge.mark(scheduler, batch)
