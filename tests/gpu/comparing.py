"""What every GPU test compares, and how."""

import json
import os
from pathlib import Path

from tests.engine import workloads


def with_top_two(load):
    return workloads.Workload(
        name=load.name,
        input_ids=load.input_ids,
        sampling=load.sampling,
        options={"return_logprob": True, "top_logprobs_num": 2},
    )


#: One request for a long time: many switches at little cost.
ALONE = workloads.workload("alone", [20], [500], seed=2)
LOADS = {load.name: with_top_two(load) for load in (workloads.CROWD, workloads.LONG_PROMPTS, ALONE)}


def assert_same_tokens(expected, found, *, gap):
    """
    Compare up to each request's first difference.

    Args:
        gap: There the plain engine's two best log-probabilities must be closer than this.

    Returns:
        Those gaps, ascending.
    """
    gaps = {}
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        pairs = zip(one.output_ids, other.output_ids, strict=True)
        for position, (left, right) in enumerate(pairs):
            if left == right:
                continue
            best = one.meta_info["output_top_logprobs"][position]
            gaps[number, position] = best[0][0] - best[1][0]
            break
    wide = {where: found for where, found in gaps.items() if found >= gap}
    assert not wide, f"{len(gaps)} requests differ, these at gaps of {gap} or more: {wide}"
    return sorted(gaps.values())


def check(engine):
    state = engine.state()
    assert state["mismatches"] == state["unmarked"] == state["mark_faults"] == 0
    assert state["policy_errors"] == state["impossible_outcomes"] == 0
    assert state["upkeep"] | {"window": 0, "passes": 0, "writes": 0, "prefills": 0} == {
        "window": 0,
        "passes": 0,
        "writes": 0,
        "prefills": 0,
        "pending": 0,
        "gaps": 0,
        "faults": 0,
    }
    return state


def assert_answers_are(engine, expected, load, script, *, gap):
    """
    Run a load under a script: the plain engine's tokens, and nothing leaks.

    Args:
        engine: Ours.
        expected: The plain engine's answers.
        gap: See `assert_same_tokens`.

    Returns:
        As `assert_same_tokens`.
    """
    engine.play(**script)
    before = check(engine)
    gaps = assert_same_tokens(expected, engine.send(load), gap=gap)
    after = check(engine)
    free = after["kv_free_tokens"] + after["kv_evictable_tokens"]
    assert free == before["kv_free_tokens"] + before["kv_evictable_tokens"]
    return gaps


def tell(variable, **figures):
    """Print figures, and add them to the file that the environment variable names."""
    print(json.dumps(figures))  # noqa: T201 - the figures belong in the log
    where = os.environ.get(variable)
    if where:
        path = Path(where)
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**before, **figures}, indent=1))
