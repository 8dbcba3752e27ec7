"""What is learned of acceptance, round by round."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_dynspec import Outcome
from sglang_dynspec.estimates.acceptance import AcceptanceModel


def ran(depth, accepted, index=0, **fields):
    return Outcome(
        round=index,
        depth=depth,
        planned=depth,
        batch_size=len(accepted),
        accepted=tuple(accepted),
        tokens=len(accepted) + sum(accepted),
        **fields,
    )


def plain(guesses=0, right=0, **fields):
    return Outcome(
        round=0,
        depth=0,
        planned=0,
        batch_size=1,
        accepted=(),
        tokens=1,
        guesses=guesses,
        right_guesses=right,
        **fields,
    )


def drawn(draw, rates, batch_size):
    """Draw accepted drafts: rates by position, as long as the depth."""
    accepted = []
    for _ in range(batch_size):
        right = 0
        while right < len(rates) and draw.random() < rates[right]:
            right += 1
        accepted.append(right)
    return accepted


def rounds_until_a_change(model, outcome):
    """Count rounds until one is noticed, 100 at most."""
    return next((index for index in range(1, 101) if model.observe(outcome)), 100)


def trials(model):
    return [(proportion.right, proportion.trials) for proportion in model._pool]


class TestCounting:
    def test_what_a_round_says_of_each_position(self):
        model = AcceptanceModel(3)
        model.observe(ran(3, (3, 1, 0, 1)))
        # Position 1: four tried it, one failed. Two of the other three failed at position 2.
        assert trials(model) == [(3, 4), (1, 3), (1, 1)]

    def test_nothing_is_said_past_the_depth_that_ran(self):
        model = AcceptanceModel(3)
        model.observe(ran(1, (1, 1, 0)))
        assert trials(model) == [(2, 3), (0, 0), (0, 0)]

    def test_all_wrong_says_nothing_of_later_positions(self):
        model = AcceptanceModel(2)
        model.observe(ran(2, (0, 0)))
        assert trials(model) == [(0, 2), (0, 0)]

    def test_guesses_are_trials_of_the_first_position(self):
        model = AcceptanceModel(2)
        model.observe(plain(guesses=8, right=6))
        assert trials(model) == [(6, 8), (0, 0)]

    @pytest.mark.parametrize(
        "outcome",
        [
            ran(2, (3, 0)),
            ran(2, (-1, 0)),
            ran(5, (1, 1)),
            plain(guesses=2, right=3),
            plain(guesses=2, right=-1),
            plain(guesses=-2, right=0),
            plain(),
        ],
        ids=["more than drafted", "negative", "too deep", "3 of 2", "-1 of 2", "-2", "none"],
    )
    def test_what_cannot_be_is_not_counted(self, outcome):
        model = AcceptanceModel(3)
        assert model.observe(outcome) is False
        assert trials(model) == [(0, 0)] * 3

    def test_any_mixture_of_depths_gives_the_same_rates(self):
        draw = random.Random(1)
        rates = (0.8, 0.5, 0.7)
        model = AcceptanceModel(3)
        for index in range(600):
            depth = draw.choice((1, 2, 3))
            model.observe(ran(depth, drawn(draw, rates[:depth], 16), index))
        assert model.changes == 0
        assert model.expected().rates == pytest.approx(rates, abs=0.03)


class TestExpected:
    def test_tokens_are_sums_of_products(self):
        model = AcceptanceModel(3)
        for index in range(200):
            model.observe(ran(3, (3, 0, 1, 2), index))
        first, second, third = model.expected().rates
        assert (first, second, third) == pytest.approx((0.75, 2 / 3, 0.5), abs=0.01)
        assert model.expected().tokens == pytest.approx(
            [1, 1 + first, 1 + first + first * second, 1 + first + first * second * (1 + third)]
        )
        # 1 + 0.75 + 0.5 + 0.25
        assert model.expected().tokens[3] == pytest.approx(2.5, abs=0.01)

    def test_requests_of_one_length_are_what_all_are(self):
        told, untold = AcceptanceModel(2), AcceptanceModel(2)
        told.observe(ran(2, (2, 0, 1), seq_lens=(100, 200, 900)))
        untold.observe(ran(2, (2, 0, 1)))
        assert told.expected() == untold.expected()

    def test_before_anything_is_known(self):
        expected = AcceptanceModel(2).expected()
        assert expected.rates == [0.6, 0.6]
        assert min(expected.errors) > 0.2

    def test_a_position_never_tried_is_like_the_one_before_it_but_less_sure(self):
        model = AcceptanceModel(3)
        for index in range(300):
            model.observe(ran(1, (1, 1, 1, 0), index))
        expected = model.expected()
        assert expected.rates == pytest.approx([0.75] * 3, abs=0.01)
        assert (expected.errors[0] < 0.02, expected.errors[2] > 0.2) == (True, True)

    def test_errors_shrink_with_trials_and_grow_without(self):
        model = AcceptanceModel(2)
        errors = []
        for rounds, depth in ((10, 2), (190, 2), (2000, 1)):
            for index in range(rounds):
                model.observe(ran(depth, (depth, 0, depth, depth), index))
            errors.append(model.expected().errors[1])
        assert errors[1] < errors[0] / 3
        assert errors[2] > errors[1] * 2

    def test_the_error_of_a_ratio_follows_its_slopes(self):
        model = AcceptanceModel(3)
        for index in range(100):
            model.observe(ran(3, (3, 0, 1, 2), index))
        expected = model.expected()
        a, b, c = expected.rates
        full = 1 + a + a * b + a * b * c
        # d ln(E(3) / E(1)) / d a_j
        slopes = (1 + b + b * c) / full - 1 / (1 + a), (a + a * c) / full, a * b / full
        by_hand = sum((s * e) ** 2 for s, e in zip(slopes, expected.errors, strict=True)) ** 0.5
        assert expected.error(3, 1) == pytest.approx(by_hand)
        assert expected.error(1, 3) == pytest.approx(by_hand)
        assert expected.error(2, 2) == 0.0

    def test_hope_where_little_was_tried_and_fear_after_a_fall(self):
        model = AcceptanceModel(1)
        assert model.expected().hopeful[1] > model.expected().tokens[1] + 0.1
        for index in range(200):
            model.observe(ran(1, (1, 1, 1, 0), index))
        assert model.expected().hopeful[1] == pytest.approx(model.expected().tokens[1], abs=0.02)
        rounds_until_a_change(model, ran(1, (0, 0, 0, 0)))
        assert model.expected().hopeful[1] < model.expected().tokens[1]


class TestChange:
    @pytest.mark.parametrize(("batch_size", "within"), [(1, 20), (8, 3), (256, 1)])
    def test_a_collapse_is_found(self, batch_size, within):
        draw = random.Random(2)
        model = AcceptanceModel(3)
        for index in range(1000):
            model.observe(ran(3, drawn(draw, (0.7, 0.6, 0.5), batch_size), index))
        assert model.changes == 0
        assert rounds_until_a_change(model, ran(3, (0,) * batch_size)) <= within
        assert model.expected().tokens[3] < 1.25

    def test_a_recovery_is_found_by_guesses_alone(self):
        draw = random.Random(3)
        model = AcceptanceModel(3)
        for index in range(400):
            model.observe(ran(3, drawn(draw, (0.02, 0.5, 0.5), 4), index))
        before = model.expected().tokens[3]
        assert rounds_until_a_change(model, plain(guesses=4, right=3)) <= 5
        assert model.expected().tokens[3] > before + 0.8

    @pytest.mark.parametrize("batch_size", [1, 16, 128])
    def test_chance_is_no_change(self, batch_size):
        draw = random.Random(4)
        model = AcceptanceModel(1)
        for index in range(3000):
            model.observe(ran(1, drawn(draw, (0.6,), batch_size), index))
        assert model.changes == 0

    def test_it_puts_later_positions_in_doubt(self):
        model = AcceptanceModel(2)
        for index in range(200):
            model.observe(ran(2, (2, 2, 1, 0), index))
        rounds_until_a_change(model, ran(1, (0, 0, 0, 0)))
        assert model._pool[1].trials == 4
        # What is left says little beside what became of the first position.
        assert model.expected().rates[1] < 0.5

    def test_it_is_one_at_any_length(self):
        model = AcceptanceModel(1)
        lengths = (500, 2000, 9000, 50_000) * 2
        for index in range(200):
            accepted = [int((place + index) % 4 > 0) for place in range(8)]
            model.observe(ran(1, accepted, index, seq_lens=lengths))
        # One guess a round is a quarter of a trial at each length: too few to notice by itself.
        for _ in range(20):
            model.observe(plain(guesses=1, right=0))
        assert model.expected().tokens[1] < 1.25

    def test_drift_is_followed(self):
        draw = random.Random(5)
        model = AcceptanceModel(1)
        for index in range(800):
            model.observe(ran(1, drawn(draw, (0.9 - 0.5 * index / 800,), 64), index))
        # 48 rounds of memory lag behind by 0.03.
        assert model.expected().rates[0] == pytest.approx(0.4, abs=0.05)

    def test_a_moved_first_position_makes_later_ones_doubtful(self):
        model = AcceptanceModel(2)
        for index in range(300):
            model.observe(ran(2, (1, 0, 1, 0, 1, 0, 2, 0), index))
        assert model.expected().rates[1] == pytest.approx(0.25, abs=0.01)
        for index in range(300):
            model.observe(ran(1, (1, 1, 1, 1, 1, 1, 1, 0), index))
        assert model.expected().rates[1] > 0.7


class TestLengths:
    SHORT, LONG = 500, 9000

    def learned(self):
        draw = random.Random(6)
        model = AcceptanceModel(1)
        lengths = (self.SHORT,) * 8 + (self.LONG,) * 8
        for index in range(400):
            accepted = drawn(draw, (0.8,), 8) + drawn(draw, (0.2,), 8)
            model.observe(ran(1, accepted, index, seq_lens=lengths))
        return model

    def test_a_mixture_weighs_by_requests(self):
        model = self.learned()
        assert model.expected().tokens[1] == pytest.approx(1.5, abs=0.03)

    @pytest.mark.parametrize(("length", "rate"), [(SHORT, 0.8), (LONG, 0.2)])
    def test_another_mixture_is_predicted_before_it_has_run(self, length, rate):
        model = self.learned()
        model.observe(plain(seq_lens=(length,) * 16))
        assert model.expected().tokens[1] == pytest.approx(1 + rate, abs=0.05)

    def test_a_bucket_never_seen_is_like_all(self):
        model = self.learned()
        model.observe(plain(seq_lens=(200_000,) * 16))
        assert model.expected().tokens[1] == pytest.approx(1.5, abs=0.06)

    def test_one_bucket_alone_is_not_told_apart(self):
        model = AcceptanceModel(1)
        model.observe(ran(1, (1, 0), seq_lens=(600, 1000)))
        assert model._by_length == []
        model.observe(ran(1, (1, 0), seq_lens=(600, 1025)))
        assert len(model._by_length) == 5


numbers = st.integers(-3, 12)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 9),
            st.lists(numbers, max_size=6),
            numbers,
            numbers,
            st.lists(st.integers(-5, 2**80), max_size=6),
        ),
        max_size=40,
    )
)
def test_no_outcome_poisons_it(rounds):
    model = AcceptanceModel(5)
    for index, (depth, accepted, guesses, right, lengths) in enumerate(rounds):
        model.observe(
            Outcome(
                round=index,
                depth=depth,
                planned=depth,
                batch_size=len(accepted),
                accepted=tuple(accepted),
                tokens=sum(accepted),
                guesses=guesses,
                right_guesses=right,
                seq_lens=tuple(lengths),
            )
        )
    expected = model.expected()
    assert all(0.0 <= rate <= 1.0 for rate in expected.rates)
    assert all(0.0 < error < 1.0 for error in expected.errors)
    assert expected.tokens == sorted(expected.tokens)
    assert all(1.0 - 1e-9 <= value <= 6.0 + 1e-9 for value in (*expected.tokens, *expected.hopeful))
