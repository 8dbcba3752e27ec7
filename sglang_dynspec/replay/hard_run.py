"""
Replaying a policy through the hard worlds, beside every fixed depth.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final

from sglang_dynspec._version import __version__
from sglang_dynspec.observation import Observation, Plan
from sglang_dynspec.policy import Policy
from sglang_dynspec.replay.ablations import Part, taken_out
from sglang_dynspec.replay.processes import Count, Progress, workers
from sglang_dynspec.replay.suites import Entry
from sglang_dynspec.replay.worlds import find_world
from sglang_dynspec.replay.worlds.drawn import find_drawn
from sglang_dynspec.simulator.service import World, WorldScore, run_fixed, run_world, score_run

#: A policy that never changes its mind, so that what leaves a depth is the guard.
STUBBORN: Final = Entry(name="stubborn", policy=f"{__name__}:Stubborn")

#: Kind of the worlds that it is replayed in.
SLOW_DEPTH: Final = "slow-depth"

#: By how little plain may miss the oracle to be the best depth of a world throughout.
_PLAIN_BEST: Final = 0.995

#: Rounds between two of the stubborn policy's probes of plain, and rounds of one.
_PROBE_EVERY, _PROBE = 64, 2


class Stubborn(Policy):
    """
    Runs the largest depth, and looks at plain now and then, so that the guard may compare.
    """

    uses_time = True

    def decide(self, observation: Observation) -> Plan:
        """
        Plan the largest depth, or a probe of plain.
        """
        if observation.round % _PROBE_EVERY >= _PROBE_EVERY - _PROBE:
            return Plan(depth=0, probe=True)
        return Plan(depth=observation.depths[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """
    One entry in one world, with all its seeds. It crosses to other processes.
    """

    entry: Entry
    world: str
    seeds: tuple[int, ...]
    part: Part | None = None


def find_any_world(name: str) -> World:
    """
    Find a fixed world, or one that is drawn.

    Args:
        name: Its name.

    Raises:
        ConfigError: There is none of that name.
    """
    return find_drawn(name) or find_world(name)


def replay_hard(
    entry: Entry,
    names: Sequence[str],
    *,
    suite: str = "hard",
    seeds: int = 2,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """
    Replay a policy through worlds.

    Args:
        entry: The policy.

        names: Names of the worlds.

        suite: What to call them together.

        seeds: How many seeds, from 0 up.

        jobs: Processes to use; None for one a core. 1 stays in this process.

        progress: Told of every task that is done.

    Returns:
        Plain JSON types. ``suite``, ``seeds``, ``dynspec`` (its version), ``policy``, ``entry``,
        ``worlds`` (name, kind and summary of each), ``kinds`` (`by_kind`) and ``results``: for each
        world and seed a `WorldScore`, beside those of fixed depths; likewise ``stubborn``, the
        guard alone in worlds in which a depth becomes slow.

    Raises:
        ConfigError: The policy, or a world, does not exist, or the policy refuses its options.
    """
    found = [find_any_world(name) for name in names]
    if found:
        short = replace(found[0], seconds=0.5)
        run_world(entry.policy, short, options=entry.options, **dict(entry.guard))
    every = tuple(range(seeds))
    tasks = [_Task(entry=entry, world=world.name, seeds=every) for world in found]
    tasks += [
        _Task(entry=STUBBORN, world=world.name, seeds=every)
        for world in found
        if world.kind == SLOW_DEPTH
    ]
    rows = run_tasks(tasks, jobs=jobs, progress=progress)
    results = [row for row in rows if row["entry"] != STUBBORN.name]
    return {
        "suite": suite,
        "seeds": list(every),
        "dynspec": __version__,
        "policy": entry.name,
        "entry": asdict(entry),
        "worlds": [
            {"name": each.name, "kind": each.kind, "summary": each.summary} for each in found
        ],
        "kinds": by_kind(results),
        "results": results,
        "stubborn": [row for row in rows if row["entry"] == STUBBORN.name],
    }


def run_tasks(
    tasks: Sequence[_Task], *, jobs: int | None, progress: Progress | None
) -> list[dict[str, Any]]:
    """
    Run tasks, in processes.

    Returns:
        Their rows, in the order of the tasks.
    """
    with workers(jobs) as run:
        count = Count(len(tasks), progress)
        places = dict(count(run(_run_placed, list(enumerate(tasks)))))
    return [row for place in sorted(places) for row in places[place]]


def ablation_tasks(
    entry: Entry, names: Iterable[str], parts: Iterable[Part | None], seeds: int
) -> list[_Task]:
    """
    List the runs of an entry with each part taken out.

    Args:
        entry: The entry.

        names: Names of the worlds.

        parts: The parts; None for the whole.

        seeds: How many seeds, from 0 up.

    Returns:
        The tasks, all parts of a world after one another.
    """
    every = tuple(range(seeds))
    listed = list(parts)
    return [
        _Task(entry=each, world=name, seeds=every, part=part)
        for name in names
        for part in listed
        for each in ((entry, STUBBORN) if find_any_world(name).kind == SLOW_DEPTH else (entry,))
    ]


def geometric_mean(values: Iterable[float]) -> float:
    """
    Give the geometric mean of some numbers above 0; 1.0 of none.
    """
    logs = [math.log(max(value, 1e-9)) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def by_kind(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """
    Sum results up by kind of world.

    Args:
        results: Rows.

    Returns:
        For each kind ``kind``, ``worlds``, and over its worlds and seeds: ``share`` and ``of_best``
        (geometric means), ``worst_share``, ``worst_of_best`` (the smallest mean over the seeds of a
        world) and ``worst`` (that world), ``first_share`` (a geometric mean), ``token_p99`` and
        ``gap_p99`` (as many times those of the best fixed depth, geometric means), ``stuck`` and
        ``switches_per_1000`` (the most).
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in results:
        kinds.setdefault(row["kind"], []).append(row)
    table = []
    for kind, rows in kinds.items():
        each_world: dict[str, list[float]] = {}
        for row in rows:
            each_world.setdefault(row["world"], []).append(row["of_best"])
        means = {world: geometric_mean(values) for world, values in each_world.items()}
        worst = min(means, key=lambda world: means[world])
        table.append(
            {
                "kind": kind,
                "worlds": len(means),
                "share": round(geometric_mean(row["share"] for row in rows), 4),
                "worst_share": min(row["share"] for row in rows),
                "of_best": round(geometric_mean(row["of_best"] for row in rows), 4),
                "worst_of_best": round(means[worst], 4),
                "worst": worst,
                "first_share": round(geometric_mean(row["first_share"] for row in rows), 4),
                "token_p99": _times_the_best(rows, "token_p99"),
                "gap_p99": _times_the_best(rows, "gap_p99"),
                "stuck": max(row["stuck"] for row in rows),
                "switches_per_1000": max(row["switches_per_1000"] for row in rows),
            }
        )
    return table


def _times_the_best(rows: Sequence[Mapping[str, Any]], figure: str) -> float:
    """
    Compare a figure with that of the best fixed depth, where both have one.
    """
    pairs = [(row[figure], row["fixed"][str(row["best_depth"])][figure]) for row in rows]
    return round(geometric_mean(own / best for own, best in pairs if own and best), 4)


def _run_placed(placed: tuple[int, _Task]) -> tuple[int, list[dict[str, Any]]]:
    place, task = placed
    world, entry = find_any_world(task.world), task.entry
    rows = []
    for seed in task.seeds:
        fixed = _fixed(world.name, seed)
        with nullcontext() if task.part is None else taken_out(task.part):
            options, guard = dict(entry.options), dict(entry.guard)
            if task.part is not None and entry is not STUBBORN:
                options |= task.part.options
            if task.part is not None:
                guard |= task.part.guard
            run = run_world(entry.policy, world, seed=seed, options=options, **guard)
        own = score_run(run)
        best = max(fixed, key=lambda depth: fixed[depth].share)
        rows.append(
            {
                "entry": entry.name,
                "part": None if task.part is None else task.part.name,
                "world": world.name,
                "kind": world.kind,
                "seed": seed,
                **own.as_json(),
                "best_depth": best,
                "of_best": round(own.share / fixed[best].share, 6),
                "of_plain": round(own.share / fixed[0].share, 6),
                "plain_is_best": best == 0 and fixed[0].share >= _PLAIN_BEST,
                "fixed": {str(depth): _brief(each) for depth, each in fixed.items()},
                "policy_errors": run.policy_errors,
            }
        )
    return place, rows


@lru_cache(maxsize=8)
def _fixed(name: str, seed: int) -> dict[int, WorldScore]:
    world = find_any_world(name)
    return {depth: score_run(run_fixed(depth, world, seed=seed)) for depth in world.depths}


def _brief(score: WorldScore) -> dict[str, Any]:
    figures = score.as_json()
    kept = ("share", "tokens_per_second", "token_p50", "token_p99", "gap_p99")
    return {name: figures[name] for name in kept}
