"""
What the bridge makes of a result, in the odd orders that a scheduler may bring.

What a real scheduler brings is in tests/engine/test_outcomes.py.
"""

import time
from types import SimpleNamespace

import pytest
import torch

from sglang_dynspec_hooks.bridge.periods import Periods
from tests.worker.stubs import batch_of, deliver, request, result_of, settle


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
        """Five prefills before the round's launch, and one while it runs."""
        upkeep = bridge._worker.upkeep
        upkeep.prefills = 5
        bridge.mark(scheduler, batch)
        result = result_of(bridge, batch)
        upkeep.prefills = 6
        settle(bridge, batch, result, deliver(*[1] * len(batch.reqs), **ends))

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
        assert (upkeep.released, upkeep.forgotten) == ([], [(4, 5), (9, 5)])

    def test_both_at_once(self, bridge, scheduler, upkeep):
        batch = batch_of(request(finished=True), request(), request())
        self.settled(bridge, scheduler, batch, finish=[2])
        assert (upkeep.released, upkeep.forgotten) == ([(scheduler, [2])], [(4, 5)])


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

    def test_a_round_that_waited_for_the_host_is_charged_with_its_own_launch(
        self, bridge, scheduler, policy
    ):
        """Rounds launch in 2, 6 and 3 s, each before the one in front of it is settled."""
        now = 0.0
        bridge._periods = Periods(lambda: now)
        arrived = SimpleNamespace(query=lambda: True)
        waiting = []
        for iteration, seconds in enumerate((2.0, 6.0, 3.0)):
            batch = batch_of(request(), iteration=iteration)
            bridge.mark(scheduler, batch)
            now += seconds
            waiting.append((batch, result_of(bridge, batch, copy_done=arrived)))
            if iteration:
                settle(bridge, *waiting[iteration - 1])
        assert [outcome.period for outcome in policy.learned] == [None, 3.0 + 6.0 - 3.0]

    def test_a_pause_is_in_no_period(self, periods):
        before, across, after = periods(1, "pause", 2, 3)
        assert before is None
        assert across is None
        assert 0 <= after < 10
