"""
On a GPU, at real cost: every token and every kind's acceptance are what the known pair's rule says.

The models have the sizes of Llama-3.1-8B, in bf16, under FA3, overlap and CUDA graphs, with
SGLang's fused kernels. `DYNSPEC_KNOWN_PAIR_JSON` names a file that the figures are written to.
"""

from functools import partial

import pytest

from sglang_dynspec_cpu.checkpoint import HEAD_VOCABULARY, LLAMA_8B
from sglang_dynspec_cpu.constructed import KINDS, MEMORY, constructed_pair
from tests.engine import known
from tests.gpu import comparing
from tests.gpu.conftest import GpuEngine

PLACES = 64
#: Some 3000 rounds, of loads that take a thousand or more.
SIZES = known.Sizes(
    requests=200,
    chunk=512,
    prefix=384,
    prompts=(24, 1600),
    answers=(16, 1200),
    switches=2000,
    alike=256,
    alike_answers=(300, 400),
)
CLOSE = 0.03
#: Requests that the plain engine answers, too.
SUBSET = 24

ENGINE = {
    "backend": "fa3",
    "dtype": LLAMA_8B.dtype,
    "fused": True,
    "mem_fraction_static": 0.6,
    # Each place at its longest, and as much again for the radix cache.
    "max_total_tokens": 2 * PLACES * (SIZES.prompts[1] + SIZES.answers[1]),
    "max_running_requests": PLACES,
    "cuda_graph_max_bs_decode": PLACES,
    "chunked_prefill_size": SIZES.chunk,
}


tell = partial(comparing.tell, "DYNSPEC_KNOWN_PAIR_JSON")


@pytest.fixture(scope="module")
def pair():
    # In the user's cache: 20 GB, which the benchmarks use as well.
    return constructed_pair(
        kinds=KINDS, memory=MEMORY, shape=LLAMA_8B, draft_vocabulary=HEAD_VOCABULARY
    )


@pytest.fixture(scope="module")
def plain(pair, tmp_path_factory):
    """Tokens in which a plain engine's answers differ from the rule's."""
    engine = GpuEngine(tmp_path_factory.mktemp("plain"), algorithm=None, pair=pair, **ENGINE)
    asked = known.mixed(pair, SIZES, requests=SUBSET)
    found = known.differing(pair, asked, engine.send(asked))
    engine.shutdown()
    return found


@pytest.fixture(scope="module")
def engine(pair, plain, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ours")
    engine = GpuEngine(
        directory, algorithm="EAGLE3", pair=pair, dynspec=known.learning(directory), **ENGINE
    )
    yield engine
    engine.shutdown()


def test_the_plain_engine_follows_the_rule(plain):
    tell(plain={"requests": SUBSET, "differing": plain})
    assert plain == 0


def test_answers_are_the_rules_while_requests_come_and_go(engine, pair):
    found = known.come_and_go(engine, pair, SIZES)
    tell(come_and_go=found)
    known.assert_came_and_went(found, SIZES)


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_estimates_of_a_kind_are_close_to_its_truth(engine, pair, kind):
    found = known.estimates(engine, pair, kind, SIZES)
    tell(**{f"estimates_{kind}": found})
    assert found["differing"] == 0
    assert found["estimate"] == pytest.approx(found["truth"], abs=CLOSE)
