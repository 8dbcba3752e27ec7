"""Measured tokens per second, by depth and batch size."""

import pytest

from sglang_dynspec import Outcome
from sglang_dynspec.guard.rates import Rates, bucket_of, sizes_of


def ran(index, depth, period=0.01, *, size=16, tokens=None, **fields):
    return Outcome(
        round=index,
        depth=depth,
        planned=depth,
        batch_size=size,
        accepted=(),
        tokens=size if tokens is None else tokens,
        period=period,
        **fields,
    )


class TestBuckets:
    def test_two_to_an_octave(self):
        assert [bucket_of(size) for size in (1, 2, 3, 4, 5, 6, 8, 16, 1024)] == [
            0, 2, 3, 4, 5, 5, 6, 8, 20,
        ]  # fmt: skip

    @pytest.mark.parametrize("size", [-1, 0, 10**9])
    def test_any_batch_size_has_one(self, size):
        assert 0 <= bucket_of(size) <= 20

    def test_their_sizes(self):
        assert sizes_of(0) == (1, 1)
        assert sizes_of(8) == (14, 19)
        assert all(bucket_of(size) == 8 for size in range(14, 20))


class TestRates:
    @pytest.fixture
    def rates(self):
        rates = Rates((0, 3))
        rates.upkeep_window = 4
        return rates

    def test_a_mean(self, rates):
        for index in range(500):
            rates.add(ran(index, 3, 0.02, tokens=40))
        cell = rates.cell(3, 16)
        assert cell.tokens / cell.seconds == pytest.approx(2000.0)
        # 1/64 of the weight goes at each round, 1/512 at each of distance.
        assert cell.rounds == pytest.approx(1 / (1 - (1 - 1 / 64) * (1 - 1 / 512)), rel=0.01)

    def test_what_is_old_says_nothing(self, rates):
        rates.add(ran(0, 3, 0.02))
        assert rates.cell(3, 16).known(511, 1.0)
        assert not rates.cell(3, 16).known(512, 1.0)
        rates.add(ran(600, 3, 0.04))
        assert rates.cell(3, 16).seconds == 0.04

    def test_a_stall_counts_for_four_rounds(self, rates):
        for index in range(10):
            rates.add(ran(index, 3, 0.02))
        before = rates.cell(3, 16).seconds
        rates.add(ran(10, 3, 30.0))
        assert rates.cell(3, 16).seconds - before < 4 * 0.02

    def test_upkeep_is_in_the_plain_rate(self, rates):
        for index in range(100):
            upkeep = index % 4 == 3
            rates.add(ran(index, 0, 0.014 if upkeep else 0.01, upkeep=upkeep))
        assert rates.plain_rate(16, 16.0) == pytest.approx(16 / 0.011, rel=0.01)

    def test_also_where_only_probes_were_plain(self, rates):
        for index in range(50):
            rates.add(ran(index, 3, 0.02))
        for index in range(50, 60):
            rates.add(ran(index, 0, 0.01))
        assert rates.plain_rate(16, 16.0) == pytest.approx(16 / 0.01)
        for _ in range(40):
            rates.measure_pass(ran(60, 3, 0.024, upkeep=True))
        assert rates.plain_rate(16, 16.0) == pytest.approx(16 / 0.011, rel=0.01)

    def test_of_a_larger_batch_at_least_what_was_measured(self, rates):
        rates.add(ran(0, 0, 0.01, size=14))
        assert rates.plain_rate(19, 19.0) == pytest.approx(1400.0)
        assert rates.plain_rate(14, 7.0) == pytest.approx(700.0)

    def test_a_pass_over_a_mean_that_is_not_known_says_nothing(self, rates):
        for index in range(10):
            rates.add(ran(index, 0, 0.01))
        for index in range(3):
            rates.add(ran(index, 3, 0.02))
        for depth in (1, 3):
            rates.measure_pass(ran(10, depth, 0.024, upkeep=True))
        assert rates.plain_rate(16, 16.0) == pytest.approx(1600.0)

    def test_the_largest_batches_have_a_rate(self, rates):
        rates.add(ran(0, 0, 0.01, size=5000))
        assert rates.plain_rate(2000, 5000.0) == pytest.approx(500_000.0)

    def test_nothing_measured_is_no_rate(self, rates):
        assert rates.plain_rate(16, 16.0) == 0.0
