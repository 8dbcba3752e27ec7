"""
The ``depth`` option that several policies share.
"""

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.policy import Limits


def chosen_depth(depth: int | None, limits: Limits) -> int:
    """
    Resolve a ``depth`` option.

    Args:
        depth: The option, or None for the largest candidate.

        limits: Where the candidates are.

    Returns:
        A candidate depth.

    Raises:
        ConfigError: The depth is not a candidate.
    """
    if depth is None:
        return limits.largest
    check_candidate(depth, limits, option="depth")
    return depth


def check_candidate(depth: int, limits: Limits, *, option: str) -> None:
    """
    Refuse a depth that is not a candidate.

    Args:
        depth: The depth.

        limits: Where the candidates are.

        option: The option it comes from, for the message.

    Raises:
        ConfigError: The depth is not a candidate.
    """
    if depth not in limits.depths:
        candidates = ", ".join(map(str, limits.depths))
        raise ConfigError(
            expected=f"{option} to use the candidate depths {candidates}",
            found=f"depth {depth}",
            remedy=f"use one of {candidates}, or add {depth} to depths",
        )
