"""The measured cost of rounds that are alike."""

import pytest

from sglang_dynspec.estimates.cells import Cell, Row, bucket_of


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

    def test_the_batch_that_it_is_the_mean_of(self):
        cell = Cell(0.010, 8, 100, rounds=1.0)
        cell.add(0.010, 16, 300)
        assert (cell.batch_size, cell.tokens) == (12, 200)

    def test_how_far_rounds_are_from_the_mean(self):
        cell = self.filled()
        # Of 40, the first two are too few to tell.
        assert cell.noise == pytest.approx(0.05 * (63 / 64) ** 38)
        before = cell.noise
        cell.add(0.0102, 8, 0)
        assert cell.noise == pytest.approx(before + (0.02 - before) / 64)

    def test_buckets(self):
        assert [bucket_of(size) for size in (1, 2, 15, 16, 19, 32, 64, 256)] == [
            *(1, 2, 15, 16, 17, 20, 24, 32)
        ]


class TestRow:
    def row(self, rounds):
        """Cells by bucket, each with so many rounds."""
        row = Row()
        for bucket in reversed(rounds):
            row.put(bucket, Cell(0.010, bucket, 0, rounds=rounds[bucket]))
        return row

    @pytest.mark.parametrize(
        ("rounds", "found"),
        [
            ({}, (None, None, None)),
            ({8: 1.0}, (None, 8, None)),
            # The nearest on each side.
            ({2: 5.0, 4: 5.0, 12: 5.0, 14: 5.0}, (4, None, 12)),
            ({2: 1.0, 4: 1.0, 12: 1.0, 14: 1.0}, (4, None, 12)),
            # Of those that were measured more than once, if there are any.
            ({2: 5.0, 4: 1.0, 12: 1.0, 14: 5.0, 15: 5.0}, (2, None, 14)),
            ({2: 1.5, 4: 1.0, 12: 1.0, 14: 1.5, 15: 1.0}, (2, None, 14)),
        ],
    )
    def test_what_is_around_a_bucket(self, rounds, found):
        around = self.row(rounds).around(8)
        assert tuple(cell and cell.batch_size for cell in around) == found

    def test_it_is_sure_of_one_that_was_measured_more_than_once(self):
        assert self.row({2: 1.0, 8: 1.5}).is_sure
        assert not self.row({2: 1.0, 8: 0.5}).is_sure
