"""Probes: excursions that leave the depth in force."""

import pytest

from sglang_dynspec import Config, Plan, hookimpl
from sglang_dynspec.account.counters import HELD_DWELL
from sglang_dynspec.loading.plugins import plugin_manager
from tests.core.scripted import Scripted, plans

STAY = Plan(depth=0)
PROBE = Plan(depth=3, probe=True)


@pytest.fixture
def run(cycle):
    def build(*script, **fields):
        return cycle(Scripted(*script), config=Config(**fields))

    return build


class TestRounds:
    def test_the_depth_in_force_stays_and_its_age_counts_on(self, run):
        ask = run(STAY, PROBE, PROBE, STAY)
        states = []
        for _ in range(4):
            depth = ask().depth
            states.append((depth, ask.rounds.depth, ask.rounds.depth_age))
        assert states == [(0, 0, 1), (3, 0, 2), (3, 0, 3), (0, 0, 4)]

    def test_they_are_no_switches(self, run):
        ask = run(STAY, PROBE, PROBE, STAY, STAY, PROBE, STAY)
        for _ in range(7):
            ask()
        counters = ask.rounds.counters
        assert (counters.switches, counters.probes, counters.probe_rounds) == (0, 2, 3)
        assert counters.rounds_by_depth == {0: 4, 1: 0, 3: 3}

    def test_two_depths_in_a_row_are_one_excursion(self, run):
        ask = run(STAY, PROBE, Plan(depth=1, probe=True), STAY)
        for _ in range(4):
            ask()
        assert (ask.rounds.counters.probes, ask.rounds.counters.probe_rounds) == (1, 2)

    def test_a_probe_of_the_depth_in_force_is_none(self, run):
        ask = run(Plan(depth=0, probe=True))
        ask()
        ask()
        assert (ask.rounds.counters.probes, ask.rounds.depth_age) == (0, 2)

    def test_switching_to_what_was_probed_is_a_switch(self, run):
        ask = run(*plans(0, 0, 0, 0), PROBE, PROBE, Plan(depth=3))
        for _ in range(7):
            ask()
        assert (ask.rounds.depth, ask.rounds.depth_age) == (3, 1)
        assert ask.rounds.counters.switches == 1

    def test_nobody_is_told_of_another_depth(self, cycle):
        class Watch:
            changes = ()

            @hookimpl
            def dynspec_depth_changed(self, old, new):
                self.changes += ((old, new),)

        watch, hooks = Watch(), plugin_manager()
        hooks.register(watch)
        ask = cycle(Scripted(STAY, PROBE, STAY, Plan(depth=1)), hooks=hooks)
        for _ in range(6):
            ask()
        assert watch.changes == ((0, 1),)


class TestGuard:
    def test_neither_dwell_nor_dead_band_holds_them(self, run):
        ask = run(Plan(depth=1), Plan(depth=3, probe=True, gain=-1.0), Plan(depth=1))
        assert [ask().depth for _ in range(3)] == [1, 3, 1]
        assert sum(ask.rounds.counters.guard_holds.values()) == 0

    def test_a_third_in_a_row_wants_to_stay(self, run):
        ask = run(PROBE, min_dwell=0)
        assert [ask().probe for _ in range(3)] == [True, True, False]
        assert (ask.rounds.depth, ask.rounds.depth_age) == (3, 1)
        assert ask.rounds.counters.switches == 1

    def test_and_is_held_like_any_other_change(self, run):
        ask = run(Plan(depth=1), PROBE, min_dwell=6)
        assert [ask().depth for _ in range(8)] == [1, 3, 3, 1, 3, 3, 3, 3]
        assert ask.rounds.counters.guard_holds[HELD_DWELL] == 1
        assert (ask.rounds.depth, ask.rounds.counters.switches) == (3, 1)

    def test_a_round_between_ends_the_excursion(self, run):
        ask = run(STAY, PROBE, PROBE, STAY, PROBE, PROBE, STAY)
        assert [ask().depth for _ in range(7)] == [0, 3, 3, 0, 3, 3, 0]
        assert ask.rounds.counters.probes == 2

    def test_a_failing_policy_falls_back_to_the_depth_in_force(self, run):
        ask = run(Plan(depth=1), PROBE, ValueError(), Plan(depth=1))
        assert [ask().depth for _ in range(3)] == [1, 3, 1]


def test_rounds_without_a_period_are_counted(run):
    ask = run(STAY)
    ask()
    ask(period=0.01)
    assert ask.rounds.counters.untimed_rounds == 1
    assert ask.rounds.summary()["untimed_rounds"] == 1
