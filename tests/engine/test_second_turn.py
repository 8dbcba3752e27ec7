"""What finished requests leave in the radix cache has whole draft rows."""

from tests.engine import workloads
from tests.engine.test_warm import EVERY_ROUND, OFF, WINDOW, scramble


def test_a_second_turn_is_as_good_over_the_radix_cache(engine):
    turns = {}
    for window in (EVERY_ROUND, WINDOW, OFF):
        engine.flush_cache()
        scramble(engine)
        engine.flush_cache()
        engine.set_upkeep(window)
        engine.play(mode="fixed", depth=0)
        load = workloads.workload("turn", [40, 25, 60, 33], [37, 42, 30, 35], seed=15)
        first = load.send(engine.inner)
        engine.play(mode="fixed", depth=3)
        second = engine.generate(
            input_ids=[
                [*ids, *done.output_ids, 77]
                for ids, done in zip(load.input_ids, first, strict=True)
            ],
            sampling_params={"temperature": 0, "max_new_tokens": 60, "ignore_eos": True},
        )
        turns[window] = [done.meta_info["spec_correct_drafts_histogram"] for done in second]
        cached = [done.meta_info["cached_tokens"] for done in second]
        whole = [
            len(ids) + len(done.output_ids) for ids, done in zip(load.input_ids, first, strict=True)
        ]
        # The first turn comes from the cache, but for a token or two at its end.
        assert all(length - 2 <= hit <= length for hit, length in zip(cached, whole, strict=True))
    assert turns[WINDOW] == turns[EVERY_ROUND]
    if engine.arguments["speculative_algorithm"] == "STANDALONE":
        assert turns[OFF] != turns[EVERY_ROUND]
