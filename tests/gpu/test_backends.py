"""
On a GPU: the same tokens on the attention backends that know no fp32.

In bf16 the width of a batch moves logits by far more than in fp32, so the first difference of a
request may lie at a wider gap: the plain engine, told the same requests in another order, shows how
wide. Wrong keys and values move logits by more than that.
"""

from dataclasses import replace

import pytest

from tests.gpu.comparing import LOADS, assert_answers_are, assert_same_tokens
from tests.gpu.conftest import GpuEngine

GAP = 0.25


def reordered(load):
    return replace(load, input_ids=load.input_ids[::-1], sampling=load.sampling[::-1])


def tell(backend, name, what, gaps):
    widest = max(gaps, default=0.0)
    print(f"{backend} {name} {what}: {len(gaps)} differ first, at gaps up to {widest:.4f}")  # noqa: T201 - the figure belongs in the log


@pytest.fixture(scope="module", params=["fa3", "flashinfer"])
def pair(request, tmp_path_factory):
    """The plain engine's answers, and our engine, on one backend."""
    directory = tmp_path_factory.mktemp(request.param)
    kind = {"backend": request.param, "dtype": "bfloat16"}
    plain = GpuEngine(directory / "plain", algorithm=None, **kind)
    answers = {name: plain.send(load) for name, load in LOADS.items()}
    for name, load in LOADS.items():
        gaps = assert_same_tokens(answers[name], plain.send(reordered(load))[::-1], gap=GAP)
        tell(request.param, name, "plain, reordered", gaps)
    plain.shutdown()
    ours = GpuEngine(directory / "ours", algorithm="EAGLE3", **kind)
    yield request.param, answers, ours
    ours.shutdown()


@pytest.mark.parametrize(
    "script",
    [
        {"mode": "fixed", "depth": 0},
        {"mode": "fixed", "depth": 3},
        {"mode": "cycle", "runs": [[3, 5], [0, 6]]},
    ],
    ids=["plain", "deepest", "cycle"],
)
@pytest.mark.parametrize("name", LOADS)
def test_the_tokens_are_the_plain_engines(pair, name, script):
    backend, plain, ours = pair
    gaps = assert_answers_are(ours, plain[name], LOADS[name], script, gap=GAP)
    tell(backend, name, script, gaps)
