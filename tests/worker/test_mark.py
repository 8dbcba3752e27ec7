"""What the bridge observes of a batch about to be launched, and what it writes on it."""

import logging
from types import SimpleNamespace

import pytest

from tests.worker.stubs import batch_of, request, result_of, sampling_of


class TestMark:
    def test_what_is_observed(self, bridge, scheduler, policy):
        bridge.mark(scheduler, batch_of(request(10), request(32)))
        seen = policy.observation
        assert (seen.batch_size, seen.padded_batch_size) == (2, 2)
        assert (seen.seq_len_sum, seen.seq_len_max) == (42, 32)
        assert (seen.running, seen.waiting, seen.kv_free) == (3, 1, 0.25)
        assert (seen.depths, seen.depth, seen.depth_age, seen.round) == ((0, 1, 3), 0, 0, 0)
        assert (seen.plain_requests, seen.upkeep_window) == (0, 4)

    @pytest.mark.parametrize(("count", "padded"), [(1, 2), (2, 2), (3, 4), (4, 4)], ids=str)
    def test_it_is_padded_to_the_next_graph(self, bridge, scheduler, policy, count, padded):
        bridge._worker.graph_sizes = (2, 4)
        bridge.mark(scheduler, batch_of(*[request()] * count))
        assert policy.observation.padded_batch_size == padded

    def test_above_the_largest_graph_it_is_not_padded(self, bridge, scheduler, policy):
        bridge._worker.graph_sizes = (1, 2)
        bridge.mark(scheduler, batch_of(*[request()] * 3))
        assert policy.observation.padded_batch_size == 3

    def test_requests_that_need_plain_rounds_are_counted(self, bridge, scheduler, policy):
        policy.depth = 3
        batch = batch_of(request(), request(min_p=0.1), sampling=sampling_of(min_p=True))
        bridge.mark(scheduler, batch)
        assert batch.dynspec_mark.observation.plain_requests == 1
        assert bridge.planned_depth(batch) == 0
        assert bridge.rounds.counters.exact_sampling_rounds == 1

    def test_a_window_that_changes_is_seen(self, bridge, scheduler, policy, upkeep):
        upkeep.window = 1
        bridge.mark(scheduler, batch_of(request()))
        assert policy.observation.upkeep_window == 1

    def test_a_prefill_is_not_marked(self, bridge, scheduler):
        batch = batch_of(request(), decode=False)
        bridge.mark(scheduler, batch)
        assert not hasattr(batch, "dynspec_mark")
        assert bridge.rounds.round == 0

    def test_a_batch_that_cannot_be_observed_is_plain(self, bridge, scheduler, policy, caplog):
        policy.depth = 3
        for _ in range(2):
            batch = batch_of(SimpleNamespace())
            bridge.mark(scheduler, batch)
            assert bridge.planned_depth(batch) == 0
        assert bridge.rounds.counters.mark_faults == 2
        (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert line.name == "sglang_dynspec"
        assert line.getMessage().startswith("batch_not_observed note=")
        assert "AttributeError" in caplog.text

    def test_a_batch_without_a_mark_is_plain(self, bridge, policy):
        policy.depth = 3
        assert bridge.planned_depth(batch_of(request())) == 0
        assert bridge.rounds.counters.unmarked == 1

    def test_the_mark_goes_with_the_result(self, bridge, scheduler, policy):
        policy.depth = 3
        batch = batch_of(request())
        bridge.mark(scheduler, batch)
        assert bridge.planned_depth(batch) == 3
        assert result_of(bridge, batch, depth=3).dynspec_mark.plan.depth == 3
        # The batch lives on: without a new mark its next round is plain.
        assert bridge.planned_depth(batch) == 0
        assert not hasattr(result_of(bridge, batch), "dynspec_mark")
