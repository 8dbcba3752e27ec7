"""How often the guard lets depth change."""

import random

import pytest

from sglang_dynspec import Config, Plan
from sglang_dynspec.account.counters import HELD_SWITCH_RATE
from sglang_dynspec.guard.switch_rate import SwitchRate
from tests.core.scripted import Scripted, plans


def most_in_a_window(passed, width=1000):
    return max(sum(start <= each < start + width for each in passed) for start in passed)


def passed(limit, rounds, sizes=lambda _: 32, wants=lambda _: True):
    rate = SwitchRate(limit)
    rate.start(sizes(0))
    return [n for n in range(1, rounds) if wants(n) and rate.allows(n, sizes(n))]


class TestSteadyLoad:
    @pytest.mark.parametrize("limit", [1, 2, 5, 10, 100])
    def test_no_window_of_1000_rounds_sees_more(self, limit):
        rounds = passed(limit, 20_000)
        assert most_in_a_window(rounds) <= limit
        # Nor is it kept from what it may do.
        assert len(rounds) >= 20_000 / 1000 * limit * 0.4

    def test_nor_under_noise(self):
        draw = random.Random(1)
        sizes = [draw.choice((20, 24, 28, 31, 35)) for _ in range(20_000)]
        wants = [draw.random() < 0.1 for _ in range(20_000)]
        rounds = passed(10, 20_000, sizes.__getitem__, wants.__getitem__)
        assert most_in_a_window(rounds) <= 10

    def test_four_may_follow_one_another(self):
        assert passed(10, 100) == [1, 2, 3, 4]

    def test_1000_is_no_limit(self):
        assert len(passed(1000, 5000)) == 4999


class TestChangeOfLoad:
    def test_it_is_followed_when_noise_has_used_up_the_rest(self):
        rate = SwitchRate(10)
        rate.start(2)
        assert sum(rate.allows(n, 2) for n in range(1, 300)) == 5
        # Up a ramp through three depths, and down again.
        assert [rate.allows(300 + n, size) for n, size in enumerate((8, 32, 256, 16))] == [True] * 4

    def test_a_load_that_comes_and_goes_is_followed(self):
        sizes = [(4 if n // 100 % 2 else 64) for n in range(10_001)]
        changes = list(range(100, 10_001, 100))
        assert passed(10, 10_001, sizes.__getitem__, changes.__contains__) == changes

    def test_but_not_without_end(self):
        sizes = [(4 if n % 2 else 64) for n in range(20_000)]
        assert most_in_a_window(passed(10, 20_000, sizes.__getitem__)) <= 4 * 11

    @pytest.mark.parametrize(
        ("size", "moved"), [(3, False), (4, False), (5, True), (1, False), (0, False)]
    )
    def test_a_handful_of_requests_is_one_load(self, size, moved):
        rate = SwitchRate(10)
        rate.start(1)
        before = rate._tokens
        rate.allows(1, size)
        assert before - rate._tokens == (0.25 if moved else 1.0)

    @pytest.mark.parametrize(("size", "moved"), [(31, False), (32, True), (9, False), (8, True)])
    def test_a_factor_of_two_is_a_change(self, size, moved):
        rate = SwitchRate(10)
        rate.start(16)
        rate.allows(1, size)
        assert rate._tokens == (4.75 if moved else 4.0)

    def test_it_is_told_from_where_the_load_was_at_the_last_change(self):
        rate = SwitchRate(10)
        rate.start(16)
        rate.allows(1, 24)
        before = rate._tokens
        # Twice the 16 of the start, but not twice 24.
        rate.allows(1, 32)
        assert before - rate._tokens == 1.0


def test_a_change_that_nobody_may_hold_takes_a_token_where_there_is_one():
    rate = SwitchRate(10)
    left = []
    for _ in range(6):
        rate.take(0, 8)
        left.append(rate._tokens)
    assert left == [4.0, 3.0, 2.0, 1.0, 0.0, 0.0]


def test_rounds_that_jump_back_give_nothing():
    rate = SwitchRate(10)
    rate.start(8)
    for n in (100, 50, 40, 30):
        rate.allows(n, 8)
    assert rate._tokens == 1.0
    assert not rate.allows(10, 8)


class TestGuard:
    def flapping(self, cycle, **fields):
        run = cycle(
            Scripted(*(Plan(depth=3 * (n // 8 % 2)) for n in range(2001))),
            config=Config(watchdog=False, **fields),
        )
        for _ in range(2000):
            run(8)
        return run.rounds.counters

    def test_a_policy_that_flaps_is_held(self, cycle):
        counters = self.flapping(cycle)
        assert counters.switches == 15
        assert counters.guard_holds[HELD_SWITCH_RATE] > 900

    def test_unless_it_may(self, cycle):
        assert self.flapping(cycle, switches_per_1000=1000).switches == 249

    def test_the_first_depth_is_free(self, cycle):
        run = cycle(Scripted(Plan(depth=3)), config=Config(switches_per_1000=1))
        assert run(8).depth == 3
        assert run.rounds._guard._switch_rate._tokens == 2.0

    def test_coming_back_from_exact_sampling_is_free(self, cycle):
        run = cycle(
            Scripted(Plan(depth=3)), config=Config(switches_per_1000=1, min_dwell=0, watchdog=False)
        )
        depths = [run(8, plain_requests=index % 2).depth for index in range(40)]
        assert depths == [3, 0] * 20
        assert run.rounds.counters.guard_holds[HELD_SWITCH_RATE] == 0

    def test_also_after_its_dwell(self, cycle):
        run = cycle(
            Scripted(Plan(depth=3)), config=Config(switches_per_1000=1, min_dwell=3, watchdog=False)
        )
        depths = [run(8, plain_requests=int(index % 6 == 5)).depth for index in range(60)]
        assert depths == [3] * 5 + [0, 0, 0, 3, 3, 3] * 9 + [0]
        assert run.rounds.counters.guard_holds[HELD_SWITCH_RATE] == 0

    def spent(self, cycle, *then):
        """Serve five rounds at 8 requests that use up the burst and leave depth 3 in force."""
        run = cycle(
            Scripted(*plans(3, 0, 3, 0, 3), *then), config=Config(min_dwell=0, watchdog=False)
        )
        assert [run(8).depth for _ in range(5)] == [3, 0, 3, 0, 3]
        return run

    def test_a_load_that_grew_while_depth_stayed_has_changed(self, cycle):
        run = self.spent(cycle, *plans(3, 3, 3, 0))
        assert [run(size).depth for size in (16, 32, 64, 64)] == [3, 3, 3, 0]

    def test_what_was_only_probed_was_not_chosen(self, cycle):
        run = self.spent(cycle, Plan(depth=1, probe=True), Plan(depth=1))
        assert [run(8).depth for _ in range(2)] == [1, 3]
        assert run.rounds.counters.guard_holds[HELD_SWITCH_RATE] == 1
