"""
The load of `tests/gpu/test_known_pair.py` on a tiny pair: tokens and acceptance are the rule's.
"""

import pytest

from sglang_dynspec_cpu.constructed import KINDS, MEMORY, constructed_pair
from tests.engine import known
from tests.engine.conftest import CHUNK, start

SIZES = known.Sizes(
    requests=30,
    chunk=CHUNK,
    prefix=48,
    prompts=(18, 160),
    answers=(4, 120),
    switches=200,
    alike=24,
    alike_answers=(160, 200),
)
#: Sixteen requests at a time, and a hundred rounds, tell acceptance so closely.
CLOSE = 0.06


@pytest.fixture(scope="module")
def pair(models):
    return constructed_pair(models, kinds=KINDS, memory=MEMORY)


@pytest.fixture(scope="module")
def engine(pair, models, tmp_path_factory):
    directory = tmp_path_factory.mktemp("known")
    engine = start(
        directory,
        models,
        model=pair,
        algorithm="EAGLE3",
        chunked_prefill_size=CHUNK,
        dynspec=known.learning(directory),
    )
    yield engine
    engine.shutdown()


def test_answers_are_the_rules_while_requests_come_and_go(engine, pair):
    found = known.come_and_go(engine, pair, SIZES)
    known.assert_came_and_went(found, SIZES)


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_estimates_of_a_kind_are_close_to_its_truth(engine, pair, kind):
    found = known.estimates(engine, pair, kind, SIZES)
    assert found["differing"] == 0
    assert found["estimate"] == pytest.approx(found["truth"], abs=CLOSE)
