"""
The last decision, written out for people.
"""

import math
from typing import Any

from sglang_dynspec.observation import Plan


def describe_decision(
    plan: Plan | None, asked: Plan | None, depths: tuple[int, ...]
) -> dict[str, Any] | None:
    """
    Give a decision as plain JSON types, whatever a policy put into its plan.

    Args:
        plan: The plan of the last round, after the guard; None before the first.

        asked: The last plan that the policy asked for; None before the first.

        depths: Candidate depths, which the predictions are in the order of.

    Returns:
        ``depth``, ``reason`` and ``probe`` of the plan, and under ``policy`` what the policy asked
        for: the same and ``gain``, ``confidence``, ``blocked``, and ``predicted``, tokens/s by
        depth. None before the first round. Numbers that JSON cannot hold are None.
    """
    if plan is None:
        return None
    wanted: dict[str, Any] | None = None
    if asked is not None:
        wanted = {
            "depth": asked.depth,
            "reason": asked.reason,
            "probe": asked.probe,
            "gain": _number(asked.gain),
            "confidence": _number(asked.confidence),
            "blocked": asked.blocked,
            "predicted": _predicted(asked.predicted, depths),
        }
    return {"depth": plan.depth, "reason": plan.reason, "probe": plan.probe, "policy": wanted}


def _predicted(predicted: object, depths: tuple[int, ...]) -> dict[str, float | None]:
    # Nothing checks these round by round, and a policy may be anybody's.
    if not isinstance(predicted, tuple | list):
        return {}
    # A policy may predict for fewer depths than there are.
    return {str(depth): _number(rate) for depth, rate in zip(depths, predicted, strict=False)}


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
