"""
The pluggy hooks a plugin may implement.

An observer is any object or module with `hookimpl`-marked functions of these names, registered
through the entry-point group ``sglang_dynspec``. The three per-round hooks are called on the
scheduler's thread, so an observer must be quick; one that raises is counted and reported, and
never stops serving. Rounds cost nothing extra while no plugin implements them.
"""

from collections.abc import Mapping

from sglang_dynspec.marker import hookspec
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Policy


@hookspec
def dynspec_before_round(observation: Observation, plan: Plan) -> None:
    """
    A round has been planned and is about to run.

    Args:
        observation: What the decision was based on.

        plan: The plan in force, after the guard.
    """


@hookspec
def dynspec_after_round(outcome: Outcome) -> None:
    """
    The outcome of a round is known.

    Args:
        outcome: What the round did.
    """


@hookspec
def dynspec_depth_changed(old: int, new: int, reason: str) -> None:
    """
    Another depth has come into force. Not told for probes: they leave the depth in force.

    Args:
        old: Depth in force before.

        new: Depth of this round.

        reason: The reason its plan gives.
    """


@hookspec
def dynspec_register_policies() -> Mapping[str, type[Policy]]:  # type: ignore[empty-body]
    """
    Offer policies by name, as the entry-point group ``sglang_dynspec.policies`` does.

    Returns:
        Policy classes by the name users select them by.
    """
