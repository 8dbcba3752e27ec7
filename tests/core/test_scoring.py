"""Runs of scripted policies, scored by hand."""

from dataclasses import replace

import numpy as np
import pytest

from sglang_dynspec import Plan
from sglang_dynspec.simulator import Transition, score
from sglang_dynspec.simulator.drafts import geometric
from sglang_dynspec.simulator.levels import phases
from sglang_dynspec.simulator.load import ramp, steady
from sglang_dynspec.simulator.scoring import mean_lengths, short_probes, true_rates
from tests.core.by_hand import HALF, SERVER, run


def probe(depth):
    return Plan(depth=depth, probe=True)


class TestShare:
    def test_true_rates(self):
        rates = true_rates(run(lambda _: 0))
        assert rates.shape == (3, 100)
        np.testing.assert_allclose(rates[:, 0], [4.0, 4.8, 4 * 1.875 / 1.75])
        assert (rates == rates[:, :1]).all()

    def test_the_oracle_gets_everything(self):
        best = score(run(lambda _: 1))
        assert best.share == best.worst_window == best.warm_up_share == 1.0
        assert best.oracle_shares == {0: 0.0, 1: 1.0, 3: 0.0}

    def test_another_depth_gets_its_part(self):
        assert score(run(lambda _: 0)).share == pytest.approx(1 / 1.2)
        assert score(run(lambda _: 3)).share == pytest.approx(1.875 / 1.75 / 1.2)

    def test_rounds_count_by_their_time(self):
        # A round each: 1 + 1.875 tokens in 1 + 1.75 seconds, at 1.2 a second.
        mixed = score(run(lambda index: 0 if index % 2 else 3))
        assert mixed.share == pytest.approx(2.875 / (2.75 * 1.2))
        assert mixed.depth_shares == {0: 0.5, 1: 0.0, 3: 0.5}

    def test_warm_up_is_apart(self):
        scored = score(run(lambda index: 0 if index < 10 else 1))
        assert (scored.share, scored.switches) == (1.0, 1)
        assert scored.warm_up_share == pytest.approx(1 / 1.2)

    def test_levels_count(self):
        half = replace(HALF, levels=phases((0, 1.0), (50, 0.5)))
        lengths = mean_lengths(run(lambda _: 0, half))
        np.testing.assert_allclose(lengths[:, 49], [1.0, 1.5, 1.875])
        np.testing.assert_allclose(lengths[:, 50], [1.0, 1.25, 1.25 + 1 / 16 + 1 / 64])

    def test_a_slower_pace_is_the_oracles_too(self):
        slow = replace(HALF, slowdown=phases((0, 1.0), (50, 2.0)))
        made = run(lambda _: 1, slow)
        assert made.seconds[[49, 50]].tolist() == [1.25, 2.5]
        np.testing.assert_allclose(true_rates(made)[:2, 50], [2.0, 2.4])
        assert score(made).share == 1.0

    def test_json_is_rounded(self):
        shown = score(run(lambda _: 0)).as_json()
        assert shown["share"] == 0.833333
        assert shown["depth_shares"] == {"0": 1.0, "1": 0.0, "3": 0.0}

    def test_plain_rounds_are_charged_their_upkeep(self):
        server = replace(SERVER, extend=0.5, upkeep_window=4)
        scenario = replace(HALF, server=server, drafts=geometric(0.0), noise=0.0, outliers=0.0)
        plain = run(lambda _: 0, scenario)
        # Every fourth round takes half a second longer, and the oracle is charged the same.
        assert plain.seconds[:8].tolist() == [1.0, 1.0, 1.0, 1.5] * 2
        assert score(plain).share == pytest.approx(1.0, rel=0.005)

    def test_re_entry_is_charged_one_pass(self):
        server = replace(SERVER, extend=0.5, upkeep_window=4)
        scenario = replace(HALF, server=server, noise=0.0, outliers=0.0)
        seconds = run(lambda index: [0, 0, 1, 1, 0, 0, 0, 0, 1][index % 9], scenario).seconds
        # Two plain rounds are owed at round 2; none at round 8, after a pass at round 7.
        assert seconds[:9].tolist() == [1.0, 1.0, 2.25, 1.75, 1.0, 1.0, 1.0, 1.5, 1.75]


class TestProbes:
    def test_probes_are_no_switches(self):
        scored = score(run(lambda index: probe(3) if index % 20 in (5, 6) else 1))
        assert (scored.switches, scored.probe_rounds) == (0, 8)

    def test_their_loss_is_against_the_depth_in_force(self):
        # In 90 rounds, 9 probes of depth 3: each gives 7.5 in 1.75 s where depth 1 gives 8.4.
        scored = score(run(lambda index: probe(3) if index % 10 == 5 else 1))
        assert scored.probe_loss == pytest.approx(9 * 0.9 / (9 * 7.5 + 81 * 6.0))

    def test_a_probe_that_gains_is_no_credit(self):
        assert score(run(lambda index: probe(1) if index % 10 == 5 else 0)).probe_loss == 0.0

    def test_a_long_probe_is_two_switches(self):
        # The guard takes the third round for what it is.
        scored = score(run(lambda index: probe(3) if 40 <= index < 43 else 1))
        assert scored.switches == 2

    def test_an_excursion_that_is_too_long_is_no_probe(self):
        probes = np.array([0, 1, 1, 0, 1, 1, 1, 0, 1], dtype=np.bool_)
        assert short_probes(probes).tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 1]

    def test_switches(self):
        scored = score(run(lambda index: 3 if 30 <= index < 60 else 1))
        assert scored.switches == 2
        assert scored.switches_per_1000 == pytest.approx(1000 * 2 / 90)


#: From 4 to 40 requests at round 60: there a token costs so much that plain is best.
RAMP = replace(
    HALF,
    server=replace(SERVER, compute=0.05, sharpness=4.0),
    load=lambda rounds, rng: ramp(4, 40, at=60, over=0, rounds=rounds),
    horizon=190,
    stationary=False,
    expected=None,
    transitions=(Transition(at=60, turns="off", within=16),),
)


class TestReactions:
    def reaction(self, script, scenario=RAMP):
        (only,) = score(run(script, scenario)).reactions
        return only

    def test_a_change_that_was_followed_at_once(self):
        reaction = self.reaction(lambda index: 0 if index >= 60 else 1)
        assert (reaction.at, reaction.due, reaction.took, reaction.within) == (60, 60, 0, 16)

    def test_a_change_that_was_followed_late(self):
        assert self.reaction(lambda index: 0 if index >= 71 else 1).took == 11

    def test_a_change_that_was_never_followed(self):
        assert self.reaction(lambda _: 1).took is None

    def test_a_change_back(self):
        back = replace(
            RAMP,
            load=lambda rounds, rng: ramp(40, 4, at=60, over=0, rounds=rounds),
            transitions=(Transition(at=60, turns="on", within=64),),
        )
        assert self.reaction(lambda index: 3 if index >= 65 else 0, back).took == 5
        assert self.reaction(lambda _: 0, back).took is None

    def test_a_look_is_not_a_change(self):
        # Plain for 5 rounds at round 64, and for good at 90.
        script = lambda index: 0 if 64 <= index < 69 or index >= 90 else 1  # noqa: E731
        assert self.reaction(script).took == 30

    def test_a_probe_is_not_a_change(self):
        script = lambda index: probe(0) if index % 2 and index < 90 else 1  # noqa: E731
        assert self.reaction(script).took is None

    def test_a_change_is_due_when_one_side_is_ahead(self):
        slow = replace(RAMP, load=lambda rounds, rng: ramp(4, 40, at=60, over=72, rounds=rounds))
        made = run(lambda _: 0, slow)
        reaction = score(made).reactions[0]
        rates = true_rates(made)
        assert 60 < reaction.due < 132
        assert rates[0, reaction.due] >= 1.05 * rates[1:, reaction.due].max()
        before = reaction.due - 1
        assert rates[0, before] < 1.05 * rates[1:, before].max()

    def test_a_change_that_never_comes_is_not_due(self):
        still = replace(RAMP, load=HALF.load)
        assert self.reaction(lambda _: 1, still).due is None


class TestWindows:
    def expected(self, made, start):
        """Work the share of the window from a round to the end out, at depth 1 up to round 110."""
        rates, seconds = true_rates(made), made.seconds
        tokens = (rates[1] * seconds)[start:110].sum() + (rates[0] * seconds)[110:].sum()
        return tokens / (rates.max(axis=0) * seconds)[start:].sum()

    @pytest.mark.parametrize(
        ("transitions", "start"),
        [((), 60), ((Transition(at=80, turns="off", within=16),), 80)],
    )
    def test_one_begins_at_a_transition_and_where_the_oracle_changes(self, transitions, start):
        scenario = replace(RAMP, transitions=transitions)
        made = run(lambda index: 0 if index >= 110 else 1, scenario)
        # The window that begins later holds less of what was lost, so the earlier one is worst.
        assert score(made).worst_window == pytest.approx(self.expected(made, 60))
        assert self.expected(made, 60) < self.expected(made, 80)
        still = replace(scenario, load=lambda rounds, rng: steady(40, rounds), warm_up=start)
        made = run(lambda index: 0 if index >= 110 else 1, still)
        assert score(made).worst_window == pytest.approx(self.expected(made, start))

    def test_a_transition_alone_begins_one(self):
        # The oracle never changes; 200 rounds from the warm-up on lose nothing.
        late = replace(
            RAMP,
            load=lambda rounds, rng: steady(40, rounds),
            horizon=400,
            transitions=(Transition(at=250, turns="off", within=16),),
        )
        made = run(lambda index: 1 if 250 <= index < 260 else 0, late)
        assert score(made).worst_window < 0.98
        assert score(run(lambda index: 1 if 215 <= index < 225 else 0, late)).worst_window == 1.0

    def test_the_time_a_slow_transition_allows_is_left_out(self):
        slow = replace(RAMP, transitions=(Transition(at=60, turns="off", within=201),))
        assert score(run(lambda index: 0 if index >= 110 else 1, slow)).worst_window == 1.0
