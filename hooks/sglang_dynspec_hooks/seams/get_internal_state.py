"""Seam: ``/server_info``. Shows what was decided and run so far."""

from __future__ import annotations

from typing import Any

from sglang_dynspec_hooks.contract.seam import Kind, Seam

SEAM = Seam(
    target=(
        "sglang.srt.managers.scheduler_components.internal_state."
        "SchedulerInternalStateController.get_internal_state"
    ),
    kind=Kind.AFTER,
    parameters=("self", "recv_req"),
    reason="show counters of rounds, switches, upkeep and faults",
    removal="SGLang lets plugins contribute to the internal state",
)


def handler(result: Any, controller: Any, _recv_req: Any) -> Any:
    """Add our account under the key ``dynspec``."""
    bridge = getattr(controller.scheduler.draft_worker, "dynspec", None)
    if bridge is not None:
        result.internal_state["dynspec"] = bridge.state(controller.scheduler)
    return result
