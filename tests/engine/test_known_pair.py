"""
The load of `tests/gpu/test_known_pair.py` on a tiny pair: tokens and acceptance are the rule's.
"""

from collections import Counter

import pytest

from sglang_dynspec_cpu import scripted
from sglang_dynspec_cpu.constructed import KINDS, MEMORY, constructed_pair
from tests.engine import known
from tests.engine.conftest import CHUNK, start

SIZES = known.Sizes(
    requests=30,
    chunk=CHUNK,
    prefix=48,
    prompts=(18, 160),
    answers=(4, 90),
    switches=120,
    alike=24,
    alike_answers=(130, 160),
)
#: Sixteen requests at a time, and a hundred rounds, tell acceptance so closely.
CLOSE = 0.07


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


#: As long plain as makes the cache stale where the models look, and then fewer rounds than get
#: past that.
RUNS = [[0, 20], [3, 6]]
LONG = 240


def accepted_after_plain_rounds(engine, pair, window):
    """Histogram of the drafts accepted of one request, and what the rule says."""
    engine.flush_cache()
    engine.set_upkeep(window)
    engine.play(mode="cycle", runs=RUNS)
    # Another text each time: what an old one left in the cache may be right for the same.
    asked = known.load(pair, ["even"], 1, (40, 40), (LONG, LONG), seed=window)
    (done,) = asked.send(engine)
    engine.set_upkeep(4)
    assert known.differing(pair, asked, [done]) == 0
    tokens, expected = 1, Counter()  # the first one comes from prefill
    for depth in scripted.play({"mode": "cycle", "runs": RUNS}):
        if tokens >= LONG:
            break
        (accepted,) = pair.rule.accepted(done.output_ids[tokens - 1], depth)
        expected[accepted] += 1
        tokens += accepted + 1
    return +Counter(dict(enumerate(done.accepted_histogram))), expected


@pytest.mark.parametrize("window", [1, 4])
def test_upkeep_keeps_drafts_as_right_as_the_rule_has_them(engine, pair, window):
    found, expected = accepted_after_plain_rounds(engine, pair, window)
    assert found == expected
    assert set(found) == {0, 1, 2, 3}


def test_without_upkeep_a_stale_cache_turns_every_draft_wrong(engine, pair):
    found, _ = accepted_after_plain_rounds(engine, pair, 0)
    assert set(found) == {0}
