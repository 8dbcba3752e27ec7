"""Requests in service, and what disturbs them, by value."""

import numpy as np
import pytest

from sglang_dynspec.simulator import Kind
from sglang_dynspec.simulator.service import Habit, Requests
from sglang_dynspec.simulator.service.noise import Noise, Staleness, Stalls
from sglang_dynspec.simulator.service.population import Population
from sglang_dynspec.simulator.service.requests import Drawn
from tests.core.serving import requests, world

STAGED = Requests(
    kinds=(
        Habit(share=0.25, positions=(1.0,), stages=((0, 0.0), (4, 1.0), (6, 0.5))),
        Habit(share=0.75, positions=(0.8, 0.5), stages=((0, 0.5),)),
    ),
)


def population(described=None, most=8, deepest=3):
    return Population(
        described or requests(), deepest=deepest, most=most, rng=np.random.default_rng(0)
    )


class TestRequests:
    def test_survival_has_a_row_for_each_stage_of_each_kind(self):
        assert STAGED.survival(3) == pytest.approx(
            np.array(
                [
                    [0.0, 0.0, 0.0],
                    [1.0, 1.0, 1.0],
                    [0.5, 0.25, 0.125],
                    *[[0.4, 0.1, 0.025]] * 3,
                ]
            )
        )

    def test_the_mean_output_is_that_of_what_is_drawn(self):
        described = requests(output=(24, 122, 384), spread=0.6)
        drawn = Drawn(described, np.random.default_rng(0))
        outputs = [drawn.take()[2] for _ in range(40_000)]
        assert np.median(outputs) == pytest.approx(122, rel=0.02)
        assert (min(outputs), max(outputs)) == (24, 384)
        assert described.mean_output() == pytest.approx(np.mean(outputs), rel=0.01)
        assert requests().mean_output() == 8.0

    def test_kinds_and_prompts_are_drawn_by_their_shares(self):
        drawn = Drawn(STAGED, np.random.default_rng(0))
        kinds, prompts, _ = np.array([drawn.take() for _ in range(20_000)]).T
        assert kinds.mean() == pytest.approx(0.75, abs=0.01)
        assert (prompts.min(), prompts.max()) == (48, 208)
        assert prompts.mean() == pytest.approx(STAGED.mean_prompt, rel=0.01)


class TestPopulation:
    def test_a_request_goes_through_its_stages(self):
        running = population(STAGED)
        running.admit([(0, 10, 20), (1, 10, 20)], 0.0)
        rows = []
        for _ in range(7):
            running.look()
            rows.append(running.rows.tolist())
            running.deliver(1, 0.0)
        # It has its first token from its prefill: tokens 1 to 3, 4 and 5, and from 6 on.
        assert rows == [[0, 3]] * 3 + [[1, 3]] * 2 + [[2, 3]] * 2

    def test_drafts_are_right_as_often_as_they_should_be(self):
        described = requests(kinds=(Kind(positions=(0.8, 0.5)),), output=(9999, 9999, 9999))
        running = population(described, most=200)
        running.admit([(0, 1, 9999)] * 200, 0.0)
        counts = np.zeros(4)
        for _ in range(200):
            running.look()
            deep = running.right_drafts(3, 0.5)
            assert (running.right_drafts(1, 0.5) == np.minimum(deep, 1)).all()
            counts += np.bincount(deep, minlength=4)
        assert counts / counts.sum() == pytest.approx([0.6, 0.3, 0.075, 0.025], abs=0.009)

    def test_no_request_gets_more_than_it_wants(self):
        running = population()
        running.admit([(0, 10, 4), (0, 20, 8)], 1.0)
        assert running.lengths.tolist() == [11, 21]
        running.look()
        assert running.deliver(np.array([4, 2]), 2.5) == 3 + 2
        assert running.lengths.tolist() == [23]
        assert running.finished == [(1.0, 2.5, 4)]
        assert running.deliver(9, 3.0) == 5
        assert running.size == 0
        assert running.finished[1] == (1.0, 3.0, 8)

    def test_one_that_wants_its_first_token_alone_never_runs(self):
        running = population()
        running.admit([(0, 10, 1), (0, 10, 2)], 0.0)
        assert running.size == 1


class TestNoise:
    def test_noise_has_a_deviation_and_outliers(self):
        noise = Noise(0.05, 0.02, np.random.default_rng(0))
        drawn = np.array([noise.factor() for _ in range(40_000)])
        assert (drawn > 1.7).mean() == pytest.approx(0.02, abs=0.003)
        assert np.log(drawn[drawn < 1.7]).std() == pytest.approx(0.05, rel=0.03)

    def test_each_kernel_is_compiled_once_at_half_to_twice_the_time(self):
        stalls, again = Stalls(0.2, "a world"), Stalls(0.2, "a world")
        first = [stalls.first(depth, size, upkeep=False) for depth in (0, 1) for size in range(9)]
        assert all(0.1 <= seconds <= 0.4 for seconds in first)
        assert len(set(first)) == 18
        assert stalls.first(1, 3, upkeep=False) == 0.0
        assert stalls.first(1, 3, upkeep=True) > 0.0
        assert again.first(0, 0, upkeep=False) == first[0]
        assert Stalls(0.0, "a world").first(0, 0, upkeep=False) == 0.0

    def test_drafts_grow_stale_without_upkeep_and_fresh_as_they_run(self):
        stale = Staleness(world(upkeep_window=0, stale=0.2, freshening=10.0))
        for _ in range(16):
            stale.note(0)
        # Two thirds of the way from 1 to 0.2.
        assert stale.level == pytest.approx(1 - 0.8 * (1 - np.exp(-1)))
        for _ in range(10):
            stale.note(3)
        assert stale.level == pytest.approx(1 - 0.8 * (1 - np.exp(-1)) * np.exp(-1))
        before = 1.0 - stale.level
        stale.admit(3, 1)
        assert 1.0 - stale.level == pytest.approx(before / 4)

    def test_with_upkeep_they_do_not(self):
        stale = Staleness(world(upkeep_window=4))
        stale.note(0)
        assert stale.level == 1.0
