"""Pages of 16 slots, a pool that is too small, forced retractions: nothing leaks, tokens hold."""

import pytest

from sglang_dynspec.testing import assert_lossless
from tests.engine import workloads
from tests.engine.conftest import CHUNK, COMBINATIONS, start

RANDOM = {"mode": "random", "depths": [0, 1, 3]}


@pytest.fixture(scope="module", params=COMBINATIONS)
def paged(request, plain, models, tmp_path_factory):
    """Pages of 16 slots, and a retraction forced every so many forwards."""
    algorithm, overlap = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGLANG_TEST_RETRACT", "1")
        patch.setenv("SGLANG_TEST_RETRACT_INTERVAL", "40")
        engine = start(
            tmp_path_factory.mktemp("paged"),
            models,
            algorithm=algorithm,
            overlap=overlap,
            page_size=16,
            chunked_prefill_size=CHUNK,
        )
    yield engine
    engine.shutdown()


@pytest.mark.parametrize(
    "load", [workloads.CROWD, workloads.STOPS, workloads.GRAMMARS], ids=lambda load: load.name
)
def test_retraction_and_pages(paged, plain_ids, load):
    paged.play(**RANDOM)
    answers = load.send(paged.inner)
    assert_lossless(plain_ids[load.name], [list(done.output_ids) for done in answers])
    paged.check()
    if load is workloads.CROWD:
        assert sum(done.meta_info["num_retractions"] for done in answers) > 0


def test_a_pool_that_is_too_small(plain_ids, models, tmp_path_factory, monkeypatch):
    """Requests are retracted because the pool is full, at random depths."""
    # They are admitted as if they would produce hardly anything.
    monkeypatch.setenv("SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", "4")
    engine = start(
        tmp_path_factory.mktemp("small"),
        models,
        algorithm="STANDALONE",
        overlap=True,
        max_total_tokens=1200,
    )
    try:
        load = workloads.CROWD
        engine.play(**RANDOM)
        answers = load.send(engine.inner)
        assert_lossless(plain_ids[load.name], [list(done.output_ids) for done in answers])
        assert sum(done.meta_info["num_retractions"] for done in answers) > 0
        engine.check()
    finally:
        engine.shutdown()
