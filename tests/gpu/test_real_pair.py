"""
On a GPU: a real model's own words at random depths, and how often its head is right.

SmolLM2 in fp32 with triton, its EAGLE3 head, prompts of four kinds. `DYNSPEC_REAL_PAIR_JSON` names
a file that the figures are written to.
"""

from functools import partial
from itertools import pairwise

import pytest

from sglang_dynspec_cpu.smollm2.pair import smollm2_pair
from sglang_dynspec_cpu.smollm2.prompts import chat_template, prompts_by_kind
from tests.engine.workloads import Workload
from tests.gpu import comparing
from tests.gpu.comparing import assert_answers_are, check
from tests.gpu.conftest import GpuEngine

GAP = 1e-4
TOKENS = 160
DEPTHS = (0, 1, 3)

ENGINE = {"max_running_requests": 48, "cuda_graph_max_bs_decode": 48}


tell = partial(comparing.tell, "DYNSPEC_REAL_PAIR_JSON")


@pytest.fixture(scope="module")
def pair():
    return smollm2_pair()


@pytest.fixture(scope="module")
def loads(pair):
    """The prompts of each kind, as a load."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(pair.target)
    render = chat_template(pair.target)
    sampling = {"temperature": 0, "max_new_tokens": TOKENS}
    found = {}
    for kind, prompts in prompts_by_kind().items():
        ids = tuple(
            tuple(tokenizer.encode(render(prompt), add_special_tokens=False)) for prompt in prompts
        )
        found[kind] = Workload(
            name=kind,
            input_ids=ids,
            sampling=tuple(sampling for _ in ids),
            options={"return_logprob": True, "top_logprobs_num": 2},
        )
    return found


@pytest.fixture(scope="module")
def plain(pair, loads, tmp_path_factory):
    engine = GpuEngine(tmp_path_factory.mktemp("plain"), algorithm=None, pair=pair, **ENGINE)
    answers = {kind: engine.send(load) for kind, load in loads.items()}
    engine.shutdown()
    return answers


@pytest.fixture(scope="module")
def engine(pair, plain, tmp_path_factory):
    engine = GpuEngine(tmp_path_factory.mktemp("ours"), algorithm="EAGLE3", pair=pair, **ENGINE)
    yield engine
    engine.shutdown()


def test_the_tokens_are_the_plain_engines(engine, plain, loads):
    before = check(engine)["switches"]
    ties = {
        kind: len(
            assert_answers_are(
                engine, plain[kind], load, {"mode": "random", "depths": DEPTHS}, gap=GAP
            )
        )
        for kind, load in loads.items()
    }
    switches = check(engine)["switches"] - before
    requests = sum(len(load.input_ids) for load in loads.values())
    tell(random_depths={"requests": requests, "switches": switches, "ties": ties})
    assert switches >= 200


def test_the_head_is_right_as_often_as_it_was_when_it_was_judged(engine, loads):
    engine.play(mode="fixed", depth=3)
    found = {}
    for kind, load in loads.items():
        # Rounds by accepted drafts, over all requests.
        histogram = [0] * 4
        for answer in engine.send(load):
            for accepted, rounds in enumerate(answer.accepted_histogram):
                histogram[accepted] += rounds
        reached = [sum(histogram[position:]) for position in range(4)]
        found[kind] = [round(b / a, 3) for a, b in pairwise(reached)]
    tell(acceptance=found)
    assert found["chat"][0] >= 0.5
