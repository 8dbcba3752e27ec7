"""
The bridge with a scheduler and requests of stubs: the odd orders that a scheduler may bring.

What a real scheduler brings is in tests/engine/test_outcomes.py.
"""

import logging
import time
from types import SimpleNamespace

import pytest
import torch

from sglang_dynspec import Config, Plan
from sglang_dynspec.policies import Never
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec_hooks.bridge.bridge import Bridge

SLOTS = (4, 7, 9, 2)

PARAMETERS = SimpleNamespace(
    frequency_penalty=0.0,
    presence_penalty=0.0,
    repetition_penalty=1.0,
    min_new_tokens=0,
    min_p=0.0,
)


class Request(SimpleNamespace):
    def finished(self):
        return self.is_finished


class Upkeep:
    """Remembers what it is told."""

    def __init__(self):
        self.window = 4
        self.forgotten = []
        self.released = []

    def release(self, scheduler, batch, rows):
        self.released.append((scheduler, list(rows)))

    def forget(self, slots):
        self.forgotten += slots.tolist()

    def summary(self):
        return {"window": self.window}


class Planned(Never):
    """Plans one depth, and keeps what it is told."""

    def __init__(self):
        self.depth = 0
        self.learned = []

    def decide(self, observation):
        self.observation = observation
        return Plan(depth=self.depth, reason="test")

    def learn(self, outcome):
        self.learned.append(outcome)


class Penalizer:
    is_required = True


@pytest.fixture
def upkeep():
    return Upkeep()


@pytest.fixture
def policy():
    return Planned()


@pytest.fixture
def bridge(upkeep, policy):
    config = Config(min_dwell=0, switches_per_1000=1000).resolve(3)
    worker = SimpleNamespace(upkeep=upkeep, graph_sizes=())
    return Bridge(config=config, rounds=Rounds(policy=policy, config=config), worker=worker)


@pytest.fixture
def scheduler():
    return SimpleNamespace(
        token_to_kv_pool_allocator=SimpleNamespace(available_size=lambda: 25),
        max_total_num_tokens=100,
        running_batch=SimpleNamespace(reqs=[1, 2, 3]),
        waiting_queue=[1],
        _pause_intervals=[],
    )


def request(length=10, *, rid="r", output=1, finished=False, retracted=False, **parameters):
    return Request(
        rid=rid,
        output_ids=[1] * output,
        is_finished=finished,
        is_retracted=retracted,
        finished_len=None,
        kv=SimpleNamespace(kv_committed_len=length),
        sampling_params=SimpleNamespace(**vars(PARAMETERS) | parameters),
        custom_logit_processor=None,
    )


def batch_of(*requests, iteration=1, decode=True, sampling=None):
    return SimpleNamespace(
        reqs=list(requests),
        req_pool_indices_cpu=torch.tensor(SLOTS[: len(requests)]),
        forward_mode=SimpleNamespace(is_decode=lambda: decode),
        forward_iter=iteration,
        after_idle_gap=False,
        sampling_info=sampling,
    )


def result_of(bridge, batch, *, depth=0, accepted=None, **fields):
    """Launch a batch that was marked, and return its result."""
    result = SimpleNamespace(
        copy_done=None,
        speculative_num_draft_tokens=depth + 1,
        num_correct_drafts_per_req_cpu=accepted or [0] * len(batch.reqs),
        **fields,
    )
    assert bridge.planned_depth(batch) in (0, depth)
    bridge.stamp(batch, result)
    return result


def deliver(*tokens, finish=(), cut=()):
    """Process a result: give each request its tokens; some finish, a stop cuts some short."""

    def process(batch):
        for row, count in enumerate(tokens):
            req = batch.reqs[row]
            req.output_ids += [1] * count
            if row in finish:
                req.is_finished = True
                req.finished_len = len(req.output_ids) - dict(cut).get(row, 0)

    return process


def settle(bridge, batch, result, process=lambda batch: None):
    bridge.settle(batch, result, lambda: process(batch))


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
        sampling = SimpleNamespace(
            penalizer_orchestrator=Penalizer(),
            need_min_p_sampling=False,
            has_custom_logit_processor=False,
        )
        policy.depth = 3
        batch = batch_of(request(), request(min_p=0.1), sampling=sampling)
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


class TestOutcome:
    def play(self, bridge, scheduler, batch, process, **ran):
        bridge.mark(scheduler, batch)
        settle(bridge, batch, result_of(bridge, batch, **ran), process)
        return bridge.rounds._policy.learned

    def test_of_a_speculative_round(self, bridge, scheduler, policy):
        policy.depth = 3
        bridge._worker.graph_sizes = (4,)
        batch = batch_of(request(10), request(20))
        (outcome,) = self.play(
            bridge, scheduler, batch, deliver(1, 4), depth=3, accepted=[0, 3], dynspec_upkeep=True
        )
        assert (outcome.round, outcome.depth, outcome.planned) == (0, 3, 3)
        assert (outcome.batch_size, outcome.padded_batch_size) == (2, 4)
        assert (outcome.accepted, outcome.tokens, outcome.period) == ((0, 3), 5, None)
        assert (outcome.seq_len_sum, outcome.seq_lens) == (30, (10, 20))
        assert (outcome.upkeep, outcome.guesses, outcome.right_guesses) == (True, 0, 0)

    def test_of_a_plain_round(self, bridge, scheduler):
        batch = batch_of(request(10), request(20))
        guesses = (2, torch.tensor(1))
        (outcome,) = self.play(bridge, scheduler, batch, deliver(1, 1), dynspec_guesses=guesses)
        assert (outcome.depth, outcome.accepted, outcome.tokens) == (0, (), 2)
        assert (outcome.upkeep, outcome.guesses, outcome.right_guesses) == (False, 2, 1)

    def test_a_stop_cuts_what_is_delivered(self, bridge, scheduler, policy):
        policy.depth = 3
        batch = batch_of(request(output=5), request(output=5))
        process = deliver(4, 2, finish=(0,), cut={0: 3}.items())
        (outcome,) = self.play(bridge, scheduler, batch, process, depth=3, accepted=[3, 1])
        # Of the first one's four tokens its client gets one.
        assert (outcome.tokens, outcome.accepted) == (1 + 2, (3, 1))

    def test_one_that_ran_on_after_its_end_is_not_counted(self, bridge, scheduler, policy):
        policy.depth = 3
        gone, live, retracted = (
            request(10, finished=True),
            request(20),
            request(30, retracted=True),
        )
        process = deliver(0, 2, 0)
        batch = batch_of(gone, live, retracted)
        (outcome,) = self.play(bridge, scheduler, batch, process, depth=3, accepted=[3, 1, 2])
        assert (outcome.batch_size, outcome.accepted, outcome.tokens) == (1, (1,), 2)
        assert outcome.seq_lens == (20,)

    def test_a_health_check_is_not_counted(self, bridge, scheduler, policy):
        policy.depth = 3
        batch = batch_of(request(10, rid="HEALTH_CHECK_1"), request(20))
        (outcome,) = self.play(bridge, scheduler, batch, deliver(2, 4), depth=3, accepted=[1, 3])
        assert (outcome.batch_size, outcome.accepted, outcome.tokens) == (1, (3,), 4)
        assert outcome.seq_lens == (20,)

    @pytest.mark.parametrize("fields", [{"rid": "HEALTH_CHECK_1"}, {"finished": True}])
    def test_a_round_of_nobody_has_none(self, bridge, scheduler, fields):
        assert self.play(bridge, scheduler, batch_of(request(**fields)), deliver(1)) == []
        assert bridge.rounds.round == 1

    def test_under_overlap_each_round_has_its_own(self, bridge, scheduler, policy):
        one = request(10)
        first, second = batch_of(one), batch_of(one, iteration=2)
        bridge.mark(scheduler, first)
        result = result_of(bridge, first)
        policy.depth = 1
        bridge.mark(scheduler, second)
        later = result_of(bridge, second, depth=1, accepted=[1])
        settle(bridge, first, result, deliver(1))
        settle(bridge, second, later, deliver(2))
        assert [(each.round, each.depth, each.tokens) for each in policy.learned] == [
            (0, 0, 1),
            (1, 1, 2),
        ]
        assert bridge.rounds.counters.mismatches == 0

    def test_a_result_of_nobody_is_processed(self, bridge, policy):
        one = request()
        settle(bridge, batch_of(one), SimpleNamespace(copy_done=None), deliver(1))
        assert (len(one.output_ids), policy.learned) == (2, [])


class TestUpkeep:
    def settled(self, bridge, scheduler, batch, **ends):
        bridge.mark(scheduler, batch)
        settle(bridge, batch, result_of(bridge, batch), deliver(*[1] * len(batch.reqs), **ends))

    def test_a_request_that_goes_on_keeps_what_it_owes(self, bridge, scheduler, upkeep):
        self.settled(bridge, scheduler, batch_of(request(), request()))
        assert (upkeep.released, upkeep.forgotten) == ([], [])

    def test_a_request_that_finishes_is_released(self, bridge, scheduler, upkeep):
        self.settled(bridge, scheduler, batch_of(request(), request()), finish=[1])
        assert (upkeep.released, upkeep.forgotten) == ([(scheduler, [1])], [])

    def test_a_request_that_was_gone_before_is_forgotten(self, bridge, scheduler, upkeep):
        # It finished at prefill, or was retracted, when this round was launched already.
        gone = request(finished=True), request(), request(retracted=True)
        self.settled(bridge, scheduler, batch_of(*gone))
        assert (upkeep.released, upkeep.forgotten) == ([], [4, 9])

    def test_both_at_once(self, bridge, scheduler, upkeep):
        batch = batch_of(request(finished=True), request(), request())
        self.settled(bridge, scheduler, batch, finish=[2])
        assert (upkeep.released, upkeep.forgotten) == ([(scheduler, [2])], [4])


class TestPeriods:
    @pytest.fixture
    def periods(self, bridge, scheduler, policy):
        """Settle rounds, given their iteration, and return the periods; `pause` comes between."""

        def run(*steps):
            for step in steps:
                if step == "pause":
                    now = time.monotonic()
                    scheduler._pause_intervals.append((now, now))
                    continue
                batch = batch_of(request(), iteration=step)
                bridge.mark(scheduler, batch)
                settle(bridge, batch, result_of(bridge, batch), deliver(1))
            return [outcome.period for outcome in policy.learned]

        return run

    def test_a_period_is_the_time_between_two_rounds(self, periods):
        first, second, third = periods(1, 2, 4)
        assert first is None
        assert 0 <= second < 10
        assert third is None  # a prefill came between

    def test_a_pause_is_in_no_period(self, periods):
        before, across, after = periods(1, "pause", 2, 3)
        assert before is None
        assert across is None
        assert 0 <= after < 10
