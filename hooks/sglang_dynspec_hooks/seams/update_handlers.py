"""Seam: ``/set_internal_state``. Forces a depth, or changes the upkeep window, while serving."""

from __future__ import annotations

from typing import Any

from sglang_dynspec_hooks.contract.seam import Kind, Seam

SEAM = Seam(
    target=(
        "sglang.srt.managers.scheduler_components.internal_state."
        "SchedulerInternalStateController._update_handlers"
    ),
    kind=Kind.AFTER,
    parameters=("self",),
    reason="let an operator force a depth without a restart",
    removal="SGLang lets plugins register keys of /set_internal_state",
)


def handler(result: dict[str, Any], controller: Any) -> dict[str, Any]:
    """
    Add our keys to the handlers. Values are numbers; a rejection answers ``updated: false``.

    ``dynspec_force_depth``: a candidate depth, or -1 to let the policy decide again.
    ``dynspec_upkeep_window``: 0 (no upkeep) up to the width of the upkeep tier.
    ``dynspec_warm_up``: 1 to run every depth in turn and learn nothing, 0 to serve.
    """
    worker = controller.scheduler.draft_worker
    bridge = getattr(worker, "dynspec", None)
    if bridge is None:
        return result
    from sglang.srt.managers.scheduler_components.internal_state import (
        UpdateRejected,
        _UpdateHandler,
    )

    def check(key: str, value: Any, allowed: range | tuple[int, ...]) -> None:
        if isinstance(value, bool) or value not in allowed:
            raise UpdateRejected(f"expected {key} to be one of {list(allowed)}; found {value!r}")

    result["dynspec_force_depth"] = _UpdateHandler(
        lambda key, value: check(key, value, (-1, *bridge.config.depths)),
        lambda _key, value: bridge.rounds.force(None if value < 0 else int(value)),
    )
    result["dynspec_upkeep_window"] = _UpdateHandler(
        lambda key, value: check(key, value, range(worker.upkeep.width + 1)),
        lambda _key, value: worker.upkeep.set_window(int(value)),
    )
    result["dynspec_warm_up"] = _UpdateHandler(
        lambda key, value: check(key, value, (0, 1)),
        lambda _key, value: setattr(bridge.rounds.warm_up, "on", bool(value)),
    )
    return result
