"""
On a GPU: the same tokens, warm re-entry, whole pools, obeyed plans, under real overlap.

Width-one and width-k kernels sum in different orders, so ids may differ from the plain engine's
where the plain logits' two best are closer than 1e-4; anything else is a fault.
"""

import json
import math

import pytest

from tests.engine import workloads
from tests.engine.test_warm import difference
from tests.gpu.comparing import LOADS, assert_answers_are, check
from tests.gpu.conftest import GpuEngine

GAP = 1e-4


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    engine = GpuEngine(tmp_path_factory.mktemp("plain"), algorithm=None)
    answers = {name: engine.send(load) for name, load in LOADS.items()}
    engine.shutdown()
    return answers


@pytest.fixture(scope="module", params=["EAGLE3", "STANDALONE"])
def engine(request, plain, tmp_path_factory):
    engine = GpuEngine(tmp_path_factory.mktemp("ours"), algorithm=request.param)
    engine.algorithm = request.param
    yield engine
    engine.shutdown()


@pytest.mark.parametrize(
    "script",
    [
        {"mode": "random", "depths": [0, 1, 3]},
        {"mode": "fixed", "depth": 0},
        {"mode": "fixed", "depth": 3},
        {"mode": "cycle", "runs": [[3, 5], [0, 6]]},
    ],
    ids=["random", "plain", "deepest", "cycle"],
)
@pytest.mark.parametrize("name", LOADS)
def test_the_tokens_are_the_plain_engines(engine, plain, name, script):
    ties = assert_answers_are(engine, plain[name], LOADS[name], script, gap=GAP)
    print(f"{engine.algorithm} {name} {script['mode']}: {len(ties)} ties")  # noqa: T201 - the figure belongs in the log


def test_plain_rounds_reach_no_speculative_code(engine):
    engine.play(mode="fixed", depth=0)
    engine.send(LOADS["crowd"])
    before = json.loads((engine.directory / "calls.json").read_text())
    rounds = engine.state()["by_depth"]["0"]["rounds"]
    engine.send(LOADS["crowd"])
    after = json.loads((engine.directory / "calls.json").read_text())
    assert engine.state()["by_depth"]["0"]["rounds"] - rounds >= 200
    forbidden = ("verify", "build_tree", "sample", "draft", "draft_forward")
    assert {name: after[name] - before[name] for name in forbidden} == dict.fromkeys(forbidden, 0)


def test_our_code_does_not_wait_for_the_device(engine):
    """The engine runs it under torch's sync debug mode; a fault would show in `check`."""
    engine.play(mode="cycle", runs=[[3, 5], [0, 6]])
    engine.send(LOADS["crowd"])
    calls = json.loads((engine.directory / "calls.json").read_text())
    assert calls["noticed"] == 1
    assert calls["guarded"] > 1000
    check(engine)


@pytest.mark.parametrize("n", [1, 3, 4, 7, 64])
def test_reentry_is_warm(engine, n):
    import torch

    load = workloads.workload("few", [40, 25, 33], [60 + n, 71 + n, 66 + n], seed=14)
    others = workloads.workload("others", [220] * 8, [1] * 8, seed=16)
    runs = {}
    for window in (1, 4, 0):
        engine.play(mode="fixed", depth=3)
        engine.send(others)
        for old in (engine.directory / "dump").glob("*.pt"):
            old.unlink()
        engine.set_upkeep(window)
        engine.play(mode="cycle", runs=[[0, n], [3, 2]])
        done = engine.send(load)
        files = sorted((engine.directory / "dump").glob("*.pt"))
        runs[window] = (
            [list(torch.load(file, map_location="cpu").values()) for file in files],
            [answer.accepted_histogram for answer in done],
        )
    engine.set_upkeep(4)
    if engine.algorithm == "STANDALONE":
        assert runs[4][1] == runs[1][1]
        assert runs[0][1] != runs[1][1]
    else:
        assert difference(runs[1][0], runs[4][0]) < 1e-3
        assert difference(runs[1][0], runs[0][0]) > 1e-2
    assert not math.isnan(sum(map(sum, runs[4][1])))
    check(engine)
