"""
What a policy has to reach in the hard worlds, and whether it did.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sglang_dynspec.replay.checks import Check
from sglang_dynspec.replay.hard_run import geometric_mean

#: Geometric mean of the shares of the oracle; of worlds that were drawn it may be so much less.
MEAN_SHARE: Final = 0.985
UNSEEN_LESS: Final = 0.01

#: Part of what the best fixed depth gets, in every world of a kind, in the mean over seeds.
KIND_OF_BEST: Final = 0.95

#: Rounds on end at a depth that is wrong, in any world.
STUCK: Final = 500

#: Part of what always plain gets, in any world where plain is best throughout.
PLAIN_KEPT: Final = 0.99

#: Rounds until a depth is left that became four times slower, by the policy and by the guard alone;
#: rounds until it is taken back; and by what share the prediction of plain may move meanwhile.
LEFT: Final = 64
LEFT_BY_GUARD: Final = 32
BACK: Final = 512
PLAIN_MOVED: Final = 0.05

#: Changes of depth in 1000 rounds of steady load.
SWITCHES_PER_1000: Final = 10.0

#: Name of the suite of worlds that are drawn.
DRAWN: Final = "drawn"

_STEADY: Final = "steady"


def check_hard(document: Mapping[str, Any]) -> list[Check]:
    """
    Hold a policy against every criterion.

    Args:
        document: What `sglang_dynspec.replay.hard_run.replay_hard` gave.

    Returns:
        A check for each criterion:

        - ``mean share``: geometric mean of the shares of the oracle;
        - ``kind ...``: of each kind, the part of what the best fixed depth gets in the worst world;
        - ``stuck``: most rounds on end at a wrong depth;
        - ``plain kept``: the smallest part of what always plain gets, where plain is best;
        - ``slow left``, ``slow left by guard``, ``taken back``, ``plain moved``: what happened as
          one depth became four times slower, and recovered;
        - ``steady switches``: most switches in 1000 rounds of a steady world;
        - ``policy errors``: how often the policy failed.
    """
    results, stubborn = document["results"], document["stubborn"]
    drawn = document["suite"] == DRAWN
    shares = [row["share"] for row in results]
    return [
        Check(
            name="mean share",
            figure=geometric_mean(shares) if shares else None,
            bound=MEAN_SHARE - (UNSEEN_LESS if drawn else 0.0),
            where="geometric mean",
            measured=bool(shares),
        ),
        *(
            Check(
                name=f"kind {each['kind']}",
                figure=each["worst_of_best"],
                bound=KIND_OF_BEST,
                where=each["worst"],
            )
            for each in document["kinds"]
        ),
        _extreme("stuck", STUCK, _figures(results, "stuck")),
        _extreme(
            "plain kept",
            PLAIN_KEPT,
            [(row["of_plain"], _where(row)) for row in results if row["plain_is_best"]],
            at_most=False,
        ),
        _followed("slow left", LEFT, results, "left", "was"),
        _followed("slow left by guard", LEFT_BY_GUARD, stubborn, "left", "was"),
        _followed("taken back", BACK, results, "back", "due"),
        _extreme(
            "plain moved",
            PLAIN_MOVED,
            [
                (each["plain_moved"], _where(row))
                for row in results
                for each in row["followings"]
                if each["plain_moved"] is not None
            ],
        ),
        _extreme(
            "steady switches",
            SWITCHES_PER_1000,
            _figures([row for row in results if row["kind"] == _STEADY], "switches_per_1000"),
        ),
        _extreme("policy errors", 0.0, _figures(results, "policy_errors")),
    ]


def _figures(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, str]]:
    return [(row[name], _where(row)) for row in rows]


def _where(row: Mapping[str, Any]) -> str:
    return f"{row['world']}, seed {row['seed']}"


def _extreme(
    name: str, bound: float, figures: Iterable[tuple[float, str]], *, at_most: bool = True
) -> Check:
    found = list(figures)
    if not found:
        return Check(name=name, figure=None, bound=bound, at_most=at_most, measured=False)
    figure, where = max(found) if at_most else min(found)
    return Check(name=name, figure=figure, bound=bound, at_most=at_most, where=where)


def _followed(
    name: str, bound: float, rows: Sequence[Mapping[str, Any]], what: str, where_due: str
) -> Check:
    """Judge the slowest of those that were due; one that never came is worse than any."""
    due = [
        (each[what], _where(row)) for row in rows for each in row["followings"] if each[where_due]
    ]
    never = [where for rounds, where in due if rounds is None]
    if never:
        return Check(name=name, figure=None, bound=bound, at_most=True, where=f"never: {never[0]}")
    return _extreme(name, bound, due)
