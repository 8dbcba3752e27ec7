"""The measured cost of rounds that are alike."""

import pytest

from sglang_dynspec.estimates.cells import Cell, bucket_of


class TestCell:
    def filled(self):
        cell = Cell(0.010, 8, 0, rounds=1.0)
        for _ in range(40):
            cell.add(0.010, 8, 0)
        return cell

    def test_an_outlier_moves_nothing_much(self):
        cell = self.filled()
        assert cell.add(0.060, 8, 0) == 1
        assert cell.seconds == pytest.approx(0.010, rel=0.01)

    @pytest.mark.parametrize(("seconds", "side"), [(0.0104, 0), (0.013, 1), (0.007, -1)])
    def test_which_rounds_are_unusual(self, seconds, side):
        assert self.filled().add(seconds, 8, 0) == side

    def test_too_few_rounds_tell_nothing(self):
        cell = Cell(0.010, 8, 0, rounds=1.0)
        assert [cell.add(0.020, 8, 0) for _ in range(3)] == [None, None, 1]

    def test_scaling_is_bounded_until_it_is_measured_again(self):
        cell = self.filled()
        for _ in range(40):
            cell.scale(1.7)
        assert cell.seconds == pytest.approx(0.030)
        cell.add(0.030, 8, 0)
        cell.scale(1.7)
        assert cell.seconds == pytest.approx(0.051)
        for _ in range(40):
            cell.scale(0.5)
        assert cell.seconds == pytest.approx(0.010)

    def test_a_slow_drift_is_followed(self):
        cell = self.filled()
        for index in range(400):
            cell.add(0.010 * (1 + index / 1000), 8, 0)
        assert cell.seconds == pytest.approx(0.0134, rel=0.05)

    def test_of_two_first_rounds_the_shorter_one_is_believed(self):
        cell = Cell(0.050, 8, 0, rounds=1.0)
        cell.add(0.010, 8, 0)
        assert (cell.seconds, cell.rounds) == (0.010, 2.0)
        cell = Cell(0.010, 8, 0, rounds=1.0)
        cell.add(0.050, 8, 0)
        assert cell.seconds == pytest.approx(0.0125)

    def test_buckets(self):
        assert [bucket_of(size) for size in (1, 2, 15, 16, 19, 32, 64, 256)] == [
            *(1, 2, 15, 16, 17, 20, 24, 32)
        ]
