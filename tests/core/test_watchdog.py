"""Acceptance that collapses, and comes back."""

import random

import pytest

from sglang_dynspec import Config, Outcome, Plan, Policy
from sglang_dynspec.account.counters import HELD_WATCHDOG
from sglang_dynspec.guard import WATCHDOG_RETRY
from sglang_dynspec.guard.watchdog import Watchdog
from sglang_dynspec.policies import Always
from tests.core.scripted import Scripted

pytest_plugins = ["sglang_dynspec.testing"]


def drafts(index, *accepted, depth=3, **fields):
    return Outcome(
        round=index,
        depth=depth,
        planned=depth,
        batch_size=len(accepted),
        accepted=accepted,
        tokens=len(accepted) + sum(accepted),
        **fields,
    )


def collapsed(at=0):
    watchdog = Watchdog()
    for index in range(at, at + 20):
        watchdog.see(drafts(index, 0, 0))
    assert watchdog.has_tripped
    return watchdog


class TestTrip:
    def test_twenty_rounds_without_any_right_draft(self):
        watchdog = Watchdog()
        for index in range(19):
            watchdog.see(drafts(index, 0, 0))
        assert not watchdog.has_tripped
        watchdog.see(drafts(19, 0, 0))
        assert watchdog.has_tripped

    def test_a_right_one_now_and_then_keeps_it_quiet(self):
        watchdog = Watchdog()
        for index in range(10_000):
            watchdog.see(drafts(index, 3 if index % 9 == 0 else 0))
            assert not watchdog.has_tripped

    @pytest.mark.parametrize(("share", "trips"), [(0.02, True), (0.05, True), (0.25, False)])
    def test_it_is_the_share_of_requests_that_counts(self, share, trips):
        watchdog = Watchdog()
        right = int(100 * share)
        for index in range(100):
            watchdog.see(drafts(index, *([3] * right), *([0] * (100 - right))))
        assert watchdog.has_tripped == trips

    @pytest.mark.parametrize(("rate", "most"), [(0.15, 8), (0.25, 8), (0.4, 3), (0.6, 0)])
    def test_false_alarms_of_a_single_request_are_rare(self, rate, most):
        draw, watchdog, trips = random.Random(1), Watchdog(), 0
        for index in range(50_000):
            watchdog.see(drafts(index, int(draw.random() < rate)))
            if watchdog.has_tripped:
                trips, watchdog.has_tripped = trips + 1, False
        assert trips <= most

    def test_it_takes_longer_where_acceptance_was_low_all_along(self):
        watchdog = Watchdog()
        for index in range(2000):
            watchdog.see(drafts(index, *([1] * 15), *([0] * 85)))
        count = 0
        while not watchdog.has_tripped:
            watchdog.see(drafts(2000 + count, 0))
            count += 1
        # 0.4 / 0.15 times 20, and a little for what the count itself takes from the 0.15.
        assert 53 <= count <= 80

    def test_but_not_for_ever(self):
        watchdog = Watchdog()
        watchdog._usual = 0.0
        for index in range(100):
            assert not watchdog.has_tripped
            watchdog.see(drafts(index, 0))
        assert watchdog.has_tripped

    def test_plain_and_empty_rounds_say_nothing(self):
        watchdog = Watchdog()
        for index in range(100):
            watchdog.see(drafts(index, depth=0, guesses=4, right_guesses=0))
            watchdog.see(drafts(index))
        assert not watchdog.has_tripped


class TestRetry:
    def retries(self, watchdog, start, end, size=64):
        return [n for n in range(start, end) if watchdog.allows(n, size)]

    def test_waits_double_up_to_a_limit(self):
        assert self.retries(collapsed(), 20, 800) == [51, 115, 243, 403, 563, 723]

    def test_small_batches_have_two_rounds(self):
        assert self.retries(collapsed(), 20, 200, size=3) == [51, 52, 115, 116]

    def test_a_right_draft_ends_it(self):
        watchdog = collapsed()
        watchdog.see(drafts(51, *([0] * 7), 1))
        assert not watchdog.has_tripped

    def test_less_than_a_ninth_does_not(self):
        watchdog = collapsed()
        watchdog.see(drafts(51, *([0] * 9), 1))
        assert watchdog.has_tripped

    @pytest.mark.parametrize(("at", "wait"), [(71, 64), (563, 64), (564, 32)])
    def test_collapsing_again_soon_goes_on_waiting(self, at, wait):
        watchdog = collapsed()
        assert self.retries(watchdog, 20, 60) == [51]
        watchdog.see(drafts(51, 1))
        for index in range(at - 19, at + 1):
            watchdog.see(drafts(index, 0))
        assert self.retries(watchdog, at + 1, at + 80) == [at + wait]

    def test_guesses_bring_one_forward(self):
        watchdog = collapsed()
        watchdog.see(drafts(24, depth=0, guesses=4, right_guesses=1))
        assert self.retries(watchdog, 25, 60) == [25, 51]

    def test_wrong_guesses_do_not(self):
        watchdog = collapsed()
        watchdog.see(drafts(24, depth=0, guesses=10, right_guesses=1))
        assert self.retries(watchdog, 25, 60) == [51]

    def test_guesses_that_mislead_are_believed_once_a_wait(self):
        watchdog, retries = collapsed(), []
        for index in range(20, 300):
            watchdog.see(drafts(index, depth=0, guesses=4, right_guesses=4))
            if watchdog.allows(index, 64):
                retries.append(index)
        assert retries == [20, 51, 52, 115, 116, 243, 244]


class Collapsing:
    """Chance of each draft by round: fine, then nothing, then fine again."""

    def __init__(self, start, end, rate=0.8):
        self.start, self.end, self.rate = start, end, rate

    def __call__(self, index):
        return 0.0 if self.start <= index < self.end else self.rate


class TestServing:
    def serve(self, cycle, policy, acceptance, rounds, *, size=1, seed=0, **fields):
        draw = random.Random(seed)
        run = cycle(policy, config=Config(**fields))
        plans = []
        for index in range(rounds):
            rate = acceptance(index)
            accepted = tuple(
                next((n for n in range(3) if draw.random() >= rate), 3) for _ in range(size)
            )
            plans.append(
                run(size, accepted=lambda depth, a=accepted: tuple(min(x, depth) for x in a))
            )
        return plans, run.rounds

    @pytest.mark.parametrize("size", [1, 4, 64])
    @pytest.mark.parametrize("seed", range(5))
    def test_off_within_32_rounds_and_on_within_512(self, cycle, size, seed):
        acceptance = Collapsing(500, 4000, rate=0.7)
        plans, rounds = self.serve(cycle, Always(), acceptance, 5000, size=size, seed=seed)
        depths = [plan.depth for plan in plans]
        assert set(depths[40:500]) == {3}
        assert 0 in depths[500:532]
        gone = depths[532:4000]
        assert gone.count(1) == rounds.counters.probe_rounds - depths[4000:].count(1)
        assert gone.count(1) <= (2 if size < 4 else 1) * 24
        assert 3 not in gone
        assert 3 in depths[4000:4512]
        assert depths[4512:].count(3) > 400
        assert rounds.counters.watchdog_trips >= 1

    def test_a_retry_is_a_probe_of_the_shallowest_depth(self, cycle):
        plans, rounds = self.serve(cycle, Always(), Collapsing(0, 10**9), 500, size=8)
        retries = [plan for plan in plans if plan.reason == WATCHDOG_RETRY]
        assert retries
        assert all(plan.probe and plan.depth == 1 for plan in retries)
        assert rounds.counters.switches == 1
        assert rounds.counters.probes == len(retries)
        assert rounds.counters.guard_holds[HELD_WATCHDOG] == 500 - 20 - len(retries)
        assert rounds.summary()["watchdog_tripped"] is True

    def test_it_can_be_turned_off(self, cycle):
        plans, rounds = self.serve(cycle, Always(), Collapsing(0, 10**9), 100, watchdog=False)
        assert {plan.depth for plan in plans} == {3}
        assert rounds.counters.watchdog_trips == 0

    def test_a_forced_depth_is_obeyed(self, cycle):
        run = cycle(Always())
        run.rounds.force(3)
        assert {run(8).depth for _ in range(100)} == {3}
        assert run.rounds.counters.watchdog_trips == 1

    def test_a_retry_waits_until_plain_is_in_force(self, cycle):
        run = cycle(Always())
        for _ in range(40):
            run(8)
        run.rounds.force(1)
        for _ in range(40):
            run(8)
        run.rounds.force(None)
        # The wait is over by now, but depth 1 is in force: not a probe, so no retry.
        assert (run(8).reason, run(8).reason) == (HELD_WATCHDOG, WATCHDOG_RETRY)

    def test_one_line_says_so(self, cycle, caplog):
        acceptance = Collapsing(100, 1000)
        self.serve(
            cycle, Always(), lambda n: acceptance(n % 2500), 7500, size=8, slow_policy_us=1e9
        )
        events = [message.split()[0] for message in caplog.messages]
        assert events == ["acceptance_collapsed", "acceptance_recovered"]
        assert caplog.messages[0].startswith("acceptance_collapsed round=119 depth=3 ")

    def test_dwell_and_the_switch_limit_do_not_delay_it(self, cycle):
        _, rounds = self.serve(
            cycle, Always(), Collapsing(0, 10**9), 25, size=8, min_dwell=100, switches_per_1000=1
        )
        assert rounds.depth == 0

    def test_a_policy_that_gives_up_itself_is_left_alone(self, cycle):
        plans, rounds = self.serve(
            cycle, Scripted(Plan(depth=0, reason="mine")), Collapsing(0, 10**9), 100
        )
        assert {plan.reason for plan in plans} == {"mine"}
        assert rounds.counters.watchdog_trips == 0

    def test_also_after_it_has_tripped(self, cycle):
        mine = Plan(depth=0, reason="mine")
        policy = Scripted(*[Plan(depth=3)] * 20, mine)
        plans, rounds = self.serve(cycle, policy, Collapsing(0, 10**9), 200, size=8)
        assert rounds.counters.watchdog_trips == 1
        assert plans[20:] == [mine] * 180
        assert rounds.counters.guard_holds[HELD_WATCHDOG] == 0

    def test_a_failing_policy_is_protected_too(self, cycle):
        class Stubborn(Policy):
            def decide(self, observation):
                if observation.round:
                    raise ValueError
                return Plan(depth=3)

        plans, _ = self.serve(cycle, Stubborn(), Collapsing(0, 10**9), 40, error_budget=10**6)
        assert [plan.depth for plan in plans[:20]] == [3] * 20
        assert plans[-1].depth == 0
