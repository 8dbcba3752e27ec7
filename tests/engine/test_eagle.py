"""EAGLE, and NEXTN, which SGLang serves as EAGLE: the same tokens, and warm re-entry."""

import pytest

from tests.engine import workloads
from tests.engine.conftest import start
from tests.engine.test_warm import WINDOW, assert_the_draft_starts_from_the_same_rows


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
    assert_the_draft_starts_from_the_same_rows(eagle, n)


def test_passes_write_keys_and_values_alone(eagle):
    eagle.set_upkeep(WINDOW)
    eagle.play(mode="fixed", depth=0)
    before = eagle.state()["upkeep"]["writes"]
    workloads.workload("alone", [30], [40], seed=18).send(eagle.inner)
    assert eagle.state()["upkeep"]["writes"] > before
