"""Seam: ``/set_internal_state``. Changes our settings while serving, and refuses what breaks us."""

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
    reason="let an operator force a depth without a restart, and keep acceptance exact",
    removal="SGLang lets plugins register keys of /set_internal_state",
)


def handler(result: dict[str, Any], controller: Any) -> dict[str, Any]:
    """
    Add our keys to the handlers. Values are whole numbers; a rejection is logged and answers False.

    ``dynspec_force_depth``: a candidate depth, or -1 to let the policy decide again.
    ``dynspec_upkeep_window``: 0 (no upkeep) up to the width of the upkeep tier.
    ``dynspec_warm_up``: 1 to run every depth in turn and learn nothing, 0 to serve.

    SGLang's keys that start-up refuses at any value but one (rule ``lossy_acceptance``) keep it.
    """
    worker = controller.scheduler.draft_worker
    bridge = getattr(worker, "dynspec", None)
    if bridge is None:
        return result
    from sglang.srt.managers.scheduler_components.internal_state import (
        UpdateRejected,
        _UpdateHandler,
    )

    from sglang_dynspec.log import structured

    def check(key: str, value: float, allowed: range | tuple[int, ...]) -> None:
        if value not in allowed:
            raise UpdateRejected(f"expected {key} to be one of {list(allowed)}; found {value!r}")

    def keep_exact(key: str, value: float) -> None:
        if value != 1:
            raise UpdateRejected(
                f"expected {key} to stay 1 (exact acceptance); found {value!r}; "
                "plain and speculative rounds would differ in distribution"
            )

    def warm_up(_key: str, value: float) -> None:
        bridge.rounds.warm_up.on = bool(value)
        structured(None, "sglang_dynspec").info("warm_up_switched", on=bool(value))

    for key in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        result[key] = _UpdateHandler(keep_exact, result[key].apply)
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
        warm_up,
    )
    return result
