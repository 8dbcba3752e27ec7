"""Depths that are measured below the plain rate."""

import random

import pytest

from sglang_dynspec import Config, Plan, Policy
from sglang_dynspec.account.counters import HELD_NEVER_WORSE
from sglang_dynspec.guard.quarantine import Quarantine
from sglang_dynspec.guard.rates import Rates
from sglang_dynspec.policies import Always
from tests.core.scripted import Scripted
from tests.core.test_rates import ran


class Bench:
    """A quarantine, and rounds at depth 3 that plain, at 1600 tokens/s, is compared with."""

    def __init__(self):
        self.rates = Rates((0, 3))
        self.quarantine = Quarantine(self.rates, (0, 3))
        self.now = 0

    def run(self, rate, rounds, depth=3):
        """Run rounds; give the index of the first that begins a quarantine."""
        for _ in range(rounds):
            outcome = ran(self.now, depth, 0.02, tokens=round(0.02 * rate))
            self.rates.add(outcome)
            self.now += 1
            if depth and self.quarantine.judge(outcome):
                return self.now - 1
        return None

    def begin(self, rate=1000):
        self.run(1600, 10, depth=0)
        assert self.run(rate, 300) is not None

    @property
    def left(self):
        return sum(rounds for _, _, rounds in self.quarantine.confined(self.now - 1))

    def release(self):
        self.quarantine._wards[3][8].until = 0


class TestVerdict:
    """What each round counts for, where depth 3 is known exactly and plain does 1600 tokens/s."""

    @pytest.fixture
    def judged(self):
        rates = Rates((0, 3))
        quarantine = Quarantine(rates, (0, 3))

        def judge(rate, rounds, *, size=16, plain_size=16):
            """Judge so many rounds of a rate; count the quarantines that they begin."""
            begun = 0
            for _ in range(rounds):
                for depth, tokens, requests in ((0, 1600.0, plain_size), (3, rate, size)):
                    cell = rates.cell(depth, 16)
                    cell.last, cell.rounds, cell.requests = judge.now, 16.0, 16.0 * requests
                    cell.tokens, cell.seconds = tokens, 1.0
                begun += quarantine.judge(ran(judge.now, 3, size=size))
                judge.now += 1
            return begun

        judge.now, judge.quarantine = 0, quarantine
        judge.ward = quarantine._wards[3][8]
        return judge

    @pytest.fixture
    def on_trial(self, judged):
        """The same, after a first quarantine."""
        assert judged(1000, 64) == 1
        judged.ward.until = 0
        return judged

    def test_64_rounds_that_lose(self, judged):
        assert judged(1567, 63) == 0
        assert judged(1567, 1) == 1

    def test_one_that_wins_makes_up_for_one(self, judged):
        judged(1000, 40)
        judged(1569, 20)
        assert judged(1000, 43) == 0
        assert judged(1000, 1) == 1

    def test_but_for_none_that_is_yet_to_come(self, judged):
        judged(2000, 100)
        assert judged(1000, 63) == 0
        assert judged(1000, 1) == 1

    def test_16_on_trial(self, on_trial):
        assert on_trial(1000, 15) == 0
        assert on_trial(1000, 1) == 1

    def test_64_in_a_row_that_win_are_a_cure(self, on_trial):
        on_trial(2000, 63)
        on_trial(1000, 1)
        on_trial(2000, 63)
        assert on_trial.ward.length == 512
        on_trial(2000, 1)
        assert on_trial.ward.length == 256

    def test_a_smaller_batch_is_compared_with_plain_at_its_size(self, judged):
        # Plain at 14 does 1600 x 14 / 19 = 1179 tokens/s at least.
        assert judged(1200, 100, size=14, plain_size=19) == 0
        assert judged(1100, 100, size=14, plain_size=19) == 1

    def test_what_is_no_candidate_is_not_judged(self, judged):
        assert judged.quarantine.judge(ran(0, 1)) is False

    def test_any_batch_size_has_a_verdict(self, judged):
        assert judged.quarantine.holds(3, 10**9, 0) is False


class TestQuarantine:
    """Plain delivers 1600 tokens/s; what depth 3 does is up to the test."""

    def judged(self, rate, *, rounds=100, plain_rounds=20, gap=0):
        rates = Rates((0, 3))
        quarantine = Quarantine(rates, (0, 3))
        for index in range(plain_rounds):
            rates.add(ran(index, 0, 0.01))
        verdicts = []
        for index in range(plain_rounds + gap, plain_rounds + gap + rounds):
            outcome = ran(index, 3, 0.02, tokens=round(0.02 * rate))
            rates.add(outcome)
            verdicts.append(quarantine.judge(outcome))
        return quarantine, verdicts

    def test_after_64_rounds_below(self):
        quarantine, verdicts = self.judged(1400)
        # The first 19, of which older ones count for less, make the mean.
        assert [index for index, verdict in enumerate(verdicts) if verdict] == [18 + 63]
        begun = 20 + verdicts.index(True)
        assert quarantine.holds(3, 16, begun + 1)
        assert quarantine.holds(3, 16, begun + 255)
        assert not quarantine.holds(3, 16, begun + 256)
        assert quarantine.confined(begun + 256) == []
        assert not quarantine.holds(3, 32, begun + 1)
        assert quarantine.confined(begun + 6) == [(3, (14, 19), 250)]

    @pytest.mark.parametrize("rate", [1600, 1575, 2400])
    def test_not_within_the_margin_or_above(self, rate):
        assert True not in self.judged(rate, rounds=400)[1]

    def test_not_without_a_plain_rate(self):
        assert True not in self.judged(100, plain_rounds=3)[1]

    def test_not_against_one_that_is_old(self):
        assert True not in self.judged(100, gap=600)[1]

    def test_each_is_twice_as_long_up_to_a_limit(self):
        bench, lengths = Bench(), []
        for _ in range(6):
            bench.begin()
            lengths.append(bench.left)
            # In quarantine nothing more is held against it.
            assert bench.run(1000, 10) is None
            bench.release()
        assert lengths == [256, 512, 1024, 2048, 2048, 2048]

    def test_64_rounds_that_pay_are_a_cure(self):
        bench = Bench()
        bench.begin()
        bench.release()
        assert bench.run(2000, 90) is None
        bench.begin(rate=100)
        assert bench.left == 256

    def test_probes_that_win_end_it(self):
        bench = Bench()
        bench.begin()
        bench.run(2000, 3)
        assert bench.left > 0
        bench.run(2000, 2)
        assert bench.left == 0

    def test_probes_that_do_not_win_leave_it(self):
        bench = Bench()
        bench.begin()
        bench.run(1620, 20)
        assert bench.left > 0

    def test_noise_around_the_margin_is_no_verdict(self):
        rates = Rates((0, 3))
        quarantine = Quarantine(rates, (0, 3))
        draw = random.Random(1)
        for index in range(20_000):
            # A few plain rounds now and then keep the comparison alive.
            depth = 0 if index % 100 < 2 else 3
            tokens = round(32 * draw.uniform(0.6, 1.4) * 1.03) if depth else 16
            outcome = ran(index, depth, 0.02 if depth else 0.01, tokens=tokens)
            rates.add(outcome)
            if depth:
                assert not quarantine.judge(outcome), index


class Stubborn(Policy):
    """Speculates, and looks at plain for two rounds in fifty."""

    uses_time = True

    def decide(self, observation):
        if observation.round % 50 >= 48:
            return Plan(depth=0, probe=True)
        return Plan(depth=3)


class TestGuard:
    def serve(self, cycle, policy, rounds, pays=lambda _: False, **fields):
        fields = {"watchdog": False, "exploration_budget": 1.0} | fields
        run = cycle(policy, config=Config(**fields))
        plans = []
        for _ in range(rounds):
            slow = 0.012 if pays(run.rounds.round) else 0.02
            plans.append(
                run(
                    16,
                    accepted=lambda _: (1,) * 8 + (0,) * 8,
                    period=lambda depth, slow=slow: slow if depth else 0.01,
                )
            )
        return plans, run.rounds

    def shares(self, plans, width=1000):
        depths = [plan.depth for plan in plans]
        return [
            depths[start : start + width].count(3) / width for start in range(0, len(depths), width)
        ]

    def test_what_does_not_pay_is_left(self, cycle):
        plans, rounds = self.serve(cycle, Stubborn(), 20_000)
        shares = self.shares(plans)
        # Longer each time: in the end 16 rounds and what makes a mean in 2048.
        assert shares[0] < 0.6
        assert max(shares[-8:]) < 0.06
        assert sum(shares[-8:]) / 8 < 0.02
        assert 5 <= rounds.counters.quarantines <= 15
        assert rounds.counters.switches <= 10 * 20
        assert rounds.counters.guard_holds[HELD_NEVER_WORSE] > 15_000

    @pytest.mark.parametrize(("window", "quarantined"), [(4, False), (0, True)])
    def test_plain_is_what_it_is_with_the_window_in_force(self, cycle, window, quarantined):
        """An upkeep pass in four plain rounds takes 5 %, which a server without it does not pay."""
        run = cycle(Stubborn(), config=Config(watchdog=False, exploration_budget=1.0))
        for index in range(2000):
            # Plain: 16 tokens in 10 ms, and 2 ms for a pass: 1524/s with passes, 1600/s without.
            # Depth 3: 24 tokens in 15.6 ms, 1538/s.
            run(
                16,
                accepted=lambda _: (1,) * 8 + (0,) * 8,
                period=lambda depth, n=index: 0.0156 if depth else 0.010 + 0.002 * (n % 2),
                upkeep=index % 50 == 49,
                upkeep_window=4 if index < 1000 else window,
            )
            if index == 999:
                assert run.rounds.counters.quarantines == 0
        assert (run.rounds.counters.quarantines > 0) is quarantined

    def test_what_pays_is_not(self, cycle):
        plans, rounds = self.serve(cycle, Stubborn(), 5000, pays=lambda _: True)
        assert min(self.shares(plans)) > 0.95
        assert rounds.counters.quarantines == 0

    def test_it_comes_back_when_it_pays_again(self, cycle):
        plans, rounds = self.serve(cycle, Stubborn(), 12_000, pays=lambda n: n >= 6000)
        assert self.shares(plans)[-3:] == [pytest.approx(0.96)] * 3
        assert rounds.summary()["quarantined"] == []

    def test_a_probe_that_wins_ends_it(self, cycle):
        class Curious(Stubborn):
            """The same, but with a look at 3 now and then while it is not let."""

            def decide(self, observation):
                if observation.depth == 0 and observation.round % 100 < 2:
                    return Plan(depth=3, probe=True)
                return super().decide(observation)

        plans, _ = self.serve(cycle, Curious(), 8000, pays=lambda n: n >= 4000)
        assert any(plan.probe and plan.depth == 3 for plan in plans[2000:4000])
        back = next(n for n in range(4000, 8000) if plans[n : n + 40].count(Plan(depth=3)) == 40)
        assert back < 4700

    def test_the_account_shows_it(self, cycle, caplog):
        _, rounds = self.serve(cycle, Stubborn(), 300, slow_policy_us=1e9)
        (entry,) = rounds.summary()["quarantined"]
        assert (entry["depth"], entry["batch_sizes"]) == (3, [14, 19])
        assert 0 < entry["rounds_left"] <= 256
        (message,) = caplog.messages
        assert message.startswith("depth_quarantined depth=3 batch_size=16 round=")

    def test_who_chose_a_depth_is_taken_at_his_word(self, cycle):
        class Chosen(Stubborn):
            uses_time = False

        assert self.serve(cycle, Chosen(), 2000)[1].counters.quarantines == 0
        assert self.serve(cycle, Chosen(), 2000, never_worse=True)[1].counters.quarantines > 0

    def test_it_can_be_turned_off(self, cycle):
        plans, rounds = self.serve(cycle, Stubborn(), 2000, never_worse=False)
        assert min(self.shares(plans)) > 0.95
        assert rounds.counters.quarantines == 0

    def test_without_plain_rounds_there_is_nothing_to_compare_with(self, cycle):
        class Timed(Always):
            uses_time = True

        _, rounds = self.serve(cycle, Timed(), 2000)
        assert rounds.counters.quarantines == 0

    def test_rounds_without_a_period_are_no_evidence(self, cycle):
        run = cycle(Stubborn(), config=Config(watchdog=False, exploration_budget=1.0))
        for _ in range(2000):
            run(16)
        assert run.rounds.counters.quarantines == 0

    def test_at_the_edge_of_a_bucket_it_does_not_flap(self, cycle):
        run = cycle(Stubborn(), config=Config(watchdog=False, exploration_budget=1.0))
        draw = random.Random(3)
        for _ in range(6000):
            size = draw.choice((18, 19, 20, 21))
            run(
                size,
                accepted=lambda _, size=size: (1,) * (size // 2) + (0,) * (size - size // 2),
                # Pays from 20 on.
                period=lambda depth, s=size: (0.012 if s >= 20 else 0.02) if depth else 0.01,
            )
        assert run.rounds.counters.quarantines > 0
        # Going plain is never held, and coming back waits for what that has taken.
        assert run.rounds.counters.switches <= 10 * 6


def test_a_held_plan_says_so(cycle):
    plans, _ = TestGuard().serve(cycle, Stubborn(), 300)
    assert Plan(depth=0, reason=HELD_NEVER_WORSE) in plans
    assert Scripted(Plan(depth=0)).uses_time is False
