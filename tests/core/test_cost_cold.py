"""What a depth's first round is believed of: it loads and compiles kernels."""

import pytest

from sglang_dynspec.estimates.cost_model import CostModel
from tests.core.timed import MS, measured, ran, seconds

#: What the first round of a depth took on an H200; the next ones took 6.
COLD = 164 * MS


def flat(*depths, batch_size=8):
    """Measure 6 ms rounds of these depths."""
    model = CostModel((0, 1, 3))
    for depth in depths:
        for _ in range(30):
            model.observe(ran(depth, batch_size, 6 * MS))
    return model


@pytest.mark.parametrize(
    ("known", "cold"), [((0, 3), 1), ((0,), 1), ((0, 1), 3), ((1, 3), 0)], ids=str
)
class TestADepthNeverRun:
    def test_one_cold_round_of_it_is_doubted(self, known, cold):
        model = flat(*known)
        model.observe(ran(cold, 8, COLD))
        cost = model.predict(cold, 8, 0)
        assert 5 * MS < cost.seconds < 8 * MS
        assert (cost.rounds, cost.error > 0.14) == (0.5, True)
        for _ in range(150):
            model.observe(ran(known[0], 8, 6 * MS))
        # Nor does the linear model come round to it.
        assert 5 * MS < model.predict(cold, 8, 0).seconds < 8 * MS

    def test_two_that_agree_are_not_believed_yet(self, known, cold):
        model = flat(*known)
        for _ in range(2):
            model.observe(ran(cold, 8, COLD))
        cost = model.predict(cold, 8, 0)
        # They may have compiled a kernel each.
        assert 5 * MS < cost.seconds < 40 * MS
        assert cost.rounds == 1.5

    def test_a_few_that_agree_are(self, known, cold):
        model = flat(*known)
        for _ in range(5):
            model.observe(ran(cold, 8, COLD))
        cost = model.predict(cold, 8, 0)
        assert cost.seconds == pytest.approx(COLD, rel=0.1)
        assert cost.error < 0.1

    def test_two_of_twice_the_time_are_nearly_believed(self, known, cold):
        model = flat(*known)
        for _ in range(2):
            model.observe(ran(cold, 8, 12 * MS))
        assert 9 * MS < model.predict(cold, 8, 0).seconds < 12.2 * MS

    def test_of_two_that_do_not_the_second_is(self, known, cold):
        model = flat(*known)
        for period in (COLD, 7 * MS):
            model.observe(ran(cold, 8, period))
        assert model.predict(cold, 8, 0).seconds == pytest.approx(7 * MS, rel=0.1)


def test_a_depth_with_one_cold_round_is_not_asked_about_others():
    model = flat(0)
    model.observe(ran(1, 8, COLD))
    assert 5 * MS < model.predict(3, 8, 0).seconds < 8 * MS


def test_a_single_round_that_agrees_is_worth_more_than_one_that_does_not():
    model = flat(0, 3)
    before = model.predict(1, 8, 0).error
    model.observe(ran(1, 8, 6.4 * MS))
    assert model.predict(1, 8, 0).error < 0.7 * before


@pytest.mark.parametrize("settling", [0, 10, 150])
@pytest.mark.parametrize("batch_size", [48, 64, 96, 128, 256])
def test_a_cold_round_at_a_smaller_batch_says_little_of_larger_ones(batch_size, settling):
    model = measured((0, 8, 0), (0, 64, 0), (3, 8, 0), (3, 64, 0), (1, 64, 0))
    before = model.predict(1, batch_size, 0).seconds
    model.observe(ran(1, 32, COLD))
    for _ in range(settling):
        model.observe(ran(0, 8, seconds(0, 8)))
    assert model.predict(1, batch_size, 0).seconds == pytest.approx(before, rel=0.15)


class TestNews:
    def told(self, model, count, *where):
        news = []
        for _ in range(count):
            model.observe(ran(*where, 6 * MS))
            news.append(model.has_news)
        return news

    def test_the_first_four_rounds_of_a_cell_are(self):
        model = CostModel((0, 1, 3))
        assert model.has_news is False
        # The first round of a depth counts half.
        assert self.told(model, 8, 1, 8) == [True] * 4 + [False] * 4
        assert self.told(model, 8, 3, 8) == [True] * 4 + [False] * 4
        assert self.told(model, 8, 3, 64) == [True] * 4 + [False] * 4
        # Back at what is known, nothing is.
        assert self.told(model, 3, 1, 8) == [False] * 3

    def test_a_depth_that_was_only_glanced_at_is_still(self):
        model = CostModel((0, 1))
        self.told(model, 20, 0, 8)
        for _ in range(2):
            assert self.told(model, 1, 1, 8) == [True]
            assert self.told(model, 1, 0, 8) == [False]
