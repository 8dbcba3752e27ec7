"""
How soon a run followed a change.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.scenario import Transition

#: How far ahead one side has to be for a change to be due.
_MARGIN = 1.05

#: A change has been made when of this many rounds from there on nine in ten are as they should be.
_SETTLED = 32
_SETTLED_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """
    How a run met a transition.

    Attributes:
        turns: ``off`` or ``on``.

        at: Round at which the change begins.

        due: Round at which it is due; None if it never is.

        took: Rounds from there until the run had followed; None if it never did.

        within: Rounds it may take.
    """

    turns: str
    at: int
    due: int | None
    took: int | None
    within: int


def react(
    transitions: tuple[Transition, ...],
    rates: NDArray[np.float64],
    in_force: NDArray[np.int64],
) -> tuple[Reaction, ...]:
    """
    See how a run met each transition, up to the next one or the end.

    Args:
        transitions: The transitions, ascending.

        rates: True rate of every candidate depth in every round; shape (depths, rounds).

        in_force: Index of the depth in force in every round; shape (rounds,).

    Returns:
        A reaction for each transition.
    """
    ends = [*(transition.at for transition in transitions[1:]), len(in_force)]
    return tuple(
        _reaction(transition, end, rates, in_force)
        for transition, end in zip(transitions, ends, strict=False)
    )


def _reaction(
    transition: Transition,
    end: int,
    rates: NDArray[np.float64],
    in_force: NDArray[np.int64],
) -> Reaction:
    """
    See how a run met one transition, up to the next one or the end.
    """
    turns_off = transition.turns == "off"
    stretch = slice(transition.at, end)
    plain, speculative = rates[0, stretch], rates[1:, stretch].max(axis=0)
    ahead = plain >= _MARGIN * speculative if turns_off else speculative >= _MARGIN * plain
    due = _first_for_good(ahead)
    took = None
    if due is not None:
        followed = (in_force[stretch][due:] == 0) == turns_off
        took = first_settled(followed)
        due += transition.at
    return Reaction(
        turns=transition.turns, at=transition.at, due=due, took=took, within=transition.within
    )


def _first_for_good(ahead: NDArray[np.bool_]) -> int | None:
    if not len(ahead) or not ahead[-1]:
        return None
    behind = np.flatnonzero(~ahead)
    return int(behind[-1]) + 1 if len(behind) else 0


def first_settled(followed: NDArray[np.bool_]) -> int | None:
    """
    Find where a run has followed a change for good: in nine of ten of the next 32 rounds.

    Args:
        followed: Whether each round is as it should be; shape (rounds,).

    Returns:
        The first such round, or None.
    """
    for start in np.flatnonzero(followed):
        if followed[start : start + _SETTLED].mean() >= _SETTLED_SHARE:
            return int(start)
    return None
