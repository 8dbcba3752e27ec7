"""
Replaying policies through scenarios.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from sglang_dynspec._version import __version__
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.replay.processes import Count, Progress, workers
from sglang_dynspec.replay.suites import TUNED, Entry, Suite, baselines, threshold_grid
from sglang_dynspec.simulator import Scenario, find_scenario, run_scenario, score


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """
    One entry in one scenario, with all its seeds. It crosses to other processes.
    """

    entry: Entry
    scenario: str
    seeds: tuple[int, ...]


def replay(
    policy: Entry,
    suite: Suite,
    *,
    compare: bool = True,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """
    Replay a policy, and what it is compared with, through the scenarios of a suite.

    Args:
        policy: The policy.

        suite: What to replay.

        compare: Whether to replay the baselines as well.

        jobs: Processes to use; None for one a core. 1 stays in this process.

        progress: Told of every task that is done.

    Returns:
        Plain JSON types. ``suite``, ``seeds``, ``dynspec`` (its version), ``policy`` (the name of
        the entry that was asked for), ``entries``, ``left_out`` (entries that do not load here, and
        why), ``tuning`` (every setting of ``threshold`` and its mean share), ``scenarios`` (what
        each is) and ``results``: for each entry, scenario and seed a `Score`.

    Raises:
        ConfigError: The policy, or a scenario, does not exist, or refuses its options.
    """
    seeds = tuple(range(suite.seeds))
    _check(policy, suite)
    entries = [policy]
    left_out: list[dict[str, str]] = []
    grid: list[Entry] = []
    with workers(jobs) as run:
        if compare:
            others = [each for each in baselines() if each.name != policy.name]
            # In a worker, because SGLang's own policy takes seconds to import.
            faults = dict(run(partial(_fault, suite=suite), others))
            entries += [each for each in others if not faults[each.name]]
            left_out = [{"entry": name, "why": why} for name, why in faults.items() if why]
            grid = threshold_grid() if policy.name != TUNED else []
        searched = _tasks(suite, grid, seeds[:1])
        tasks = _tasks(suite, entries, seeds)
        # The tuned threshold comes after its search.
        count = Count(len(searched) + len(tasks) + bool(grid) * len(suite.scenarios), progress)
        found = [row for rows in count(run(_run_task, searched)) for row in rows]
        tuning = {entry.name: mean_share(found, entry.name) for entry in grid}
        if grid:
            best = max(grid, key=lambda entry: tuning[entry.name])
            tuned = Entry(name=TUNED, policy="threshold", options=best.options)
            entries.append(tuned)
            tasks += _tasks(suite, [tuned], seeds)
        results = [row for rows in count(run(_run_task, tasks)) for row in rows]
    names = [entry.name for entry in entries]
    results.sort(
        key=lambda each: (
            names.index(each["entry"]),
            suite.scenarios.index(each["scenario"]),
            each["seed"],
        )
    )
    return {
        "suite": suite.name,
        "dynspec": __version__,
        "seeds": list(seeds),
        "policy": policy.name,
        "entries": [asdict(entry) for entry in entries],
        "left_out": sorted(left_out, key=lambda each: each["entry"]),
        "tuning": [
            {"options": dict(entry.options), "mean_share": tuning[entry.name]} for entry in grid
        ],
        "scenarios": [described(find_scenario(name)) for name in suite.scenarios],
        "results": results,
    }


def mean_share(results: Sequence[Mapping[str, Any]], entry: str) -> float:
    """
    Average an entry's shares over scenarios.

    Args:
        results: The ``results`` of `replay`.

        entry: Name of the entry.

    Returns:
        The geometric mean over scenarios of the mean over seeds.
    """
    logs = [math.log(share) for share in shares_by_scenario(results, entry).values()]
    return math.exp(sum(logs) / len(logs))


def shares_by_scenario(results: Sequence[Mapping[str, Any]], entry: str) -> dict[str, float]:
    """
    Average an entry's shares over seeds.

    Args:
        results: The ``results`` of `replay`.

        entry: Name of the entry.

    Returns:
        The mean share by scenario.
    """
    shares: dict[str, list[float]] = {}
    for result in results:
        if result["entry"] == entry:
            shares.setdefault(result["scenario"], []).append(result["share"])
    return {scenario: sum(each) / len(each) for scenario, each in shares.items()}


def described(scenario: Scenario) -> dict[str, Any]:
    """
    Describe a scenario.

    Args:
        scenario: The scenario.

    Returns:
        Plain JSON types.
    """
    return {
        "name": scenario.name,
        "summary": scenario.summary,
        "server": scenario.server.name,
        "depths": list(scenario.depths),
        "warm_up": scenario.warm_up,
        "horizon": scenario.horizon,
        "stationary": scenario.stationary,
        "expected": scenario.expected,
        "transitions": [asdict(transition) for transition in scenario.transitions],
    }


def _check(entry: Entry, suite: Suite) -> None:
    """
    Build a policy and let it decide once.

    Raises:
        ConfigError: It does not exist, or refuses its options.
    """
    scenario = find_scenario(suite.scenarios[0])
    run_scenario(entry.policy, scenario, options=entry.options, rounds=1, **dict(entry.guard))


def _fault(entry: Entry, suite: Suite) -> tuple[str, str]:
    """
    Find out why an entry cannot run here.

    Returns:
        Its name, and why; empty if it can.
    """
    try:
        _check(entry, suite)
    except ConfigError as error:
        return entry.name, str(error)
    return entry.name, ""


def _tasks(suite: Suite, entries: list[Entry], seeds: tuple[int, ...]) -> list[_Task]:
    return [
        _Task(entry=entry, scenario=name, seeds=seeds)
        for name in suite.scenarios
        for entry in entries
    ]


def _run_task(task: _Task) -> list[dict[str, Any]]:
    scenario, entry = find_scenario(task.scenario), task.entry
    rows = []
    for seed in task.seeds:
        run = run_scenario(
            entry.policy, scenario, seed=seed, options=entry.options, **dict(entry.guard)
        )
        rows.append(
            {
                "entry": entry.name,
                "scenario": scenario.name,
                "seed": seed,
                **score(run).as_json(),
                "policy_errors": run.counters.policy_errors,
            }
        )
    return rows
