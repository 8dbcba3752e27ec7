"""
What policies learn from the real engine is what happened, to the last draft.

The constructed models' acceptance is known exactly: walking what was generated gives the accepted
drafts of every round and whether any guess was right. So outcomes are compared without tolerance;
estimates, which remember a part of the rounds, and samples get one.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from sglang_dynspec_cpu.constructed import constructed_pair
from sglang_dynspec_cpu.rule import PERIOD
from sglang_dynspec_cpu.tokenizer import FIRST_TEXT_ID
from tests.engine.conftest import start

DEPTH = 3
ROUNDS = 2000
#: Estimates are this close to the truth after so many rounds; samples of guesses, below.
CLOSE, SAMPLED = 0.03, 0.05


def case(algorithm, loop, agreement):
    """Algorithm, scheduler loop, and the share of drafts that are right."""
    return pytest.param((algorithm, loop, agreement), id=f"{algorithm}-{loop}-{agreement}")


LOOPS = [case(name, loop, 0.5) for name in ("EAGLE3", "STANDALONE") for loop in ("overlap", "sync")]
ESTIMATED = [
    case("EAGLE3", "sync", 0.2),
    case("STANDALONE", "sync", 0.5),
    case("EAGLE3", "overlap", 0.9),
]


@dataclass
class Bench:
    """An engine on constructed models, and the record of what its policy was told."""

    engine: Any
    pair: Any
    algorithm: str
    agreement: float
    read: int = 0

    def run(self, lengths, new_tokens, *, fewer=0, window=4, **script):
        """
        Answer one request of each length, each of so many tokens fewer than the one before.

        Returns:
            The requests' tokens by name, prompts included; the rounds that ran; and the passes.
        """
        draw = random.Random(self.read)  # to be repeated, not to be secret
        prompts = [
            [FIRST_TEXT_ID + draw.randrange(PERIOD) for _ in range(length)] for length in lengths
        ]
        self.engine.set_upkeep(window)
        self.engine.play(**script)
        sampling = [
            {"temperature": 0, "max_new_tokens": new_tokens - index * fewer, "ignore_eos": True}
            for index in range(len(prompts))
        ]
        names = [f"{self.read}-{index}" for index in range(len(prompts))]
        done = self.engine.generate(input_ids=prompts, sampling_params=sampling, rid=names)
        tokens = {
            name: [*prompt, *answer.output_ids]
            for name, prompt, answer in zip(names, prompts, done, strict=True)
        }
        # It also waits until the last round is accounted for.
        self.engine.check()
        lines = (self.engine.directory / "record.jsonl").read_text().splitlines()
        record = [json.loads(line) for line in lines[self.read :]]
        self.read = len(lines)
        rounds = [entry for entry in record if entry["kind"] == "round"]
        return tokens, rounds, [entry for entry in record if entry["kind"] != "round"]

    def guesses(self, tokens, rounds, passes):
        """
        Work out guesses and right ones of every round from the passes that made them.

        A request's newest token stands at its length: the guess is of the one that follows it.
        """
        covered = {entry["round"]: entry["covered"] for entry in passes if "covered" in entry}
        for entry in rounds:
            newest = []
            for name, length in covered.get(entry["round"], ()) if entry["depth"] == 0 else ():
                text = tokens[name]
                # A request that has just finished reappears once, under overlap.
                past = length == len(text)
                newest.append(self.pair.next_token(text[-1]) if past else text[length])
            right = [self.pair.draft_token(t) == self.pair.next_token(t) for t in newest]
            yield len(right), sum(right)


@pytest.fixture(scope="module")
def bench(request, models, tmp_path_factory):
    algorithm, loop, agreement = request.param
    directory = tmp_path_factory.mktemp("observed")
    pair = constructed_pair(models, agreement=agreement)
    engine = start(
        directory,
        models,
        model=pair,
        algorithm=algorithm,
        overlap=loop == "overlap",
        # Nothing inherits rows, so every pass is a round's own.
        radix_cache=False,
        dynspec={
            "policy": "tests.engine.observing:Observing",
            "options": {
                "path": str(directory / "script.json"),
                "record": str(directory / "record.jsonl"),
            },
            # Speculation costs time on a CPU; the script is to be obeyed.
            "never_worse": False,
        },
    )
    yield Bench(engine, pair, algorithm, agreement)
    engine.shutdown()


@pytest.mark.parametrize("bench", ESTIMATED, indirect=True)
def test_estimates_are_close_to_the_truth(bench):
    prompt, new_tokens = 8, round(200 * sum(bench.agreement**n for n in range(DEPTH + 1)))
    rounds, walked = [], []
    while len(rounds) < ROUNDS:
        tokens, ran, _ = bench.run([prompt] * 8, new_tokens, mode="fixed", depth=DEPTH)
        rounds += ran
        for text in tokens.values():
            left = new_tokens - 1  # the first one comes from prefill
            for accepted in bench.pair.expected_accepted(text[prompt], DEPTH, new_tokens):
                if left <= 0:
                    break
                left -= accepted + 1
                walked.append(accepted)
    learned = Counter(accepted for entry in rounds for accepted in entry["accepted"])
    assert learned == Counter(walked)

    reached = [sum(accepted >= drafts for accepted in walked) for drafts in range(DEPTH + 1)]
    truth = [reached[j + 1] / reached[j] for j in range(DEPTH)]
    estimates = rounds[ROUNDS - 1]["rates"]
    assert estimates == pytest.approx(truth, abs=CLOSE)
    assert estimates == pytest.approx([bench.agreement] * DEPTH, abs=CLOSE)


@pytest.mark.parametrize("bench", LOOPS, indirect=True)
def test_guesses_sample_acceptance_while_rounds_are_plain(bench):
    # Where other passes write keys and values alone, one in 16 guesses.
    every, new_tokens = (1, 80) if bench.algorithm == "STANDALONE" else (16, 640)
    # More requests than places, that end one by one: some join in rounds that guess, with nothing
    # to guess from.
    ran = bench.run([8] * 20, new_tokens, fewer=3, window=1, mode="fixed", depth=0)
    _, rounds, passes = ran
    sampled = [(entry["guesses"], entry["right_guesses"]) for entry in rounds]
    assert sampled == list(bench.guesses(*ran))
    guessing = [entry["kind"] for entry in passes].count("extend")
    assert guessing == pytest.approx(len(passes) / every, abs=1)

    guesses, right = map(sum, zip(*sampled, strict=True))
    assert guesses > 500
    assert right / guesses == pytest.approx(bench.agreement, abs=SAMPLED)
    # The estimate follows them.
    assert rounds[-1]["rates"][0] == pytest.approx(bench.agreement, abs=SAMPLED)


#: Prompts and answers so long that a length tells whose it is.
LENGTHS, NEW_TOKENS = [20, 320, 620, 920], 240


@pytest.mark.parametrize("bench", LOOPS, indirect=True)
def test_an_outcome_says_which_rounds_ran_upkeep(bench):
    before = bench.engine.state()["upkeep"]["passes"]
    ran = bench.run(LENGTHS, NEW_TOKENS, mode="cycle", runs=[[0, 9], [3, 4], [0, 2], [1, 3]])
    after = bench.engine.state()["upkeep"]["passes"]
    _, rounds, passes = ran
    account = {name: after[name] - before[name] for name in after}
    assert min(account["window"], account["reentry"]) > 5
    assert sum(account.values()) == len(passes)

    upkept = {entry["round"] for entry in passes}
    # A round that only finished requests were in has no outcome.
    settled = {entry["round"] for entry in rounds}
    assert len(upkept - settled) <= 1
    assert {entry["round"] for entry in rounds if entry["upkeep"]} == upkept & settled

    sampled = [(entry["guesses"], entry["right_guesses"]) for entry in rounds]
    assert sampled == list(bench.guesses(*ran))


@pytest.mark.parametrize("bench", LOOPS, indirect=True)
def test_an_outcome_says_who_was_how_long(bench):
    tokens, rounds, _ = bench.run(LENGTHS, NEW_TOKENS, mode="cycle", runs=[[3, 5], [0, 3], [1, 2]])
    texts = dict(zip(LENGTHS, tokens.values(), strict=True))
    exact, before = dict(zip(LENGTHS, LENGTHS, strict=True)), {}
    lagging = Counter()
    for entry in rounds:
        assert entry["padded_batch_size"] == entry["launched"]  # no CUDA graphs here
        assert len(entry["seq_lens"]) == entry["batch_size"]
        if entry["batch_size"] == entry["launched"]:
            assert sum(entry["seq_lens"]) == entry["seq_len_sum"]
        accepted = entry["accepted"] or [0] * entry["batch_size"]
        for length, drafts in zip(entry["seq_lens"], accepted, strict=True):
            prompt = max(each for each in LENGTHS if each <= length)
            now = exact[prompt]
            # Overlap launches a round before the tokens of the last one are known.
            assert length in {now, before.get(prompt, now)}
            lagging[length != now] += 1
            if entry["depth"]:
                newest = texts[prompt][now]
                assert (drafts,) == bench.pair.expected_accepted(newest, entry["depth"])
            before[prompt], exact[prompt] = now, now + drafts + 1
    assert all(exact[prompt] >= prompt + NEW_TOKENS - 1 for prompt in LENGTHS)
    overlap = not bench.engine.arguments["disable_overlap_schedule"]
    assert lagging[overlap] > 0.9 * lagging.total()
    assert overlap or not lagging[True]
