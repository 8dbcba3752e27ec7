"""Synthetic servers, drafts and loads, by value."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from sglang_dynspec.simulator import SERVERS, DraftQuality, Kind, Rollouts, SyntheticServer
from sglang_dynspec.simulator.batch import SyntheticBatch
from sglang_dynspec.simulator.drafts import geometric
from sglang_dynspec.simulator.levels import level_one, phases, wave, wobble
from sglang_dynspec.simulator.load import bursts, on_off, ramp, stairs, steady, wandering
from sglang_dynspec.simulator.scenario import Scenario

PLAIN = SyntheticServer(
    name="by hand",
    weights=4.0,
    compute=1.0,
    sharpness=2.0,
    context=0.001,
    draft=0.5,
    draft_token=0.1,
    extend=1.0,
    extend_token=0.25,
    overhead=0.75,
    upkeep_window=4,
)


class TestServer:
    def test_a_plain_round_is_one_pass(self):
        # sqrt(4^2 + 3^2) and a thousand tokens of context.
        assert PLAIN.seconds(0, 3, 1000) == pytest.approx(5.0 + 1.0)

    def test_a_speculative_round_verifies_drafts_and_extends(self):
        # Two requests at depth 1 are four tokens: sqrt(32) + 1 x (0.5 + 0.2) + 1 + 1 + 0.75.
        assert PLAIN.seconds(1, 2, 0) == pytest.approx(32**0.5 + 0.7 + 2.0 + 0.75)

    def test_no_speculative_round_beats_the_host(self):
        server = SyntheticServer(name="slow host", weights=1, compute=0, draft=0, extend=0, floor=9)
        assert [server.seconds(depth, 1, 0) for depth in (0, 1, 3)] == [1.0, 9.0, 9.0]
        one = np.array([1]), np.array([0])
        assert [server.mean_seconds(depth, *one)[0] for depth in (0, 1)] == [1.0, 9.0]

    def test_upkeep_is_paid_once_a_window(self):
        # One pass over 2 x 4 tokens.
        assert PLAIN.upkeep_seconds(2) == pytest.approx(1.0 + 8 * 0.25)
        sizes, contexts = np.array([2, 3, 2]), np.array([0, 0, 1000])
        passes = [3.0 / 4, 4.0 / 4, 3.0 / 4]
        plain = [20**0.5, 5.0, 20**0.5 + 1.0]
        assert PLAIN.mean_seconds(0, sizes, contexts) == pytest.approx(np.add(plain, passes))
        deep = [PLAIN.seconds(3, 2, 0), PLAIN.seconds(3, 3, 0), PLAIN.seconds(3, 2, 1000)]
        assert PLAIN.mean_seconds(3, sizes, contexts) == pytest.approx(deep)

    def test_a_mixture_reads_more_experts_for_more_tokens(self):
        mixture = SyntheticServer(
            name="mixture", weights=1, experts=8, routed=0.5, compute=0, draft=0, extend=0
        )
        assert [mixture.seconds(0, n, 0) for n in (1, 2, 3)] == pytest.approx([5.0, 7.0, 8.0])

    def test_every_token_crosses_the_link(self):
        linked = SyntheticServer(name="l", weights=1, compute=0, link=0.5, draft=0, extend=0)
        assert linked.seconds(3, 2, 0) == pytest.approx(1 + 0.5 * 8)

    @pytest.mark.parametrize(
        ("batch", "padded"), [(1, 1), (3, 4), (9, 12), (17, 24), (256, 256), (300, 300)]
    )
    def test_padding(self, batch, padded):
        assert PLAIN.padded(batch) == padded


#: Measured tokens per second on one H200; the mean accepted length of the speculative ones.
H200 = {
    (0, 1.0): (211, 1605, 5931, 10579, 17148, 22945),
    (1, 1.6): (276, 2180, 8877, 14443, 19835, 23342),
    (3, 1.6): (279, 2082, 7514, 10862, 12608, 14069),
    (3, 2.6): (453, 3384, 11813, 17216, 20439, 21262),
}


@pytest.mark.parametrize(("depth", "length"), H200)
def test_the_h200_preset_is_within_6_percent_of_what_was_measured(depth, length):
    server, sizes = SERVERS["h200-8b"], (1, 8, 32, 64, 128, 256)
    rates = [length * size / server.seconds(depth, size, 256 * size) for size in sizes]
    assert rates == pytest.approx(H200[depth, length], rel=0.06)
    close = [
        abs(rate / measured - 1) < 0.05
        for rate, measured in zip(rates, H200[depth, length], strict=True)
    ]
    # One cell is further off; the preset says which.
    assert close == [True, True, (depth, length) != (1, 1.6), True, True, True]


def test_the_pcie_preset_is_within_8_percent_of_what_was_measured():
    server = SERVERS["pcie-1t"]
    plain = [size / server.seconds(0, size, 0) for size in (1, 10, 70, 250)]
    assert plain == pytest.approx([92.6, 457.2, 784.2, 772.1], rel=0.08)
    # Two tokens a round; 48 requests at most.
    deep = [2.0 * size / server.seconds(3, size, 0) for size in (1, 10, 48)]
    assert deep == pytest.approx([77.5, 239.6, 340.9], rel=0.08)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 64, 256])
def test_plain_wins_everywhere_on_pcie(size):
    server = SERVERS["pcie-1t"]
    survival = np.concatenate([[1.0], np.cumprod(np.full(3, 0.544))])
    at = np.array([size]), np.array([0])
    rates = [survival[: k + 1].sum() / server.mean_seconds(k, *at)[0] for k in (0, 1, 3)]
    assert max(rates[1:]) < 0.97 * rates[0]


class TestDrafts:
    def test_survival_is_the_product_of_what_went_before(self):
        kinds = (Kind(share=0.5, positions=(0.5, 0.4)), Kind(share=0.5, positions=(1.0,)))
        quality = DraftQuality(kinds=kinds, long_context=10, long_level=0.5)
        expected = [[0.5, 0.2, 0.08], [1, 1, 1], [0.25, 0.05, 0.01], [0.5, 0.25, 0.125]]
        np.testing.assert_allclose(quality.survival(3), expected)

    def test_geometric_shrinks_from_position_to_position(self):
        np.testing.assert_allclose(geometric(0.5, 0.5).survival(3)[0], [0.5, 0.125, 0.015625])


class TestLoads:
    def test_steady(self):
        assert steady(3, 4).tolist() == [3, 3, 3, 3]

    def test_ramp(self):
        assert ramp(0, 4, at=2, over=4, rounds=8).tolist() == [0, 0, 1, 2, 3, 4, 4, 4]
        assert ramp(4, 0, at=2, over=0, rounds=5).tolist() == [4, 4, 0, 0, 0]

    def test_on_off(self):
        assert on_off(1, 9, period=2, rounds=7).tolist() == [1, 1, 9, 9, 1, 1, 9]

    def test_stairs_end_at_the_last_size(self):
        assert stairs((1, 8, 4), 2, rounds=8).tolist() == [1, 1, 8, 8, 4, 4, 4, 4]
        assert stairs((1, 8, 4), 2, rounds=3).tolist() == [1, 1, 8]

    def test_bursts_have_a_length_and_come_at_random(self):
        path = bursts(2, 9, every=50, length=5, rounds=400_000, rng=np.random.default_rng(0))
        assert set(path) == {2, 9}
        edges = np.flatnonzero(np.diff(path, prepend=2, append=2))
        starts, ends = edges[::2], edges[1::2]
        assert set(ends - starts) <= {5, 10, 15}  # of which some meet
        gaps = starts[1:] - ends[:-1]
        assert gaps.min() == 1
        assert gaps.mean() == pytest.approx(50, rel=0.02)

    def test_wandering_stays_within_and_moves_by_one(self):
        path = wandering(4, 12, rounds=5000, rng=np.random.default_rng(0))
        assert (path.min(), path.max()) == (4, 12)
        assert set(np.diff(path)) == {-1, 0, 1}
        assert wandering(4, 4, rounds=3, rng=np.random.default_rng(0)).tolist() == [4, 4, 4]

    def test_levels(self):
        assert level_one(2).tolist() == [1.0, 1.0]
        assert phases((0, 1.0), (2, 0.5))(4).tolist() == [1.0, 1.0, 0.5, 0.5]
        turns = wave(0.2, 1.0, period=64)(64)
        assert turns[[0, 15, 16, 32, 48]] == pytest.approx([1.0, 1.0, 0.6, 0.2, 0.6])

    def test_wobble_has_a_mean_a_deviation_and_a_memory(self):
        made = wobble(0.5, 0.1, memory=50, seed=0)
        path = made(100_000)
        assert (path.mean(), path.std()) == pytest.approx((0.5, 0.1), abs=0.01)
        assert np.corrcoef(path[50:], path[:-50])[0, 1] == pytest.approx(np.exp(-1), abs=0.05)
        # A shorter run is the beginning of a longer one.
        assert (made(10) == path[:10]).all()
        assert wobble(0.5, 9.0, memory=1, seed=0)(100).max() == 1.0

    def test_rollouts_have_a_median_and_a_tail(self):
        lengths = Rollouts(batch_size=4000, tokens=300, spread=0.8).lengths(
            np.random.default_rng(0)
        )
        assert np.median(lengths) == pytest.approx(300, rel=0.05)
        # The 95th percentile of a lognormal lies at exp(1.645 x 0.8) medians.
        assert np.quantile(lengths, 0.95) == pytest.approx(300 * 3.73, rel=0.1)


def scenario(**fields):
    defaults = {
        "name": "made up",
        "summary": "",
        "server": PLAIN,
        "drafts": geometric(0.5),
        "load": lambda rounds, rng: steady(4, rounds),
    }
    return Scenario(**defaults | fields)


def batch(described, path):
    first, second = np.random.SeedSequence(1).spawn(2)
    return SyntheticBatch(described, path, (first, second))


class TestBatch:
    def test_a_draft_is_right_as_often_as_it_should_be(self):
        drawn = batch(scenario(drafts=geometric(0.6)), steady(200, 500))
        counts = np.zeros(4)
        for index in range(500):
            drawn.begin(index)
            counts += np.bincount(drawn.right_drafts(index, 3, 1.0), minlength=4)
        expected = [0.4, 0.6 * 0.4, 0.36 * 0.4, 0.216]
        np.testing.assert_allclose(counts / counts.sum(), expected, atol=0.005)

    def test_what_a_shallow_round_accepts_a_deep_one_does_too(self):
        drawn = batch(scenario(), steady(64, 300))
        for index in range(300):
            drawn.begin(index)
            deep = drawn.right_drafts(index, 3, 0.9)
            assert (drawn.right_drafts(index, 1, 0.9) == np.minimum(deep, 1)).all()

    def test_requests_that_are_alike_are_right_and_wrong_together(self):
        drawn = batch(scenario(drafts=replace(geometric(0.6), alike=True)), steady(64, 4000))
        counts = np.zeros(3)
        for index in range(4000):
            drawn.begin(index)
            right = drawn.right_drafts(index, 2, 1.0)
            assert right.shape == (64,)
            assert (right == right[0]).all()
            assert (drawn.right_drafts(index, 1, 1.0) == np.minimum(right, 1)).all()
            counts[right[0]] += 1
        np.testing.assert_allclose(counts / 4000, [0.4, 0.6 * 0.4, 0.36], atol=0.03)

    def test_kinds_that_are_alike_draw_one_number(self):
        kinds = (Kind(share=0.5, positions=(0.2,)), Kind(share=0.5, positions=(0.7,)))
        drawn = batch(scenario(drafts=DraftQuality(kinds=kinds, alike=True)), steady(40, 500))
        rights = set()
        for index in range(500):
            drawn.begin(index)
            right = drawn.right_drafts(index, 1, 1.0)
            rights.add(tuple(int(right[drawn.rows == row].mean()) for row in (0, 1)))
        # Whoever is right at 0.2 is so at 0.7.
        assert rights == {(0, 0), (0, 1), (1, 1)}

    def test_the_level_scales_every_position(self):
        drawn = batch(scenario(drafts=geometric(1.0)), steady(200, 200))
        right = []
        for index in range(200):
            drawn.begin(index)
            right.append(drawn.right_drafts(index, 2, 0.5))
        assert np.mean(np.array(right) == 2) == pytest.approx(0.25, abs=0.01)

    def test_a_request_that_has_its_tokens_makes_room_for_a_new_one(self):
        drawn = batch(scenario(prompt=10, output=5), steady(3, 9))
        drawn.begin(0)
        assert ((drawn.lengths >= 10) & (drawn.lengths < 15)).all()
        drawn.advance(np.array([5, 5, 5]))
        assert drawn.lengths.tolist() == [10, 10, 10]
        drawn.advance(2)
        assert drawn.lengths.tolist() == [12, 12, 12]

    def test_the_batch_follows_the_path(self):
        drawn = batch(scenario(prompt=7), np.array([2, 5, 1]))
        sizes = []
        for index in range(3):
            drawn.begin(index)
            sizes.append(drawn.size)
        assert sizes == [2, 5, 1] == [2, 5, len(drawn.lengths)]

    def test_rollouts_finish_one_by_one_and_begin_again(self):
        drawn = batch(scenario(load=Rollouts(batch_size=6, tokens=20, spread=0.7)), None)
        sizes = []
        for index in range(200):
            drawn.begin(index)
            sizes.append(drawn.size)
            drawn.advance(1)
        assert sizes[0] == max(sizes) == 6
        steps = set(np.diff(sizes))
        assert min(steps) < 0 < max(steps)
        # A wave begins only after the one before has ended.
        assert all(later == 6 for size, later in pairwise(sizes) if later > size)

    def test_long_requests_draft_worse(self):
        quality = DraftQuality(kinds=(Kind(positions=(1.0,)),), long_context=100, long_level=0.0)
        drawn = batch(scenario(drafts=quality, prompt=100, output=50), steady(40, 5))
        drawn.begin(0)
        drawn.advance(0)
        right = drawn.right_drafts(0, 1, 1.0)
        assert (right == (drawn.lengths <= 100)).all()
        assert drawn.kind_counts().tolist() == [int(right.sum()), 40 - int(right.sum())]

    def test_kinds_have_their_shares(self):
        kinds = (Kind(share=0.25, positions=(1.0,)), Kind(share=0.75, positions=(0.0,)))
        drawn = batch(scenario(drafts=DraftQuality(kinds=kinds)), steady(2000, 1))
        drawn.begin(0)
        assert drawn.kind_counts()[:2] / 2000 == pytest.approx([0.25, 0.75], abs=0.03)
        assert drawn.right_drafts(0, 3, 1.0).tolist() == [3 - 3 * row for row in drawn.rows]
