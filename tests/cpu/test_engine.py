"""SGLang's real engine on the CPU: plain, and speculating at a fixed depth, without dynspec."""

import json
import os
import random
import re
import signal
from collections import Counter

import psutil
import pytest

from sglang_dynspec_cpu.engine import EngineDiedError

pytestmark = [pytest.mark.engine, pytest.mark.slow]

DEPTH = 3
NEW_TOKENS = 48
GREEDY = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}

_random = random.Random(7)  # to be repeated, not to be secret
#: More tokens than one prefill pass takes, and as many requests as may run.
PROMPTS = [[_random.randrange(3, 500) for _ in range(length)] for length in range(5, 165, 10)]

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "count": {"type": "boolean"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}

STATIC = [
    pytest.param({"algorithm": "STANDALONE", "overlap": True}, id="standalone-overlap"),
    # The noisy draft's target is the same as the other one's.
    pytest.param(
        {"algorithm": "STANDALONE", "model": "noisy", "overlap": False}, id="standalone-sync"
    ),
    pytest.param({"algorithm": "EAGLE3", "overlap": True}, id="eagle3-overlap"),
    pytest.param(
        {"algorithm": "EAGLE3", "overlap": False, "page_size": 16, "chunked_prefill_size": 64},
        id="eagle3-sync-paged-chunked",
    ),
]

CONSTRUCTED = [
    pytest.param({"algorithm": "EAGLE3", "overlap": True}, id="eagle3-overlap"),
    pytest.param({"algorithm": "STANDALONE", "overlap": False}, id="standalone-sync"),
]


def answers(engine):
    """Two turns: the second goes on from the first, whose KV the radix cache holds."""
    first = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
    longer = [[*prompt, *done.output_ids, 9] for prompt, done in zip(PROMPTS, first, strict=True)]
    return first, engine.generate(input_ids=longer, sampling_params=GREEDY)


def ids(turn):
    return [done.output_ids for done in turn]


@pytest.fixture(scope="module")
def plain(dynspec_engine):
    """What SGLang says without speculation, to each turn; its engine is gone afterwards."""
    engine = dynspec_engine()
    before = engine.free_kv()
    turns = answers(engine)
    engine.flush_cache()
    alone = engine.generate(input_ids=PROMPTS[3:4], sampling_params=GREEDY)
    assert ids(alone) == ids(turns[0])[3:4]
    assert engine.free_kv() == before == engine.kv().capacity
    assert not engine.internal_state()["speculative_algorithm"]
    return turns


def test_plain_answers_have_the_length_that_was_asked_for(plain):
    for turn in plain:
        assert {len(done.output_ids) for done in turn} == {NEW_TOKENS}
        assert {done.finish_reason for done in turn} == {"length"}
        assert {done.accepted_histogram for done in turn} == {()}


@pytest.fixture(scope="module", params=STATIC)
def static(request, plain, dynspec_engine):
    """A speculative engine, after the plain one."""
    return dynspec_engine(depth=DEPTH, **request.param)


def test_speculation_changes_no_token(static, plain):
    before = static.free_kv()
    turns = answers(static)
    assert [ids(turn) for turn in turns] == [ids(turn) for turn in plain]
    static.flush_cache()
    assert static.kv().free == before == static.kv().capacity


def test_drafts_of_random_models_are_accepted_as_documented(static):
    done = static.generate(input_ids=PROMPTS, sampling_params=GREEDY)
    counts = Counter()
    for one in done:
        counts.update(dict(enumerate(one.accepted_histogram)))
    mean = sum(accepted * rounds for accepted, rounds in counts.items()) / counts.total()
    if static.arguments["speculative_algorithm"] == "EAGLE3":
        assert mean < 0.1
    else:
        assert set(counts) == set(range(DEPTH + 1))
        assert 1 <= mean <= 2


@pytest.fixture(scope="module", params=CONSTRUCTED)
def constructed(request, dynspec_engine):
    return dynspec_engine(model="constructed", depth=DEPTH, **request.param)


def test_acceptance_is_what_the_walk_says(constructed):
    """Exactly, request by request, with the rounds that the last token cuts short."""
    prompts = ["hello", "constructed", "z"] * 5
    for done in constructed.generate(prompts, GREEDY):
        first = done.output_ids[0]
        assert done.output_ids == walk(constructed.models, first, NEW_TOKENS)
        produced, expected = 1, Counter()
        for accepted in constructed.models.expected_accepted(first, DEPTH, NEW_TOKENS):
            if produced >= NEW_TOKENS:
                break
            produced += accepted + 1
            expected[accepted] += 1
        histogram = Counter(dict(enumerate(done.accepted_histogram)))
        assert +histogram == expected


def walk(models, token, count):
    tokens = [token]
    while len(tokens) < count:
        tokens.append(models.next_token(tokens[-1]))
    return tuple(tokens)


def test_a_grammar_is_followed_to_its_end(constructed):
    parameters = {"temperature": 0, "max_new_tokens": 80}
    by_schema, by_regex = constructed.generate(
        ["{", "say"],
        [
            {**parameters, "json_schema": json.dumps(SCHEMA)},
            {**parameters, "regex": r"[a-f]{4,9}-(yes|no)[0-9]{2}"},
        ],
    )
    assert by_schema.finish_reason == by_regex.finish_reason == "stop"
    answer = json.loads(by_schema.text)
    assert answer["colour"] in {"red", "blue"}
    assert isinstance(answer["count"], bool)
    assert re.fullmatch(r"[a-f]{4,9}-(yes|no)[0-9]{2}", by_regex.text)


def test_a_chat_request_completes(constructed):
    """The same code as ``/v1/chat/completions``, short of HTTP."""
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

    request = ChatCompletionRequest(
        model="constructed",
        messages=[{"role": "user", "content": "hello"}],
        temperature=0,
        max_tokens=12,
    )
    sgl = constructed.sgl
    chat = OpenAIServingChat(sgl.tokenizer_manager, sgl.template_manager)
    response = constructed.run(chat.handle_request(request, None))
    (choice,) = response.choices
    assert choice.finish_reason == "length"
    assert response.usage.completion_tokens == 12
    assert response.usage.prompt_tokens == len("user: hello\nassistant:")
    # The prompt's last token is a colon; the answer goes on from there.
    colon = sgl.tokenizer_manager.tokenizer.convert_tokens_to_ids(":")
    spoken = walk(constructed.models, constructed.models.next_token(colon), 12)
    assert choice.message.content == sgl.tokenizer_manager.tokenizer.decode(spoken)


def test_a_request_can_be_aborted_midway(constructed):
    before = constructed.free_kv()
    steps = constructed.stream([5, 6, 7], {**GREEDY, "max_new_tokens": 1500}, rid="long")
    done = next(steps)
    assert done.finish_reason is None
    constructed.abort("long")
    for done in steps:  # noqa: B007 - the last one counts
        pass
    assert done.finish_reason == "abort"
    assert len(done.output_ids) < 1500
    assert constructed.free_kv() == before


def test_an_unknown_setting_is_not_accepted(constructed):
    assert not constructed.set_internal_state(no_such_setting=1)


def test_a_script_needs_the_scripted_policy(constructed):
    with pytest.raises(RuntimeError, match=r"expected a running engine with the policy .*Scripted"):
        constructed.play({"mode": "fixed", "depth": 0})


def test_a_start_that_fails_is_an_error_and_the_next_one_succeeds(dynspec_engine):
    """The failing process tells its launcher by a signal, past the process it was forked from."""
    with pytest.raises(EngineDiedError, match="found a dead process"):
        dynspec_engine(max_total_tokens=1)
    assert dynspec_engine().generate(["hello"], {"temperature": 0, "max_new_tokens": 2})


def test_what_sglang_reads_at_import_may_change_between_engines(dynspec_engine, monkeypatch):
    """A forked scheduler would have imported it with what was true for the first engine."""
    monkeypatch.setenv("SGLANG_TEST_RETRACT", "1")
    monkeypatch.setenv("SGLANG_TEST_RETRACT_INTERVAL", "10")
    retracting = dynspec_engine(page_size=16)
    done = retracting.generate(input_ids=PROMPTS, sampling_params=GREEDY)
    assert sum(each.meta_info["num_retractions"] for each in done) > 0
    monkeypatch.undo()
    done = dynspec_engine().generate(input_ids=PROMPTS, sampling_params=GREEDY)
    assert sum(each.meta_info["num_retractions"] for each in done) == 0


def test_a_dead_scheduler_fails_the_call_and_leaves_no_process(dynspec_engine):
    engine = dynspec_engine(model="constructed", depth=DEPTH, **CONSTRUCTED[-1].values[0])
    children = set(psutil.Process().children(recursive=True))
    pids = engine.sgl.get_all_child_pids()
    steps = engine.stream([5, 6, 7], {**GREEDY, "max_new_tokens": 1500})
    next(steps)
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="found a dead process"):
        list(steps)
    assert not engine.is_running
    dynspec_engine.close()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    # What is left are Python's own helpers, which end with this process.
    left = [" ".join(child.cmdline()) for child in children if child.is_running()]
    assert len(left) <= 2
    assert all("resource_tracker" in line or "forkserver" in line for line in left)
