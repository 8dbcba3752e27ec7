"""
What each part of policy and guard is for: the hard worlds again, with that part taken out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sglang_dynspec._version import __version__
from sglang_dynspec.replay.ablations import Part, parts
from sglang_dynspec.replay.checks import Check
from sglang_dynspec.replay.hard_checks import check_hard
from sglang_dynspec.replay.hard_run import (
    STUBBORN,
    ablation_tasks,
    by_kind,
    geometric_mean,
    run_tasks,
)
from sglang_dynspec.replay.processes import Progress
from sglang_dynspec.replay.suites import Entry

#: The worlds that parts are taken out in unless others are named: one or two of each kind, in which
#: there is something to lose.
ABLATED: Final = (
    "steady-96-low",
    "growing-200-high",
    "churn-200-simulated",
    "moving-drain",
    "poisson-turns",
    "untimed-64",
    "losing-pcie-10",
    "losing-small-75",
    "cold-start-waves-moe",
    "cold-sizes-small",
    "slow-depth-32",
    "pace-twice",
    "pulses-32-depth",
    "bimodal-48-depth",
    "kernels-fall-96",
    "mixture-4",
    "phases-8-tires",
    "cold-requests-4-burst",
    "bursts-small-40",
    "stale-drain",
    "collapse-32",
    "collapse-1-seems",
    "many-depths-moving",
)

#: Change of a share that counts as much as a bound from above that is overshot by its own size.
_SHARE_UNIT: Final = 0.05

#: What a change that never came counts as, in bounds.
_NEVER: Final = 2.0

#: Damage below which a part does nothing: a share by a thousandth, a count by a fiftieth of its
#: bound.
_NOTHING: Final = 0.02


def ablate(
    entry: Entry,
    names: Sequence[str],
    *,
    of: Sequence[Part] | None = None,
    seeds: int = 1,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """
    Replay a policy through worlds, whole and with each part taken out.

    Args:
        entry: The policy; one that has the parts.

        names: Names of the worlds.

        of: The parts; None for all.

        seeds: How many seeds, from 0 up.

        jobs: Processes to use; None for one a core.

        progress: Told of every task that is done.

    Returns:
        Plain JSON types. ``dynspec``, ``entry``, ``worlds``, ``whole`` (its mean share and checks),
        and ``parts``: for each ``part``, ``of``, ``fails`` (criteria met by the whole and
        not without it), ``cures`` (the reverse), ``mean_share``, ``moves`` (the criterion whose
        figure it moves most for the worse), ``whole`` and ``without`` (that figure), ``gains`` (the
        criterion whose figure is better without it by most), and ``idle``: whether nothing changed.
    """
    listed = parts() if of is None else tuple(of)
    rows = run_tasks(
        ablation_tasks(entry, names, (None, *listed), seeds), jobs=jobs, progress=progress
    )
    whole_share, whole = _judged(rows, None)
    return {
        "suite": "hard ablations",
        "dynspec": __version__,
        "entry": entry.name,
        "seeds": seeds,
        "worlds": list(names),
        "whole": {
            "mean_share": round(whole_share, 4),
            "checks": [each.as_json() for each in whole],
        },
        "parts": [_compared(part, rows, whole) for part in listed],
    }


def damage(whole: Check, without: Check) -> float:
    """
    Say how much worse a figure is without a part, in units that can be compared.

    Args:
        whole: The figure of the whole.

        without: The figure without the part.

    Returns:
        For a share, its loss in twentieths; for a count, what was added in bounds; below 0 for what
        is better.
    """
    if whole.at_most:
        scale = whole.bound or 1.0
        before, after = (
            _NEVER if each.figure is None else min(each.figure / scale, _NEVER)
            for each in (whole, without)
        )
        return after - before
    return ((whole.figure or 0.0) - (without.figure or 0.0)) / _SHARE_UNIT


def _judged(rows: Sequence[Mapping[str, Any]], part: str | None) -> tuple[float, list[Check]]:
    mine = [row for row in rows if row["part"] == part]
    results = [row for row in mine if row["entry"] != STUBBORN.name]
    document = {
        "suite": "hard",
        "results": results,
        "kinds": by_kind(results),
        "stubborn": [row for row in mine if row["entry"] == STUBBORN.name],
    }
    return geometric_mean(row["share"] for row in results), check_hard(document)


def _compared(
    part: Part, rows: Sequence[Mapping[str, Any]], whole: Sequence[Check]
) -> dict[str, Any]:
    share, without = _judged(rows, part.name)
    pairs = [
        (before, after)
        for before, after in zip(whole, without, strict=True)
        if before.measured and after.measured
    ]
    worst = max(pairs, key=lambda pair: damage(*pair))
    best = min(pairs, key=lambda pair: damage(*pair))
    return {
        "part": part.name,
        "of": part.of,
        "fails": [a.name for b, a in pairs if b.passed and not a.passed],
        "cures": [a.name for b, a in pairs if a.passed and not b.passed],
        "mean_share": round(share, 4),
        "moves": worst[0].name,
        "whole": worst[0].figure,
        "without": worst[1].figure,
        "damage": round(damage(*worst), 3),
        "gains": best[0].name,
        "gains_whole": best[0].figure,
        "gains_without": best[1].figure,
        "gain": round(-damage(*best), 3),
        "idle": all(abs(damage(*pair)) < _NOTHING for pair in pairs),
    }
