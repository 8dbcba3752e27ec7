"""
Loads of a constructed pair, whose every token and acceptance is known without another engine.

The test on the CPU engine, of a tiny pair, and the one on a GPU, at real cost, run the same code
and differ in sizes alone.
"""

import json
import random
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from statistics import fmean

from sglang_dynspec_cpu import scripted
from tests.engine.workloads import Workload
from tests.gpu.comparing import check

DEPTHS = (0, 1, 3)
#: Each depth of a load that acceptance is learned from is drawn from these. No plain rounds: what
#: upkeep guesses there begins at other places than rounds do.
LEARNED_FROM = (1, 3)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is asked for; ranges in tokens, both ends included."""

    #: Requests of a load, which are sent at once: those without a place wait for one.
    requests: int
    #: Longest prefill pass, and what prompts begin with that share their beginning.
    chunk: int
    prefix: int
    prompts: tuple[int, int]
    answers: tuple[int, int]
    #: Switches of depth to come through.
    switches: int
    #: Requests and answers of a load of one kind.
    alike: int
    alike_answers: tuple[int, int]


def load(pair, kinds, requests, prompts, answers, *, prefix=0, seed=0):
    """Draw requests of kinds in turn, most of which begin as others do where there is a prefix."""
    draw = random.Random(seed)
    prompt = partial(pair.rule.prompt, draw=draw, vocabulary=pair.shape.vocabulary)
    beginnings = [[], *(prompt(kind, prefix) for kind in kinds * 2 if prefix)]
    input_ids, sampling = [], []
    for number in range(requests):
        begin = draw.choice(beginnings) if number % 4 else []
        length = max(draw.randint(*prompts), len(begin) + pair.rule.memory + 2)
        kind = kinds[number % len(kinds)]
        input_ids.append(tuple(prompt(kind, length, prefix=begin)))
        sampling.append(
            {"temperature": 0, "ignore_eos": True, "max_new_tokens": draw.randint(*answers)}
        )
    return Workload(name=f"known-{seed}", input_ids=tuple(input_ids), sampling=tuple(sampling))


def names(pair):
    return [kind.name for kind in pair.rule.kinds]


def differing(pair, asked, done):
    """Tokens of the answers that are not the rule's, missing and needless ones included."""
    return sum(
        expected != found
        for ids, sampling, answer in zip(asked.input_ids, asked.sampling, done, strict=True)
        for expected, found in zip_longest(
            pair.rule.answer(ids[-1], sampling["max_new_tokens"]), answer.output_ids
        )
    )


def mixed(pair, sizes, *, requests=None, seed=0):
    return load(
        pair,
        names(pair),
        requests or sizes.requests,
        sizes.prompts,
        sizes.answers,
        prefix=sizes.prefix,
        seed=seed,
    )


def free(state):
    return state["kv_free_tokens"] + state["kv_evictable_tokens"]


def come_and_go(engine, pair, sizes):
    """
    Answer mixed loads at random depths until there were switches enough.

    Returns:
        Figures of it.
    """
    engine.play(mode="random", depths=list(DEPTHS))
    before = after = check(engine)
    found = dict.fromkeys(("requests", "tokens", "differing", "chunked", "cached_tokens"), 0)
    found |= {"hits": 0, "loads": 0}
    while after["switches"] - before["switches"] < sizes.switches:
        asked = mixed(pair, sizes, seed=found["loads"])
        done = asked.send(engine)
        cached = [answer.meta_info["cached_tokens"] for answer in done]
        new = [len(ids) - hit for ids, hit in zip(asked.input_ids, cached, strict=True)]
        found["requests"] += len(done)
        found["tokens"] += sum(len(answer.output_ids) for answer in done)
        found["differing"] += differing(pair, asked, done)
        found["chunked"] += sum(each > sizes.chunk for each in new)
        found["cached_tokens"] += sum(cached)
        found["hits"] += sum(hit >= sizes.prefix // 2 for hit in cached)
        found["loads"] += 1
        after = check(engine)
    found["switches"] = after["switches"] - before["switches"]
    found["shares"] = {depth: row["share"] for depth, row in after["by_depth"].items()}
    found["kv_missing"] = free(before) - free(after)
    return found


def assert_came_and_went(found, sizes):
    """What must hold of `come_and_go`'s figures."""
    assert found["differing"] == 0
    assert found["kv_missing"] == 0
    assert found["switches"] >= sizes.switches
    assert found["requests"] == found["loads"] * sizes.requests
    assert found["chunked"] > found["requests"] / 10
    assert found["hits"] > found["requests"] / 10
    assert min(found["shares"].values()) > 0.2


def estimates(engine, pair, kind, sizes, *, seed=0):
    """
    Learn acceptance from a load of one kind.

    The engine's policy is `tests.engine.learning:Learning`, which writes into ``rates.jsonl`` of
    the engine's directory.

    Returns:
        By position: the mean estimate once half of the rounds have run, the last one, and the
        truth; and the tokens that differ.
    """
    path = engine.directory / "rates.jsonl"
    check(engine)  # until the last round of what was before is accounted for
    already = len(path.read_text().splitlines()) if path.exists() else 0
    engine.play(mode="random", depths=list(LEARNED_FROM))
    asked = load(pair, [kind], sizes.alike, (24, 64), sizes.alike_answers, seed=seed)
    done = asked.send(engine)
    check(engine)
    rates = [json.loads(line) for line in path.read_text().splitlines()[already:]]
    settled = rates[len(rates) // 2 :]
    return {
        "rounds": len(rates),
        "estimate": [fmean(each) for each in zip(*settled, strict=True)],
        "last": rates[-1],
        "truth": list(pair.rule.acceptance(kind, dict.fromkeys(LEARNED_FROM, 1))),
        "differing": differing(pair, asked, done),
    }


def learning(directory):
    """Fields of `sglang_dynspec.enable` for a policy that plays a script and learns."""
    return {
        "policy": "tests.engine.learning:Learning",
        "options": {
            "path": str(directory / scripted.FILE_NAME),
            "rates": str(directory / "rates.jsonl"),
        },
        # Speculation may cost time; the script is to be obeyed.
        "never_worse": False,
    }
