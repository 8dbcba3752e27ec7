"""
The real model at length: the plain server's tokens, how good its head is, and warm re-entry.

No part of ``make test``: it takes about 20 minutes, and needs a trained head. ``make test-real``.
"""

from collections import Counter

import pytest

from sglang_dynspec.testing import assert_lossless
from sglang_dynspec_cpu.engine import CpuEngine
from tests.engine import real_pair
from tests.engine.conftest import start
from tests.engine.test_warm import EVERY_ROUND, OFF, WINDOW, histograms

pytestmark = pytest.mark.real

#: Prompts of each of four kinds, most tokens of an answer, and switches that equality survives.
EACH, TOKENS, SWITCHES = 10, 64, 500
RANDOM = {"mode": "random", "depths": [0, 1, 3]}


@pytest.fixture(scope="module")
def pair(models):
    return real_pair.pair_with(models, real_pair.chosen_head())


@pytest.fixture(scope="module")
def prompts(pair):
    return real_pair.prompts(pair.target, EACH, TOKENS)


@pytest.fixture(scope="module")
def answers(pair, prompts):
    """What SGLang without speculation says."""
    with CpuEngine(model=pair) as engine:
        return [list(done.output_ids) for done in prompts.load.send(engine)]


@pytest.fixture(scope="module", params=[True, False], ids=["overlap", "sync"])
def engine(request, pair, answers, models, tmp_path_factory):
    engine = start(
        tmp_path_factory.mktemp("real"),
        models,
        model=pair,
        algorithm="EAGLE3",
        overlap=request.param,
        radix_cache=False,
        max_running_requests=4,
    )
    yield engine
    engine.check()
    engine.shutdown()


def test_the_tokens_are_the_plain_servers_at_random_depths(engine, prompts, answers):
    switches = 0
    while switches < SWITCHES:
        engine.play(**RANDOM)
        assert_lossless(answers, engine.answer(prompts.load))
        switches = engine.state()["switches"]
    shares = [row["share"] for row in engine.state()["by_depth"].values()]
    assert min(shares) > 0.2


def test_how_good_the_head_is_by_kind_of_prompt(engine, prompts, answers):
    engine.play(mode="fixed", depth=3)
    done = prompts.load.send(engine.inner)
    assert_lossless(answers, [list(answer.output_ids) for answer in done])
    totals = {kind: Counter() for kind in prompts.kinds}
    for kind, answer in zip(prompts.kinds, done, strict=True):
        totals[kind].update(dict(enumerate(answer.accepted_histogram)))
    first = {}
    for kind, total in totals.items():
        reached = [sum(total[n] for n in range(place, 4)) for place in range(4)]
        first[kind] = reached[1] / reached[0]
        by_place = [f"{reached[place + 1] / max(reached[place], 1):.2f}" for place in range(3)]
        length = sum(reached) / reached[0]
        print(  # noqa: T201 - the figure belongs in the log
            f"\n{kind}: accepted at each place, given those before {', '.join(by_place)}; "
            f"accepted length {length:.2f} of {reached[0]} rounds"
        )
    assert first["chat"] >= 0.5


@pytest.mark.parametrize("n", [3, 7])
def test_drafts_are_as_good_as_with_upkeep_every_round(engine, pair, n):
    few = real_pair.prompts(pair.target, 2, TOKENS, ignore_eos=True).load
    script = {"mode": "cycle", "runs": [[3, 4], [0, n]]}
    every, _ = histograms(engine, few, EVERY_ROUND, **script)
    lazy, _ = histograms(engine, few, WINDOW, **script)
    assert lazy == every
    cold, _ = histograms(engine, few, OFF, **script)
    engine.set_upkeep(WINDOW)
    print(f"\nupkeep every round: {sum_of(every)}; none: {sum_of(cold)}")  # noqa: T201 - as above
    assert cold != every
    assert accepted(every) > accepted(cold)


def sum_of(rows):
    """Rounds by number of accepted drafts, over all requests."""
    total = Counter()
    for row in rows:
        total.update(dict(enumerate(row)))
    return dict(total)


def accepted(rows):
    """Accepted drafts of all requests."""
    return sum(drafts * rounds for drafts, rounds in sum_of(rows).items())
