"""What is learned of the cost of rounds."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_dynspec import ConfigError
from sglang_dynspec.estimates import Calibration, CostCell, CostModel
from sglang_dynspec.identity import Identity
from tests.core.timed import MS, measured, ran, seconds


def plain_share(model):
    """Seconds a plain round is charged for upkeep."""
    return model._upkeep.share * model.upkeep_seconds(8)


class TestPrediction:
    def test_nothing_is_known_at_first(self):
        assert CostModel((0, 1)).predict(0, 8, 0) is None

    @pytest.mark.parametrize(("depth", "batch_size"), [(0, 8), (1, 8), (3, 64)])
    def test_what_was_measured(self, depth, batch_size):
        model = measured((0, 8, 0), (1, 8, 0), (3, 64, 0))
        cost = model.predict(depth, batch_size, 0)
        expected = seconds(depth, batch_size) + (plain_share(model) if depth == 0 else 0)
        assert cost.seconds == pytest.approx(expected, rel=0.005)
        # The first round is not a whole one, but agrees with the second.
        assert cost.rounds == 19.5
        assert cost.error < 0.02

    def test_a_batch_size_between_two(self):
        model = measured((1, 8, 0), (1, 64, 0))
        assert model.predict(1, 24, 0).seconds == pytest.approx(seconds(1, 24), rel=0.05)
        assert model.predict(1, 24, 0).rounds == 0

    def test_a_batch_size_beyond_all(self):
        model = measured(*((depth, size, 0) for depth in (0, 1) for size in (8, 16, 32, 64)))
        cost = model.predict(1, 128, 0)
        assert cost.seconds == pytest.approx(seconds(1, 128), rel=0.05)
        assert cost.error == pytest.approx(0.06, abs=0.01)
        assert 0.09 < model.predict(1, 256, 0).error < 0.13

    def test_depths_tell_of_each_other(self):
        # Depth 3 at 64 requests puts 256 tokens through the target, as plain at 256 would.
        model = measured((0, 8, 0), (0, 32, 0), (3, 8, 0), (3, 64, 0))
        assert model.predict(0, 256, 0).seconds == pytest.approx(
            seconds(0, 256) + plain_share(model), rel=0.1
        )

    def test_a_depth_never_run(self):
        model = measured((0, 8, 0), (0, 64, 0), (1, 8, 0), (1, 64, 0))
        cost = model.predict(3, 8, 0)
        assert cost.seconds == pytest.approx(seconds(3, 8), rel=0.05)
        assert cost.error > 0.15

    def test_a_depth_never_run_takes_longer_where_the_others_do(self):
        # Which the linear model says of no batch size between two others.
        model = CostModel((0, 1, 3))
        for depth in (0, 1):
            for size, factor in ((4, 1.0), (8, 1.4), (16, 1.0)):
                for _ in range(40):
                    model.observe(ran(depth, size, factor * seconds(depth, size)))
        assert model.predict(3, 8, 0).seconds == pytest.approx(1.4 * seconds(3, 8), rel=0.05)

    def test_what_was_measured_long_ago_says_less(self):
        def error(rounds, since):
            model = CostModel((0, 1))
            for depth, count in ((1, rounds), (0, since)):
                for index in range(count):
                    model.observe(ran(depth, 8, 0.0100 if index % 2 else 0.0108))
            return model.predict(1, 8, 0).error

        usual = error(400, 0)
        assert error(4000, 0) == pytest.approx(usual, rel=0.01)
        assert error(400, 4000) == pytest.approx(2**0.5 * usual, rel=0.15)

    def test_one_round_is_all_there_is(self):
        model = CostModel((0, 1))
        model.observe(ran(0, 8, 0.01))
        cost = model.predict(0, 64, 0)
        assert cost.seconds >= 0.01
        assert cost.error > 0.18

    def test_a_batch_of_nobody_has_no_cost(self):
        assert measured((0, 8, 0)).predict(0, 0, 0) is None

    def test_a_new_cell_is_fitted_soon_whatever_else_runs(self):
        model = measured((0, 8, 0))
        ages = []
        # Each one's second round makes it one.
        for depth in (1, 1, 3, 3, *[0] * 8):
            model.observe(ran(depth, 8, seconds(depth, 8)))
            ages.append(model._since_fit)
        assert ages[1:] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2]

    def test_longer_contexts_cost_more(self):
        model = measured((0, 8, 1000), (0, 9, 60_000), (0, 10, 20_000))
        short, long = (model.predict(0, 8, tokens).seconds for tokens in (1000, 60_000))
        assert long - short == pytest.approx(59_000 / 2e4 * MS, rel=0.3)

    def test_it_never_gets_cheaper_with_the_batch(self):
        draw = random.Random(1)
        model = CostModel((0, 1))
        sizes = (1, 2, 4, 8, 16, 24, 32)
        for index in range(700):
            size = sizes[index % 7]
            model.observe(ran(1, size, 0.01 * draw.lognormvariate(0, 0.1)))
        costs = [model.predict(1, size, 0).seconds for size in sizes]
        # A flat server under a tenth of noise: neighbours that contradict are pooled.
        assert max(costs) / min(costs) < 1.03
        assert all(later > 0.99 * earlier for earlier, later in pairwise(costs))

    def test_a_change_of_pace_is_carried_to_other_depths(self):
        model = measured((0, 8, 0), (3, 8, 0), (1, 8, 0), count=60)
        for _ in range(60):
            model.observe(ran(1, 8, 1.4 * seconds(1, 8)))
        assert model.predict(0, 8, 0).seconds == pytest.approx(
            1.4 * (seconds(0, 8) + plain_share(model)), rel=0.05
        )
        assert model.predict(3, 8, 0).seconds == pytest.approx(1.4 * seconds(3, 8), rel=0.05)
        assert model.predict(3, 8, 0).rounds == 2

    def test_rounds_that_tell_nothing_do_not_interrupt_it(self):
        model = measured((0, 8, 0), (3, 8, 0), (1, 8, 0), count=60)
        for size in (8, 8, 8, 64, 64, 8, 8, 8):
            model.observe(ran(1, size, 1.4 * seconds(1, size)))
        assert model.predict(3, 8, 0).seconds == pytest.approx(1.4 * seconds(3, 8), rel=0.05)
        # It is fitted at once.
        assert model._since_fit == 0

    def test_and_back(self):
        model = measured((0, 8, 0), (3, 8, 0), (1, 8, 0), count=60)
        before = [model.predict(depth, 8, 0).seconds for depth in (0, 3)]
        for pace in (1.6, 1.0):
            # Whichever depth runs as it changes: rounds of depth 3 after some of depth 1.
            for depth in (*[1] * 16, *[3] * 16):
                model.observe(ran(depth, 8, pace * seconds(depth, 8)))
        after = [model.predict(depth, 8, 0).seconds for depth in (0, 3)]
        assert after == pytest.approx(before, rel=0.05)


class TestWhatCounts:
    @pytest.mark.parametrize(
        "period", [None, 0.0, -0.01, math.nan, math.inf, -math.inf, 1e6], ids=str
    )
    def test_a_round_without_a_usable_period(self, period):
        model = measured((1, 8, 0))
        before = model.predict(1, 8, 0)
        assert model.observe(ran(1, 8, period)) is False
        assert (model.untimed, model.timed) == (1, 20)
        assert model.predict(1, 8, 0) == before

    def test_rounds_of_no_candidate_and_of_no_requests(self):
        model = CostModel((0, 1))
        assert not model.observe(ran(2, 8, 0.01))
        assert not model.observe(ran(1, 0, 0.01))
        assert (model.untimed, model.timed) == (2, 0)

    def test_the_first_round_of_a_depth_pays_for_the_change(self):
        model = measured((0, 8, 0))
        assert model.observe(ran(1, 8, 0.008)) is True
        # It is all there is, and says little: the first one of a depth may have compiled kernels.
        assert 0.0056 < model.predict(1, 8, 0).seconds < 0.008
        for _ in range(10):
            model.observe(ran(1, 8, 0.0056))
        model.observe(ran(0, 8, seconds(0, 8)))
        model.observe(ran(1, 8, 0.009))
        assert model.predict(1, 8, 0).seconds == pytest.approx(0.0056, rel=0.01)

    @pytest.mark.parametrize("padded", [0, -1])
    def test_an_unpadded_round_counts_by_its_requests(self, padded):
        model = CostModel((0, 1))
        outcome = replace(ran(0, 8, 0.01), padded_batch_size=padded)
        assert model.observe(outcome)
        assert model.predict(0, 8, 0).rounds == 0.5


class TestUpkeep:
    def plain_rounds(self, passes=4, count=400):
        model = CostModel((0, 1))
        for index in range(count):
            upkeep = passes > 0 and index % passes == passes - 1
            model.observe(ran(0, 8, (0.0050 + 0.0006 * upkeep), upkeep=upkeep))
        return model

    def test_plain_is_charged_its_share(self):
        model = self.plain_rounds()
        assert model.upkeep_seconds(8) == pytest.approx(0.0006, rel=0.05)
        assert model.predict(0, 8, 0).seconds == pytest.approx(0.0050 + 0.0006 / 4, rel=0.005)

    def test_a_server_without_upkeep_is_charged_nothing(self):
        model = self.plain_rounds(passes=0, count=2000)
        assert model.predict(0, 8, 0).seconds == pytest.approx(0.0050, rel=0.002)

    def test_an_outlier_of_a_pass_spoils_nothing(self):
        model = self.plain_rounds()
        model.observe(ran(0, 8, 0.030, upkeep=True))
        assert model.upkeep_seconds(8) < 0.0007

    def test_another_batch_size_is_charged_the_usual_share(self):
        model = self.plain_rounds()
        for _ in range(30):
            model.observe(ran(0, 64, 0.010))
        assert model.upkeep_seconds(64) == pytest.approx(0.0012, rel=0.25)

    def test_a_reentry_is_no_measurement_of_its_depth(self):
        model = self.plain_rounds()
        for _ in range(10):
            model.observe(ran(1, 8, 0.006))
        before = model.predict(1, 8, 0).seconds
        model.observe(ran(0, 8, 0.005))
        assert model.observe(ran(1, 8, 0.0067, upkeep=True)) is False
        assert model.predict(1, 8, 0).seconds == before

    # Less what its pass is expected to have taken, but never less than half of it.
    @pytest.mark.parametrize(("period", "seconds"), [(0.0066, 0.0060), (0.0010, 0.0005)])
    def test_a_reentry_is_better_than_nothing(self, period, seconds):
        model = self.plain_rounds()
        assert model.observe(ran(1, 8, period, upkeep=True)) is True
        cell = model._rows[1].cells[8]
        assert (cell.seconds, cell.rounds) == (pytest.approx(seconds, rel=0.01), 0.5)


class TestCalibration:
    CALIBRATION = Calibration(
        identity=Identity(gpu="H200", model="m", sglang="0.5.23"),
        cells=(
            CostCell(depth=0, batch_size=8, seconds=0.005, rounds=100),
            CostCell(depth=1, batch_size=8, seconds=0.006, rounds=2, seq_len_sum=4000.0),
            CostCell(depth=5, batch_size=8, seconds=0.009, rounds=100),
        ),
        upkeep={8: 0.0008},
    )

    def test_a_file_comes_back(self, tmp_path):
        path = tmp_path / "costs.json"
        self.CALIBRATION.save(path)
        assert Calibration.load(path) == self.CALIBRATION
        assert [file.name for file in tmp_path.iterdir()] == ["costs.json"]

    def test_costs_start_from_it(self):
        model = CostModel((0, 1, 3))
        model.load(self.CALIBRATION)
        assert model.predict(0, 8, 0).seconds == pytest.approx(0.005 + 0.0007 / 4, rel=0.02)
        assert model.predict(0, 8, 0).rounds == 8
        assert model.predict(1, 8, 4000).seconds == pytest.approx(0.006, rel=0.02)
        assert model.predict(1, 8, 4000).rounds == 2
        for _ in range(200):
            model.observe(ran(0, 8, 0.007))
        assert model.predict(0, 8, 0).seconds > 0.007

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("", "Expecting value"),
            ("[]", "Input should be"),
            ("{}", "cells: Field required"),
            ('{"cells": [], "colour": 1}', "colour: Extra inputs"),
            ('{"cells": [{"depth": 0, "batch_size": 1, "seconds": -1, "rounds": 1}]}', "greater"),
            ('{"cells": [{"depth": 0, "batch_size": 1, "seconds": NaN, "rounds": 1}]}', "finite"),
        ],
    )
    def test_a_file_that_is_none(self, tmp_path, text, found):
        path = tmp_path / "costs.json"
        path.write_text(text)
        with pytest.raises(ConfigError, match="dynspec calibrate") as caught:
            Calibration.load(path)
        assert found in caught.value.found

    def test_a_newer_version(self, tmp_path):
        path = tmp_path / "costs.json"
        path.write_text('{"version": 2, "shape": "unknown"}')
        with pytest.raises(ConfigError, match="file of version 1; found version 2"):
            Calibration.load(path)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(ConfigError, match="No such file"):
            Calibration.load(tmp_path / "none.json")

    def test_another_gpu_is_refused(self):
        with pytest.raises(ConfigError, match="this server's gpu, B200; found one of H200"):
            self.CALIBRATION.check(Identity(gpu="B200"))

    def test_what_is_unknown_matches_and_versions_are_told(self):
        assert self.CALIBRATION.check(Identity()) == {}
        assert self.CALIBRATION.check(Identity(gpu="H200", sglang="0.5.24")) == {
            "sglang": ("0.5.23", "0.5.24")
        }


times = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(1e-6, 1e3))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 4),
            st.integers(-2, 100_000),
            times,
            st.integers(-5, 10**12),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_no_outcome_poisons_it(rounds):
    model = CostModel((0, 1, 3))
    for depth, batch_size, period, tokens, upkeep in rounds:
        model.observe(ran(depth, batch_size, period, tokens=tokens, upkeep=upkeep))
    assert model.timed + model.untimed == len(rounds)
    for depth in (0, 1, 3):
        for batch_size in (1, 8, 300):
            cost = model.predict(depth, batch_size, 1000)
            assert cost is None or (
                math.isfinite(cost.seconds) and cost.seconds > 0 and math.isfinite(cost.error)
            )


def test_memory_does_not_grow_with_rounds():
    draw = random.Random(2)
    model = CostModel((0, 1, 3))
    for _ in range(20_000):
        size = int(2 ** draw.uniform(0, 10))
        model.observe(ran(draw.choice((0, 1, 3)), size, 0.01, upkeep=draw.random() < 0.1))
    # 16 small sizes, then four buckets to each of six doublings.
    assert sum(len(row) for row in model._rows.values()) <= 3 * 40
    assert len(model._upkeep._passes) <= 40
