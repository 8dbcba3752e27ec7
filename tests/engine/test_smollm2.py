"""A real model answers in English, and with its head it says the same whatever the depths."""

import dataclasses

import pytest

from sglang_dynspec.testing import assert_lossless
from sglang_dynspec_cpu.engine import CpuEngine
from tests.engine import real_pair
from tests.engine.conftest import start


@pytest.mark.slow
def test_a_real_model_answers_three_prompts_plainly_and_at_random_depths(models, tmp_path):
    pair = real_pair.pair_with(models, real_pair.some_head(tmp_path / "head"))
    prompts = real_pair.prompts(pair.target, 1, 24)
    three = dataclasses.replace(
        prompts.load, input_ids=prompts.load.input_ids[:3], sampling=prompts.load.sampling[:3]
    )
    with CpuEngine(model=pair) as plain:
        expected = [list(done.output_ids) for done in three.send(plain)]
    capital, function, days = (prompts.text(ids) for ids in expected)
    assert "The capital of France is Paris" in capital
    assert "```python\ndef " in function
    assert "Monday" in days
    engine = start(tmp_path, models, model=pair, algorithm="EAGLE3")
    try:
        engine.play(mode="random", depths=[0, 1, 3])
        assert_lossless(expected, engine.answer(three))
        state = engine.state()
        assert state["switches"] >= 5
        assert {depth for depth, at in state["by_depth"].items() if at["rounds"]} == {"0", "1", "3"}
        engine.flush_cache()
        engine.check()
    finally:
        engine.shutdown()
