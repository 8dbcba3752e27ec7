import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest

from sglang_dynspec.trace import Trace, TraceHeader, TraceRound
from sglang_dynspec.trace.phases import (
    Phase,
    PhaseRow,
    phase_rows,
    phases_by_batch_size,
)
from sglang_dynspec.trace.timeline import draw_timeline


def make(*stretches, periods=True):
    """Make a trace of (batch size, depth, rounds, accepted per request, seconds per round)."""
    rounds = []
    t = 0.0
    for size, depth, count, accepted, seconds in stretches:
        for _ in range(count):
            t += seconds
            rounds.append(
                TraceRound(
                    round=len(rounds),
                    t=t,
                    batch_size=size,
                    padded_batch_size=size,
                    running=size,
                    waiting=0,
                    seq_len_sum=0,
                    seq_len_max=0,
                    kv_free=1.0,
                    depth=depth,
                    planned=depth,
                    reason="",
                    accepted=(accepted,) * size if depth else (),
                    tokens=size * (1 + accepted),
                    period=seconds if periods else None,
                )
            )
    return Trace(header=TraceHeader(depths=(0, 1, 3), policy="threshold"), rounds=rounds)


RAMP = make((1, 3, 50, 2, 0.5), (16, 3, 4, 1, 1.0), (16, 0, 46, 0, 1.0))

EVERYTHING = [Phase(name="everything", start=0.0, end=1e9)]


def test_a_row_per_phase():
    low, high = phase_rows(
        RAMP, [Phase(name="low", start=0.0, end=25.5), Phase(name="high", start=25.5, end=1e9)]
    )
    assert low == PhaseRow(
        name="low",
        rounds=50,
        batch_size=1.0,
        shares={3: 1.0},
        accepted_length=3.0,
        tokens=150,
        tokens_per_second=6.0,
        switches=0,
    )
    assert high.rounds == 50
    assert high.shares == {0: 46 / 50, 3: 4 / 50}
    assert high.accepted_length == 2.0
    assert high.tokens == 4 * 32 + 46 * 16
    assert high.tokens_per_second == high.tokens / 50
    assert high.switches == 1


def test_idle_time_does_not_count_where_periods_are_known():
    busy = make((1, 0, 4, 0, 0.5))
    (late,) = make((1, 0, 1, 0, 100.0), periods=False).rounds
    (row,) = phase_rows(Trace(header=busy.header, rounds=[*busy.rounds, late]), EVERYTHING)
    assert row.tokens == 5
    assert row.tokens_per_second == 2.0


def test_without_periods_the_time_between_rounds_counts():
    (row,) = phase_rows(make((1, 0, 5, 0, 0.5), periods=False), EVERYTHING)
    # The first round has none before it.
    assert row.tokens_per_second == 4 / 2.0


def test_a_phase_without_rounds():
    (row,) = phase_rows(RAMP, [Phase(name="none", start=1e6, end=2e6)])
    assert (row.rounds, row.batch_size, row.shares, row.tokens) == (0, 0.0, {}, 0)
    assert row.accepted_length is None
    assert row.tokens_per_second is None


def test_plain_rounds_have_no_accepted_length():
    (row,) = phase_rows(make((4, 0, 20, 0, 0.1)))
    assert row.accepted_length is None
    assert row.shares == {0: 1.0}


def test_a_row_as_json():
    rows = [row.as_json() for row in phase_rows(RAMP)]
    assert json.loads(json.dumps(rows)) == rows
    assert rows[0]["shares"] == {"3": 1.0}


class TestPhasesByBatchSize:
    def names(self, *stretches):
        trace = make(*[(size, 0, count, 0, 1.0) for size, count in stretches])
        phases = phases_by_batch_size(trace.rounds)
        assert sum(row.rounds for row in phase_rows(trace, phases)) == len(trace.rounds)
        assert all(a.end == b.start for a, b in pairwise(phases))
        return [phase.name for phase in phases]

    def test_by_powers_of_two(self):
        names = self.names((1, 20), (16, 30), (19, 30), (1, 20))
        assert names == ["batch 1", "batch 16-19", "batch 1"]

    def test_a_short_stretch_is_a_step_on_a_ramp(self):
        assert self.names((1, 20), (4, 3), (16, 30)) == ["batch 1-4", "batch 16"]

    def test_a_dip_does_not_split(self):
        assert self.names((16, 20), (2, 3), (17, 20)) == ["batch 2-17"]

    def test_a_short_beginning_joins_what_follows(self):
        assert self.names((1, 3), (16, 30)) == ["batch 1-16"]

    def test_no_rounds(self):
        assert self.names() == []

    def test_the_last_phase_is_open(self):
        assert phases_by_batch_size(RAMP.rounds)[-1].end == math.inf


class TestTimeline:
    @pytest.fixture
    def figure(self, monkeypatch):
        """Catch the figure instead of its pixels."""
        from matplotlib.figure import Figure

        caught = []
        monkeypatch.setattr(Figure, "savefig", lambda self, path: caught.append((self, path)))
        return caught

    def test_it_shows_batch_size_and_depth(self, figure, tmp_path):
        phases = [Phase(name="low", start=0.0, end=25.5), Phase(name="high", start=25.5, end=99.0)]
        draw_timeline(RAMP, tmp_path / "a.png", phases=phases)
        ((drawn, path),) = figure
        sizes, depths = drawn.axes
        assert path == tmp_path / "a.png"
        times = [each.t for each in RAMP.rounds]
        for axes, attribute in ((sizes, "batch_size"), (depths, "depth")):
            line = axes.lines[0]
            assert list(line.get_xdata()) == times
            assert list(line.get_ydata()) == [getattr(each, attribute) for each in RAMP.rounds]
            assert line.get_drawstyle() == "steps-pre"
        assert [text.get_text() for text in sizes.texts] == ["low", "high"]
        assert [text.get_text() for text in depths.get_yticklabels()] == ["plain", "1", "3"]
        assert sizes.get_ylabel() == "batch size (requests)"
        assert depths.get_ylabel() == "depth (draft steps)"
        assert depths.get_xlabel() == "seconds since the start of the trace"
        assert sizes.get_title() == "Batch size and depth: threshold"

    def test_a_title_of_ones_own(self, figure, tmp_path):
        draw_timeline(RAMP, tmp_path / "a.png", title="mine")
        assert figure[0][0].axes[0].get_title() == "mine"

    def test_it_is_a_png(self, tmp_path):
        draw_timeline(RAMP, tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

    def test_an_empty_trace(self, tmp_path):
        draw_timeline(Trace(header=TraceHeader(), rounds=[]), tmp_path / "a.png")
        assert (tmp_path / "a.png").exists()


def test_probes_are_counted_apart_from_switches(tmp_path):
    rounds = make((4, 3, 10, 1, 0.5), (4, 0, 10, 0, 0.5)).rounds
    # Rounds 3 and 4 look at plain, and 15 at depth 3.
    looks = {3: 0, 4: 0, 15: 3}
    rounds = [
        replace(each, depth=looks[at], probe=True) if at in looks else each
        for at, each in enumerate(rounds)
    ]
    trace = Trace(header=TraceHeader(depths=(0, 1, 3)), rounds=rounds)
    (row,) = phase_rows(trace, EVERYTHING)
    assert (row.switches, row.probes) == (1, 3)
    draw_timeline(trace, tmp_path / "probes.png")
    assert (tmp_path / "probes.png").read_bytes().startswith(b"\x89PNG")
