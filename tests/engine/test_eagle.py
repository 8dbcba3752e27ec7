"""EAGLE, and NEXTN, which SGLang serves as EAGLE: the same tokens, and warm re-entry."""

import pytest

from tests.engine import workloads
from tests.engine.conftest import start
from tests.engine.test_warm import EVERY_ROUND, OFF, WINDOW, difference, reentries


@pytest.fixture(
    scope="module",
    params=[("EAGLE", True), ("NEXTN", False)],
    ids=["EAGLE-overlap", "NEXTN-sync"],
)
def eagle(request, models, tmp_path_factory):
    algorithm, overlap = request.param
    engine = start(
        tmp_path_factory.mktemp("eagle"), models, algorithm=algorithm, overlap=overlap, dump=True
    )
    yield engine
    engine.shutdown()


@pytest.mark.parametrize(
    "script",
    [{"mode": "random", "depths": [0, 1, 3]}, {"mode": "fixed", "depth": 0}],
    ids=["random", "plain"],
)
def test_the_tokens_are_the_plain_engines(eagle, plain_ids, script):
    eagle.set_upkeep(WINDOW)
    eagle.play(**script)
    assert eagle.answer(workloads.CROWD) == plain_ids[workloads.CROWD.name]
    eagle.flush_cache()
    eagle.check()


@pytest.mark.parametrize("n", [3, 7])
def test_the_draft_starts_from_the_same_rows(eagle, n):
    load = workloads.workload("few", [40, 25, 33], [20 + n, 31 + n, 26 + n], seed=14)
    script = {"mode": "cycle", "runs": [[0, n], [3, 2]]}
    every = reentries(eagle, load, EVERY_ROUND, **script)
    lazy = reentries(eagle, load, WINDOW, **script)
    assert difference(every, lazy) < 1e-4
    cold = reentries(eagle, load, OFF, **script)
    assert difference(every, cold) > 1e-2


def test_passes_write_keys_and_values_alone(eagle):
    eagle.set_upkeep(WINDOW)
    eagle.play(mode="fixed", depth=0)
    before = eagle.state()["upkeep"]["writes"]
    workloads.workload("alone", [30], [40], seed=18).send(eagle.inner)
    assert eagle.state()["upkeep"]["writes"] > before
