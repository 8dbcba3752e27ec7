"""What outcomes say against what clients got: the numerator of every rate."""

import itertools
import json

import pytest

from sglang_dynspec_cpu import scripted
from sglang_dynspec_cpu.engine import CpuEngine
from tests.engine import workloads


@pytest.fixture(params=[True, False], ids=["overlap", "sync"])
def served(request, models, tmp_path):
    """Serve a function's requests at mixed depths; return its answer and the rounds' outcomes."""

    def serve(send, **arguments):
        script, seen = tmp_path / "script.json", tmp_path / "seen.jsonl"
        scripted.write(script, {"mode": "random", "depths": [0, 1, 3]})
        dynspec = {
            "policy": "tests.engine.observing:Observing",
            "options": {"path": str(script), "record": str(seen)},
            "depths": (0, 1, 3),
            **scripted.UNBOUNDED,
        }
        with CpuEngine(
            cache=models,
            algorithm="STANDALONE",
            overlap=request.param,
            dynspec=dynspec,
            **arguments,
        ) as engine:
            answer = send(engine)
            state = engine.internal_state()["dynspec"]
        told = [json.loads(line) for line in seen.read_text().splitlines()]
        rounds = [each for each in told if each["kind"] == "round"]
        assert len(rounds) == state["rounds"]
        assert {each["depth"] for each in rounds} == {0, 1, 3}
        return answer, rounds

    return serve


def test_each_round_says_what_a_client_got_of_it(served):
    """One request, streamed: every chunk after the first is of one round."""

    def send(engine):
        load = workloads.workload("alone", [20], [157], seed=11)
        chunks = engine.stream(load.input_ids[0], load.sampling[0])
        return [len(each.output_ids) for each in chunks]

    lengths, rounds = served(send)
    got = [after - before for before, after in itertools.pairwise(lengths)]
    assert sum(got) == 156
    assert [each["tokens"] for each in rounds] == got
    # What was accepted and then cut at the end of the answer is not delivered.
    assert [each["tokens"] for each in rounds[:-1]] == [
        1 + sum(each["accepted"]) for each in rounds[:-1]
    ]


def test_all_rounds_together_say_what_all_clients_got(served):
    """A crowd that comes and goes, stops in mid-round, chunks, and health checks in between."""

    def send(engine):
        answers = [
            done
            for load in (workloads.STOPS, workloads.CROWD, workloads.LONG_PROMPTS)
            for done in load.send(engine)
        ]
        # SGLang's health check is a request like any other, but for its name.
        checks = engine.generate(
            input_ids=[[5, 6, 7], [8, 9, 10]],
            sampling_params={"temperature": 0, "max_new_tokens": 9, "ignore_eos": True},
            rid=["HEALTH_CHECK_1", "HEALTH_CHECK_2"],
        )
        assert [len(done.output_ids) for done in checks] == [9, 9]
        return answers

    answers, rounds = served(send, chunked_prefill_size=64)
    # Of each answer the first token is the prefill's.
    assert sum(each["tokens"] for each in rounds) == sum(
        len(done.output_ids) - 1 for done in answers
    )
    assert sum(each["tokens"] for each in rounds) > 3000
