"""Tables of costs, loads and paces by the clock, by value."""

import numpy as np
import pytest

from sglang_dynspec.simulator import SyntheticServer
from sglang_dynspec.simulator.service import Bend, CostTable, Load, Modes, Moves, Slow
from sglang_dynspec.simulator.service.load import Arrivals, held
from sglang_dynspec.simulator.service.pace import ModeNoise, Pace

SERVER = SyntheticServer(
    name="by hand",
    weights=1.0,
    compute=0.0,
    context=0.001,
    draft=0.25,
    extend=0.5,
    extend_token=0.1,
    floor=1.8,
    upkeep_window=2,
    graph_sizes=(1, 2, 4, 8),
)
BENT = CostTable(
    SERVER,
    (0, 1, 3),
    (Bend(sizes=(2, 4), factor=0.5, depths=(3,)), Bend(sizes=(4, 8), factor=2.0)),
)


class TestCostTable:
    def test_the_formula_bent_where_kernels_switch(self):
        # Depth 1 at size s: 1 + 0.25 + 0.5 + 0.1 x 2 s; depth 3: 1 + 0.75 + 0.5 + 0.1 x 4 s.
        assert BENT.rounds == pytest.approx(
            np.array(
                [
                    [1.0, 1.0, 2.0, 2.0],
                    [1.95, 2.15, 2 * 2.55, 2 * 3.35],
                    [2.65, 3.05 / 2, 3.85, 2 * 5.45],
                ]
            )
        )
        # One token is extended for each round of the window and each request.
        assert BENT.passes == pytest.approx([0.7, 0.9, 1.3, 2.1])

    def test_context_comes_on_top_and_the_host_needs_its_time(self):
        assert BENT.seconds(0, 1, 300) == pytest.approx(1.3)
        assert BENT.seconds(2, 1, 100) == pytest.approx(1.8)
        assert BENT.seconds(2, 1, 400) == pytest.approx(3.05 / 2 + 0.4)

    def test_many_rounds_cost_what_each_does(self):
        columns, contexts = np.array([0, 1, 3]), np.array([0, 100, 5000])
        found = BENT.over(columns, contexts)
        assert found == pytest.approx(
            np.array(
                [
                    [
                        BENT.seconds(row, column, context)
                        for column, context in zip(columns, contexts, strict=True)
                    ]
                    for row in range(3)
                ]
            )
        )

    @pytest.mark.parametrize(("batch", "column"), [(1, 0), (2, 1), (3, 2), (8, 3)])
    def test_a_batch_runs_at_the_next_size(self, batch, column):
        assert BENT.column(batch) == column

    def test_a_batch_beyond_the_largest_size_is_refused(self):
        with pytest.raises(ValueError, match=r"at most 8 requests; found 9; lower .* max_running"):
            BENT.column(9)


class TestMoves:
    @pytest.mark.parametrize(
        ("moves", "values"),
        [
            (Moves(knots=((0, 1), (2, 5))), [1, 1, 5, 5, 5]),
            (Moves(knots=((0, 1), (2, 5)), sloping=True), [1, 3, 5, 5, 5]),
            (Moves(knots=((0, 1), (2, 5)), every=3.0), [1, 1, 5, 1, 1]),
            (Moves(knots=((0, 1), (2, 5)), sloping=True, every=3.0), [1, 3, 5, 1, 3]),
            (held(7), [7, 7, 7, 7, 7]),
        ],
    )
    def test_values(self, moves, values):
        moments = np.arange(5.0)
        assert [moves.at(moment) for moment in moments] == values
        assert moves.over(moments).tolist() == values

    @pytest.mark.parametrize(("now", "after"), [(0.0, 2.0), (1.9, 2.0), (2.0, 3.0), (4.0, 5.0)])
    def test_the_next_change(self, now, after):
        assert Moves(knots=((0, 1), (2, 5)), every=3.0).next_change(now) == after

    def test_there_may_be_none(self):
        assert held(1).next_change(0.0) == float("inf")


class TestArrivals:
    def test_clients_ask_again_and_stay_away_where_they_are_fewer(self):
        arrivals = Arrivals(Load(clients=Moves(knots=((0, 4), (2, 1)))), np.random.default_rng(0))
        assert arrivals.due(0.0, 0) == 4
        assert arrivals.due(1.0, 3) == 1
        assert arrivals.due(2.0, 3) <= 0

    def test_poisson_arrivals_have_a_rate_that_moves(self):
        load = Load(rate=Moves(knots=((0, 50), (100, 10))))
        arrivals = Arrivals(load, np.random.default_rng(0))
        assert arrivals.due(100.0, 0) == pytest.approx(5000, rel=0.04)
        assert arrivals.due(300.0, 0) == pytest.approx(2000, rel=0.08)
        assert 300.0 < arrivals.next_moment(300.0) < 301.0


class TestPace:
    PACE = Pace(
        slow=(
            Slow(begin=1, end=3, factor=2.0),
            Slow(begin=2, end=4, factor=3.0, depths=(1,)),
            Slow(begin=0.5, end=1.0, factor=5.0, depths=(0,), every=4.0),
        ),
        modes=Modes(factor=3.0, share=0.25, depths=(1,)),
    )

    def test_slow_times_multiply_and_pulses_come_again(self):
        moments = [0.5, 1.0, 2.0, 3.0, 4.0, 4.5]
        assert [self.PACE.factor(0, at) for at in moments] == [5, 2, 2, 1, 1, 5]
        assert [self.PACE.factor(1, at) for at in moments] == [1, 2, 6, 3, 1, 1]
        assert [self.PACE.factor(None, at) for at in moments] == [1, 2, 2, 1, 1, 1]

    def test_in_the_long_run_modes_add_their_mean(self):
        moments = np.array([0.5, 2.0])
        found = self.PACE.over((0, 1), moments)
        assert found.tolist() == [[5.0, 2.0], [1.0 * 1.5, 6.0 * 1.5]]

    def test_modes_have_a_share_and_a_length(self):
        noise = ModeNoise(Modes(factor=2.0, share=0.3, length=8), np.random.default_rng(0))
        slow = np.array([noise.factor(1) for _ in range(60_000)]) == 2.0
        assert slow.mean() == pytest.approx(0.3, abs=0.02)
        edges = np.flatnonzero(np.diff(slow.astype(int), prepend=0, append=0))
        assert (edges[1::2] - edges[::2]).mean() == pytest.approx(8.0, rel=0.05)

    def test_modes_of_one_depth_leave_the_others_alone(self):
        noise = ModeNoise(Modes(factor=2.0, share=0.5, depths=(3,)), np.random.default_rng(0))
        assert {noise.factor(1) for _ in range(50)} == {1.0}
        assert {noise.factor(3) for _ in range(50)} == {1.0, 2.0}
