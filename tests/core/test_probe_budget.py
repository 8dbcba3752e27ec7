"""What probes may cost."""

import math

import pytest

from sglang_dynspec import Config, Outcome, Plan
from sglang_dynspec.account.counters import HELD_EXPLORATION
from sglang_dynspec.guard.probe_budget import ProbeBudget
from sglang_dynspec.guard.rates import Rates, bucket_of
from tests.core.scripted import Scripted

SIZE = 10


def ran(index, depth, period, tokens=SIZE, **fields):
    return Outcome(
        round=index,
        depth=depth,
        planned=depth,
        batch_size=SIZE,
        accepted=(),
        tokens=tokens,
        period=period,
        **fields,
    )


class TestAccount:
    @pytest.fixture
    def account(self):
        """An account of 1 %, after 100 plain rounds of 10 tokens in 10 ms."""
        rates = Rates((0, 1, 3))
        rates.upkeep_window = 4
        account = ProbeBudget(0.01, rates)
        for index in range(100):
            rates.add(ran(index, 0, 0.01))
            account.earn(ran(index, 0, 0.01))
        return account

    def test_rounds_earn_a_share_on_top_of_an_advance(self, account):
        assert account._balance == pytest.approx(4 * 10 + 100 * 10 * 0.01)

    def test_a_probe_pays_what_the_depth_in_force_would_have_delivered(self, account):
        account.pay(ran(100, 3, 0.018, tokens=12), 0, usable=True)
        assert account.lost == pytest.approx(6.0)

    def test_one_that_wins_is_paid(self, account):
        account.pay(ran(100, 3, 0.015, tokens=25), 0, usable=True)
        assert account.lost == pytest.approx(-10.0)

    @pytest.mark.parametrize("period", [None, 0.0, math.nan])
    def test_a_quarter_is_assumed_where_nothing_can_be_measured(self, account, period):
        account.pay(ran(100, 3, period, tokens=12), 0, usable=False)
        assert account.lost == 3.0

    def test_so_it_is_where_the_depth_in_force_has_not_been_measured(self, account):
        account.pay(ran(100, 3, 0.018, tokens=12), 1, usable=True)
        assert account.lost == 3.0

    @pytest.mark.parametrize("depth", [0, 1], ids=["measured", "not_measured"])
    def test_the_round_after_one_costs_nothing_then(self, account, depth):
        account.pay(ran(100, depth, 0.018, tokens=12), depth, usable=bool(depth))
        assert account.lost == 0.0

    def test_a_slow_round_is_paid_for(self, account):
        account.pay(ran(100, 3, 0.039, tokens=12), 0, usable=True)
        assert account.lost == pytest.approx(39 - 12)

    def test_a_stall_costs_no_more_than_four_rounds(self, account):
        account.earn(ran(99, 3, 0.01, tokens=0))
        account.pay(ran(100, 3, 60.0, tokens=12), 0, usable=True)
        assert account.lost == pytest.approx(4 * 10 - 12)

    @pytest.mark.parametrize("period", [0.041, 60.0])
    @pytest.mark.parametrize("depth", [3, 0], ids=["first", "first_back"])
    def test_kernels_that_are_compiled_cost_a_quarter(self, account, depth, period):
        account.pay(ran(100, depth, period, tokens=12), 0, usable=True)
        assert account.lost == pytest.approx(3)

    def test_an_empty_account_fills_again(self, account):
        account.pay(ran(100, 3, 0.04, tokens=0), 0, usable=True)
        account.pay(ran(101, 3, 0.04, tokens=0), 0, usable=True)
        assert account._balance == pytest.approx(50 - 2 * 40)
        assert account.is_empty
        for index in range(290):
            account.earn(ran(index, 0, 0.01))
        assert account.is_empty
        for index in range(20):
            account.earn(ran(index, 0, 0.01))
        assert not account.is_empty

    def test_no_more_than_ten_rounds_are_saved(self, account):
        for index in range(10_000):
            account.earn(ran(index, 0, 0.01))
        assert account._balance == pytest.approx(100.0)
        # Of those that run now.
        for index in range(10_000):
            account.earn(ran(index, 0, 0.01, tokens=25))
        assert account._balance == pytest.approx(250.0)


@pytest.mark.parametrize(("share", "empty"), [(0.0, True), (1.0, False), (0.005, False)])
def test_before_anything_is_known(share, empty):
    assert ProbeBudget(share, Rates((0, 3))).is_empty is empty


class TestGuard:
    """A policy that probes twice in ten rounds, where a probe loses half of what plain delivers."""

    def serve(self, cycle, rounds=10_000, *, budget=0.005, upkeep=0.0):
        script = [Plan(depth=0)] * 8 + [Plan(depth=3, probe=True)] * 2
        policy = Scripted(*(script * (rounds // 10)), Plan(depth=0))
        run = cycle(policy, config=Config(exploration_budget=budget, watchdog=False))
        tokens = 0
        for _ in range(rounds):
            # Depth 3 takes twice as long and delivers no more; all drafts are wrong.
            tokens += SIZE
            run(SIZE, period=lambda depth: 0.02 if depth else 0.01)
        return run.rounds, tokens

    def test_over_the_budget_they_are_held(self, cycle):
        rounds, tokens = self.serve(cycle)
        lost = rounds.counters.probe_rounds * SIZE
        assert rounds.summary()["probe_tokens_lost"] == pytest.approx(lost)
        # What it may spend, and the advance of four rounds and one probe of two.
        assert lost <= 0.005 * tokens + 6 * SIZE
        assert lost >= 0.0045 * tokens
        held = rounds.counters.guard_holds[HELD_EXPLORATION]
        assert held == 2000 - rounds.counters.probe_rounds

    def test_none_without_a_budget(self, cycle):
        assert self.serve(cycle, 200, budget=0.0)[0].counters.probe_rounds == 0

    def test_all_with_the_whole_of_it(self, cycle):
        assert self.serve(cycle, 200, budget=1.0)[0].counters.probe_rounds == 40

    def test_the_round_after_belongs_to_the_probe(self, cycle):
        script = [*[Plan(depth=3)] * 50, Plan(depth=0, probe=True), Plan(depth=3)]
        run = cycle(Scripted(*script), config=Config(watchdog=False))
        for _ in range(52):
            index = run.rounds.round
            run(SIZE, period=lambda depth, i=index: 0.02 if i == 51 else 0.01, upkeep=index == 51)
        # The probe itself lost nothing, the upkeep pass after it a round of ten tokens.
        assert run.rounds.summary()["probe_tokens_lost"] == pytest.approx(10.0)
        # Nor is the pass held against the depth that paid for it.
        rates = run.rounds._guard._evidence._rates
        cell = rates.cell(3, SIZE)
        assert cell.tokens / cell.seconds == pytest.approx(1000.0)
        # An eighth of its 10 ms is in the mean that plain is charged with.
        assert rates._passes[bucket_of(SIZE)] == pytest.approx(0.010 / 8)

    def test_a_switch_to_the_probed_depth_is_no_cost(self, cycle):
        script = [*[Plan(depth=0)] * 50, Plan(depth=3, probe=True), Plan(depth=3)]
        run = cycle(Scripted(*script), config=Config(watchdog=False))
        for _ in range(60):
            run(SIZE, period=lambda depth: 0.02 if depth else 0.01)
        assert run.rounds.depth == 3
        assert run.rounds.summary()["probe_tokens_lost"] == pytest.approx(10.0)
