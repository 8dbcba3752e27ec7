"""
Re-entry is warm: after plain rounds the draft starts as if upkeep had run every round.

A STANDALONE draft shows stale rows in what it gets accepted; a random EAGLE3 head is never right,
so its KV rows and its state at re-entry are compared instead. Both must fail without upkeep.
"""

import math
from pathlib import Path

import pytest
import torch

from tests.engine import workloads
from tests.engine.conftest import start

PLAIN_ROUNDS = (1, 3, 4, 7, 64)
WINDOW, EVERY_ROUND, OFF = 4, 1, 0

#: Requests that join at every phase of the window: four places, lengths that share no period.
JOINERS = workloads.workload(
    "joiners",
    [10 + 3 * i for i in range(14)],
    [23, 40, 31, 54, 19, 36, 45, 27, 50, 33, 21, 47, 38, 29],
    seed=11,
)


@pytest.fixture(scope="module", params=[True, False], ids=["overlap", "sync"])
def standalone(request, models, tmp_path_factory):
    engine = start(
        tmp_path_factory.mktemp("standalone"),
        models,
        algorithm="STANDALONE",
        overlap=request.param,
        radix_cache=False,
        max_running_requests=4,
    )
    yield engine
    engine.shutdown()


#: Other requests, whose draft rows replace those that an earlier run left in the same slots.
OTHERS = workloads.workload("others", [220] * 8, [1] * 8, seed=16)


def histograms(engine, load, window, **script):
    """Accepted-draft histogram of each request, and upkeep passes by occasion."""
    scramble(engine)
    engine.set_upkeep(window)
    engine.play(**script)
    before = engine.state()["upkeep"]["passes"]
    done = load.send(engine.inner)
    after = engine.state()["upkeep"]["passes"]
    engine.check()
    passes = {name: after[name] - before[name] for name in after}
    return [answer.meta_info["spec_correct_drafts_histogram"] for answer in done], passes


def scramble(engine):
    """
    Overwrite the slots' draft rows: a row that is not written must not be right by chance.

    Prefill writes a prompt's draft rows, so long prompts do.
    """
    engine.play(mode="fixed", depth=3)
    OTHERS.send(engine.inner)


@pytest.mark.parametrize("n", PLAIN_ROUNDS)
def test_drafts_are_as_good_as_with_upkeep_every_round(standalone, n):
    load = workloads.workload("few", [40, 25, 60, 33], [74 + n // 8, 90, 80, 85], seed=12)
    script = {"mode": "cycle", "runs": [[3, 6], [0, n]]}
    every, _ = histograms(standalone, load, EVERY_ROUND, **script)
    lazy, passes = histograms(standalone, load, WINDOW, **script)
    assert lazy == every
    assert sum(row[-1] for row in every if len(row) == 4) > 0  # drafts do get accepted
    cold, _ = histograms(standalone, load, OFF, **script)
    assert cold != every
    assert passes["finish"] == 0  # nothing inherits rows without a radix cache


@pytest.mark.parametrize("n", [3, 7])
def test_requests_joining_in_every_phase(standalone, n):
    script = {"mode": "cycle", "runs": [[3, 3], [0, n]]}
    every, _ = histograms(standalone, JOINERS, EVERY_ROUND, **script)
    lazy, _ = histograms(standalone, JOINERS, WINDOW, **script)
    assert lazy == every


@pytest.mark.parametrize("n", PLAIN_ROUNDS)
def test_passes_are_few(standalone, n):
    """After n plain rounds, at most ceil(n / window) + 1 passes have run."""
    load = workloads.workload("one", [30], [n + 3], seed=13)
    script = {"mode": "list", "depths": [3] + [0] * n, "then": 3}
    _, passes = histograms(standalone, load, WINDOW, **script)
    assert passes["window"] == (n - 1) // WINDOW
    assert sum(passes.values()) <= math.ceil(n / WINDOW) + 1
    _, eager = histograms(standalone, load, EVERY_ROUND, **script)
    assert eager["window"] >= n - 1


@pytest.fixture(scope="module", params=[True, False], ids=["overlap", "sync"])
def eagle3(request, models, tmp_path_factory):
    engine = start(
        tmp_path_factory.mktemp("eagle3"),
        models,
        algorithm="EAGLE3",
        overlap=request.param,
        radix_cache=False,
        max_running_requests=4,
        dump=True,
    )
    yield engine
    engine.shutdown()


def reentries(engine, load, window, *, scrambled=False, **script):
    """What the draft starts from at each re-entry, request by request."""
    if not scrambled:
        scramble(engine)
    for old in engine.directory.glob("*.pt"):
        old.unlink()
    engine.set_upkeep(window)
    engine.play(**script)
    load.send(engine.inner)
    engine.check()
    files = sorted(Path(engine.directory).glob("*.pt"))
    return [list(torch.load(file).values()) for file in files]


def difference(one, other):
    """Largest difference in rows and hidden states; infinite when drafts or lengths differ."""
    assert len(one) > 0
    if len(one) != len(other):
        return math.inf
    differences = [0.0]
    for before, after in zip(one, other, strict=True):
        for left, right in zip(before, after, strict=True):
            if left["length"] != right["length"]:
                return math.inf
            if not torch.equal(left["topk_index"], right["topk_index"]):
                return math.inf
            differences += [
                (left[name] - right[name]).abs().max().item()
                for name in ("keys", "values", "hidden")
            ]
    return max(differences)


def assert_the_draft_starts_from_the_same_rows(engine, n):
    """After n plain rounds, as with upkeep in every round; and not so without upkeep."""
    load = workloads.workload("few", [40, 25, 33], [20 + n, 31 + n, 26 + n], seed=14)
    script = {"mode": "cycle", "runs": [[0, n], [3, 2]]}
    every = reentries(engine, load, EVERY_ROUND, **script)
    lazy = reentries(engine, load, WINDOW, **script)
    assert difference(every, lazy) < 1e-4
    cold = reentries(engine, load, OFF, **script)
    assert difference(every, cold) > 1e-2


@pytest.mark.parametrize("n", PLAIN_ROUNDS)
def test_the_draft_starts_from_the_same_rows(eagle3, n):
    assert_the_draft_starts_from_the_same_rows(eagle3, n)


def test_passes_write_keys_and_values_alone_but_for_the_guesses(eagle3):
    """Every 16th window pass is a draft-extend."""
    load = workloads.workload("alone", [30], [84], seed=17)
    eagle3.set_upkeep(WINDOW)
    eagle3.play(mode="fixed", depth=0)
    before = eagle3.state()["upkeep"]
    load.send(eagle3.inner)
    after = eagle3.state()["upkeep"]
    window = after["passes"]["window"] - before["passes"]["window"]
    assert window == 82 // WINDOW  # the first token comes from prefill
    first = before["passes"]["window"]
    whole = sum(number % 16 == 0 for number in range(first, first + window))
    assert after["writes"] - before["writes"] == window - whole
    assert whole > 0
    eagle3.check()


def test_a_draft_of_several_layers_is_extended_whole(standalone):
    standalone.set_upkeep(WINDOW)
    standalone.play(mode="fixed", depth=0)
    before = standalone.state()["upkeep"]
    workloads.workload("alone", [30], [40], seed=18).send(standalone.inner)
    after = standalone.state()["upkeep"]
    assert after["passes"]["window"] > before["passes"]["window"]
    assert after["writes"] == before["writes"] == 0


@pytest.mark.parametrize("n", [3])
def test_joining_requests_start_from_the_same_rows(eagle3, n):
    script = {"mode": "cycle", "runs": [[0, n], [3, 3]]}
    every = reentries(eagle3, JOINERS, EVERY_ROUND, **script)
    lazy = reentries(eagle3, JOINERS, WINDOW, **script)
    assert difference(every, lazy) < 1e-4


#: Answers end at a token that nobody foresaw: under overlap each leaves an overshoot round behind,
#: by which time its slot may be somebody else's.
STOPPING = workloads.Workload(
    name="stopping",
    input_ids=workloads.prompts([5 + (37 * i) % 150 for i in range(40)], 22),
    sampling=tuple(
        {"temperature": 0, "max_new_tokens": 60, "stop_token_ids": list(range(3 + i % 7, 259, 9))}
        for i in range(40)
    ),
)


def prefilled(engine, how, load, runs):
    """Re-entries of a load whose prompts come while rounds are plain, and how many were written."""
    steering = engine.directory / "prefill"
    scramble(engine)
    engine.play(mode="fixed", depth=0)
    workloads.workload("first", [9], [6], seed=77).send(engine.inner)
    before = engine.state()["upkeep"]["prefills"]
    steering.write_text(how)
    try:
        found = reentries(engine, load, WINDOW, scrambled=True, mode="cycle", runs=runs)
    finally:
        steering.unlink()
    return found, engine.state()["upkeep"]["prefills"] - before


@pytest.mark.parametrize(
    ("load", "runs"),
    [
        pytest.param(JOINERS, [[0, 1], [3, 1]], id="joiners-by-turns"),
        pytest.param(JOINERS, [[0, 3], [3, 1], [1, 1]], id="joiners"),
        pytest.param(STOPPING, [[0, 3], [3, 1], [1, 1]], id="stopping"),
    ],
)
def test_prompts_of_plain_rounds_are_as_warm_as_sglangs_own_prefill_leaves_them(eagle3, load, runs):
    whole, none = prefilled(eagle3, "whole", load, runs)
    ours, some = prefilled(eagle3, "", load, runs)
    assert none == 0 < some
    assert difference(whole, ours) < 1e-4


def test_prompts_that_are_not_written_would_be_seen(eagle3):
    runs = [[0, 3], [3, 3]]
    whole, _ = prefilled(eagle3, "whole", JOINERS, runs)
    unwritten, some = prefilled(eagle3, "unwritten", JOINERS, runs)
    assert some > 0
    assert difference(whole, unwritten) > 1e-2
