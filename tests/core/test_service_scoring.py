"""What an oracle knows of a server in service, and what a run is worth beside it."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from sglang_dynspec import Plan
from sglang_dynspec.replay.worlds import find_world
from sglang_dynspec.simulator.service import (
    Load,
    Modes,
    Slow,
    run_fixed,
    run_world,
    score_run,
)
from sglang_dynspec.simulator.service.load import held
from sglang_dynspec.simulator.service.oracle import interruptions, truth_of
from sglang_dynspec.simulator.service.pace import Pace
from sglang_dynspec.simulator.service.scoring import longest
from tests.core.by_hand import SERVER, UNBOUND, Scripted
from tests.core.serving import requests, world

ENDLESS = requests(output=(99_999, 99_999, 99_999))


def scripted(script, **fields):
    return run_world(Scripted(script), world(**fields), **UNBOUND)


class TestTruth:
    def test_a_round_that_delivers_more_is_interrupted_less_often_per_token(self):
        truth = truth_of(run_fixed(1, world()))
        # 4, 6 and 7.5 tokens; a request leaves after 7 of them and brings 10 x 0.01 s.
        expected = []
        for tokens, seconds in ((4.0, 1.0), (6.0, 1.25), (7.5, 1.75)):
            came = tokens / 7
            expected.append(tokens / (seconds + 0.5 * (1 - exp(-came)) + 0.1 * came))
        assert truth.rates[:, 3] == pytest.approx(expected)
        assert truth.ran_tokens[3] == pytest.approx(6.0)
        assert truth.ran_seconds[3] == pytest.approx(6.0 / expected[1])

    def test_what_leaves_and_is_not_followed_interrupts_nothing(self):
        spent = interruptions(
            world(), np.array([4.0, 4.0]), np.ones(2), np.zeros(2), np.array([True, False])
        )
        assert spent == pytest.approx([0.5 * (1 - exp(-4 / 7)) + 0.4 / 7, 0.0])

    def test_what_comes_by_the_clock_interrupts_by_the_second(self):
        described = world(load=Load(rate=held(0.2)))
        spent = interruptions(
            described, np.array([4.0, 400.0]), np.array([1.0, 2.0]), np.zeros(2), np.zeros(2) > 0
        )
        prefills = [(1 - exp(-0.2 * t)) * exp(0.2 * 0.6) for t in (1.0, 2.0)]
        expected = [
            (n * 0.5 + 0.2 * t * 0.1) / (1 - 0.02)
            for n, t in zip(prefills, (1.0, 2.0), strict=True)
        ]
        assert spent == pytest.approx(expected)

    def test_plain_pays_its_share_of_upkeep_and_a_run_its_own_passes(self):
        server = replace(SERVER, extend=0.4, upkeep_window=4)
        truth = truth_of(run_fixed(0, world(server=server, requests=ENDLESS)))
        assert truth.seconds[0] == pytest.approx(1.1, abs=1e-3)
        assert truth.ran_seconds[:4] == pytest.approx([1.0, 1.0, 1.0, 1.4], abs=1e-3)

    def test_modes_count_by_their_mean(self):
        pace = Pace(modes=Modes(factor=3.0, share=0.25, depths=(0,)))
        truth = truth_of(run_fixed(0, world(pace=pace, requests=ENDLESS)))
        assert truth.ran_seconds == pytest.approx(1.5, abs=1e-3)
        assert truth.seconds[1] == pytest.approx(1.25, abs=1e-3)

    @pytest.mark.parametrize("name", ["churn-96-simulated", "poisson-30", "moving-jitter"])
    def test_fixed_depths_really_do_what_the_formula_says(self, name):
        described = replace(find_world(name), noise=0.0, outliers=0.0, seconds=16.0)
        for depth in (0, 1, 3):
            run = run_fixed(depth, described)
            truth, log = truth_of(run), run.engine.log
            real = sum(log.tokens) / (log.ends[-1] - log.begins[0])
            assert truth.ran_tokens.sum() / truth.ran_seconds.sum() == pytest.approx(real, rel=0.04)


class TestShare:
    def test_always_the_best_depth_is_the_oracle(self):
        assert score_run(run_fixed(1, world(requests=ENDLESS))).share == pytest.approx(1.0)

    def test_by_hand(self):
        made = score_run(scripted(lambda index: index % 2, requests=ENDLESS, seconds=90.0))
        # 4 tokens in 1 s and 6 in 1.25 s, where the oracle has 4.8 a second.
        assert made.share == pytest.approx(10 / (4.8 * 2.25), abs=1e-3)
        assert made.oracle_tokens_per_second == pytest.approx(4.8, abs=0.01)
        assert made.switches_per_1000 == pytest.approx(1000, rel=0.02)
        assert made.depth_shares == {"0": 0.5, "1": 0.5, "3": 0.0}
        assert made.oracle_shares == {"0": 0.0, "1": 1.0, "3": 0.0}

    def test_what_a_re_entry_costs_is_the_runs_own(self):
        script = (lambda index: index % 2,)
        free, dear = (
            score_run(scripted(*script, requests=ENDLESS, reentry=seconds)).share
            for seconds in (0.0, 0.25)
        )
        assert dear / free == pytest.approx(2.25 / 2.5, abs=0.01)

    def test_stale_drafts_are_the_runs_own_as_well(self):
        fields = {"requests": ENDLESS, "upkeep_window": 0, "stale": 0.0, "freshening": 1e9}
        made = scripted(lambda index: int(index > 60), seconds=120.0, **fields)
        truth = truth_of(made)
        assert truth.rows[-1] == 1
        assert truth.tokens[1, -1] == pytest.approx(6.0)
        assert truth.ran_tokens[-1] == pytest.approx(4.0, abs=0.1)

    def test_compilation_counts_for_nothing_but_the_clock(self):
        warm, cold = (
            score_run(run_fixed(0, world(requests=ENDLESS, cold=seconds))) for seconds in (0, 30)
        )
        assert cold.share == pytest.approx(warm.share)
        assert cold.stalled > 15.0
        assert cold.tokens_per_second < 0.9 * warm.tokens_per_second

    def test_the_first_rounds_are_given_apart(self):
        made = score_run(scripted(lambda index: int(index < 512), requests=ENDLESS, seconds=1e3))
        assert made.first_share == pytest.approx(1.0)
        assert made.share < 0.95


class TestLatency:
    def test_tokens_gaps_and_waits_by_hand(self):
        made = score_run(run_fixed(0, world(seconds=80.0)))
        assert made.token_p50 == made.token_p99 == pytest.approx(1.0)
        # A gap in seven holds a prefill of 0.9 s.
        assert made.gap_p99 == pytest.approx(1.9)
        assert made.wait_p99 == pytest.approx(0.9)
        assert made.untimed == pytest.approx(11 / 71)
        assert made.tokens_per_second == pytest.approx(4 * 8 / 7.9, rel=0.02)

    def test_nothing_finished_has_no_latency(self):
        made = score_run(run_fixed(0, world(requests=ENDLESS)))
        assert made.token_p50 is None
        assert made.as_json()["token_p99"] is None


class TestStuck:
    def test_longest(self):
        assert longest(np.array([1, 1, 0, 1, 1, 1, 0, 1]) > 0) == 3
        assert longest(np.zeros(3) > 0) == 0

    def test_probes_do_not_end_a_stretch(self):
        def script(index):
            if index >= 300:
                return 1
            return Plan(depth=1, probe=True) if index % 20 == 19 else 3

        made = score_run(scripted(script, requests=ENDLESS, seconds=1000.0))
        assert made.stuck == 300
        assert made.probe_rounds == pytest.approx(15 / made.rounds, abs=1e-6)


class TestFollowing:
    PACE = Pace(slow=(Slow(begin=100.0, end=200.0, factor=4.0, depths=(1,)),))

    def follow(self, script):
        made = scripted(script, requests=ENDLESS, pace=self.PACE, seconds=400.0)
        (found,) = score_run(made).followings
        begins = np.array(made.engine.log.begins)
        return found, np.searchsorted(begins, [100.0, 200.0]).tolist()

    def test_left_and_taken_back(self):
        # Rounds of depth 1: 80 take 100 s, 10 slow ones 50 s; then 50 plain ones.
        found, (start, end) = self.follow(lambda index: 0 if 90 <= index < 150 else 1)
        assert (start, end) == (80, 140)
        assert (found.depth, found.was, found.left, found.due, found.back) == (
            1,
            True,
            10,
            True,
            10,
        )
        assert found.plain_moved is None

    def test_never(self):
        found, _ = self.follow(lambda _: 1)
        assert (found.was, found.left, found.back) == (True, None, 0)
        found, _ = self.follow(lambda index: int(index < 90))
        assert (found.left, found.back) == (10, None)
        found, _ = self.follow(lambda _: 3)
        assert (found.was, found.left, found.due, found.back) == (False, None, True, None)

    def test_what_is_predicted_of_plain(self):
        def script(index):
            return Plan(depth=1, predicted=(4.0 if index < 85 else 3.0, 4.8, 4.0))

        found, _ = self.follow(script)
        assert found.plain_moved == pytest.approx(0.25)
