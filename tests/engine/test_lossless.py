"""Whatever the depths, the tokens are those of the server without speculation."""

import os

import pytest

from sglang_dynspec.testing import assert_lossless
from tests.engine import workloads

RANDOM = {"mode": "random", "depths": [0, 1, 3]}

#: Switches that equality and pool have to survive on each engine; before a release, more.
SWITCHES = int(os.environ.get("DYNSPEC_SWITCHES", "1000"))


def test_a_thousand_switches_and_more(engine, plain_ids):
    before = engine.state()["switches"]
    switches = 0
    while switches < SWITCHES:
        for load in (workloads.CROWD, workloads.MARATHON):
            engine.play(**RANDOM)
            assert_lossless(plain_ids[load.name], engine.answer(load))
        switches = engine.state()["switches"] - before
        assert engine.free_kv() == engine.capacity
    state = engine.state()
    assert set(state["by_depth"]) == {"0", "1", "3"}
    shares = [row["share"] for row in state["by_depth"].values()]
    assert min(shares) > 0.2
    assert state["overlap"] is engine.overlap


@pytest.mark.parametrize(
    "script",
    [RANDOM, {"mode": "cycle", "runs": [[3, 5], [0, 6]]}],
    ids=["random", "cycle"],
)
@pytest.mark.parametrize(
    "load",
    [workloads.LONG_PROMPTS, workloads.STOPS, workloads.GRAMMARS],
    ids=lambda load: load.name,
)
def test_every_kind_of_request(engine, plain_ids, load, script):
    engine.play(**script)
    assert_lossless(plain_ids[load.name], engine.answer(load))


def test_radix_cache_hits(engine, plain_ids):
    load = workloads.CROWD
    engine.play(**RANDOM)
    engine.answer(load)
    engine.play(**RANDOM)
    again = load.send(engine)
    assert_lossless(plain_ids[load.name], [list(done.output_ids) for done in again])
    # Each prompt but its last token was in the cache; EAGLE's keys are pairs, one fewer.
    missing = 2 if engine.arguments["speculative_algorithm"] == "EAGLE3" else 1
    cached = [done.meta_info["cached_tokens"] for done in again]
    assert cached == [len(ids) - missing for ids in load.input_ids]


def test_logprobs(engine, plain):
    expected = plain["logprobs"]
    engine.play(**RANDOM)
    found = workloads.LOGPROBS.send(engine)
    for one, other in zip(expected, found, strict=True):
        assert list(one.output_ids) == list(other.output_ids)
        for kind in ("output_token_logprobs", "input_token_logprobs"):
            left, right = one.meta_info[kind], other.meta_info[kind]
            assert [entry[1] for entry in left] == [entry[1] for entry in right]
            assert [e[0] for e in left if e[0] is not None] == pytest.approx(
                [e[0] for e in right if e[0] is not None], abs=1e-4
            )
        left, right = (each.meta_info["output_top_logprobs"] for each in (one, other))
        assert [[e[1] for e in row] for row in left] == [[e[1] for e in row] for row in right]
        assert [e[0] for row in left for e in row] == pytest.approx(
            [e[0] for row in right for e in row], abs=1e-4
        )


def test_abort_in_flight(engine, plain_ids):
    """Aborted requests free their slots and leave the others' tokens alone."""
    load = workloads.CROWD
    for round_ in range(2):
        engine.play(**RANDOM)
        stream = engine.stream(
            workloads.MARATHON.input_ids[0],
            {"temperature": 0, "max_new_tokens": 1000, "ignore_eos": True},
            rid=f"victim-{round_}",
        )
        for seen, part in enumerate(stream):
            if seen == 3 + round_:
                engine.abort(f"victim-{round_}")
            got = list(part.output_ids)
        assert len(got) < 1000
        assert got == plain_ids["marathon"][0][: len(got)]
        assert_lossless(plain_ids[load.name], engine.answer(load))


def test_plain_rounds_sample_as_the_plain_server(engine, plain_ids):
    assert_lossless(plain_ids["sampling"], engine.sampled)


@pytest.mark.parametrize("load", [workloads.INEXACT, workloads.SAMPLES], ids=lambda load: load.name)
def test_plain_rounds_penalise_as_the_plain_server(engine, plain_ids, load):
    engine.play(mode="fixed", depth=0)
    assert_lossless(plain_ids[load.name], engine.answer(load))
