"""The rule of constructed pairs: what follows from a token, by value and by walking."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from sglang_dynspec_cpu.rule import PERIOD, Kind, Phase, Rule
from sglang_dynspec_cpu.tokenizer import FIRST_TEXT_ID

EVEN = Kind(name="even", phases=(Phase(share=1.0, agreement=(0.7,)),))
FADING = Kind(name="fading", phases=(Phase(share=1.0, agreement=(0.9, 0.6, 0.3)),))
TURNING = Kind(
    name="turning",
    phases=(Phase(share=0.25, agreement=(1.0,)), Phase(share=0.75, agreement=(0.2,))),
)
RULE = Rule(kinds=(EVEN, FADING, TURNING))


def agrees(token):
    return RULE.draft_token(token) == RULE.next_token(token)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_kinds_requests_walk_through_all_its_ids_and_no_others(kind):
    cycle = RULE.cycle(kind)
    first = FIRST_TEXT_ID + kind * PERIOD
    assert sorted(cycle) == list(range(first, first + PERIOD))
    assert tuple(RULE.answer(cycle[-1], PERIOD)) == cycle
    assert [RULE.next_token(token) for token in cycle] == [*cycle[1:], cycle[0]]
    assert {RULE.kind_of(token) for token in cycle} == {kind}


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_drafts_keep_to_the_kind_and_say_each_id_once(kind):
    assert sorted(RULE.drafted()[kind]) == sorted(RULE.cycle(kind))
    assert RULE.drafted()[kind] == [RULE.draft_token(token) for token in RULE.cycle(kind)]


@pytest.mark.parametrize("token", [0, 2, RULE.vocabulary, 10**6])
def test_ids_of_no_cycle_begin_the_first_one(token):
    first = RULE.cycle(0)
    assert RULE.kind_of(token) == 0
    assert RULE.next_token(token) == first[0]
    assert RULE.draft_token(token) == RULE.draft_token(first[-1])
    assert RULE.answer(token, 3) == list(first[:3])


def test_a_phase_has_the_agreement_that_was_asked_for():
    right = [agrees(token) for token in RULE.cycle(2)]
    quarter = PERIOD // 4
    assert all(right[:quarter])
    assert sum(right[quarter:]) == round(0.2 * 3 * quarter)


def test_a_row_of_chances_counts_from_the_last_wrong_draft():
    tried, right, run = Counter(), Counter(), 0
    for token in RULE.cycle(1):
        tried[run] += 1
        right[run] += agrees(token)
        run = run + 1 if agrees(token) else 0
    assert right[3] == 0
    rates = [right[run] / tried[run] for run in range(3)]
    # Four standard errors of so many trials, or less.
    assert rates == pytest.approx([0.9, 0.6, 0.3], abs=0.05)


def test_another_seed_has_other_wrong_drafts():
    other = replace(RULE, seed=1)
    assert other.drafted() != RULE.drafted()
    assert other.answer(5, 40) == RULE.answer(5, 40)


def by_walking(kind, laps, draw_depth):
    """Acceptance by position on one walk around the cycle, so many times."""
    tried, right, token = Counter(), Counter(), RULE.cycle(kind)[17]
    walked = 0
    while walked < laps * PERIOD:
        depth = draw_depth()
        (accepted,) = RULE.accepted(token, depth)
        for position in range(min(accepted + 1, depth)):
            tried[position] += 1
            right[position] += position < accepted
        token = RULE.answer(token, accepted + 1)[-1]
        walked += accepted + 1
    return [right[position] / tried[position] for position in sorted(tried)]


@pytest.mark.parametrize(("kind", "name"), [(0, "even"), (1, "fading"), (2, "turning")])
def test_acceptance_is_that_of_a_long_walk(kind, name):
    # A fixed depth repeats after a lap, so all that differs is where the walk begins and ends.
    walked = by_walking(kind, 5, lambda: 3)
    assert RULE.acceptance(name, {3: 1}) == pytest.approx(walked, abs=1e-3)


def test_acceptance_under_drawn_depths_is_that_of_a_long_walk():
    draw = random.Random(3)
    walked = by_walking(1, 30, lambda: draw.choice([0, 1, 3, 3]))
    assert RULE.acceptance("fading", {0: 1, 1: 1, 3: 2}) == pytest.approx(walked, abs=0.01)


def test_acceptance_by_position_is_the_row_of_chances_at_its_depth():
    # What was drawn, which differs from the chances by what 4096 ids allow.
    tried, right = Counter(), Counter()
    for token in RULE.cycle(1):
        if not agrees(token):
            (accepted,) = RULE.accepted(RULE.next_token(token), 3)
            tried.update(range(min(accepted + 1, 3)))
            right.update(range(accepted))
    drawn = [right[position] / tried[position] for position in range(3)]
    assert RULE.acceptance("fading", {3: 1}) == pytest.approx(drawn, abs=5e-3)
    # Shallower rounds begin elsewhere in a row, where the chances are worse.
    assert RULE.acceptance("fading", {1: 1})[0] < drawn[0] - 0.1


def test_acceptance_where_drafts_are_always_or_never_right():
    sure = Kind(name="sure", phases=(Phase(share=1.0, agreement=(1.0,)),))
    lost = Kind(name="lost", phases=(Phase(share=1.0, agreement=(0.0,)),))
    rule = Rule(kinds=(sure, lost))
    assert rule.acceptance("sure", {3: 1}) == (1.0, 1.0, 1.0)
    # The second position is never tried.
    assert rule.acceptance("lost", {3: 1}) == (0.0,)
    assert rule.accepted(rule.cycle(0)[0], 5, 3) == (5, 5, 5)
    assert rule.accepted(rule.cycle(1)[0], 5, 3) == (0, 0, 0)


def test_a_prompt_is_of_its_kind():
    prompts = [RULE.prompt("turning", 40, random.Random(seed)) for seed in range(60)]
    assert {len(prompt) for prompt in prompts} == {40}
    assert {RULE.kind_of(prompt[-1]) for prompt in prompts} == {2}
    assert len({prompt[-1] for prompt in prompts}) > 50
    others = [token for prompt in prompts for token in prompt[:-1]]
    assert {RULE.kind_of(token) for token in others} == {0, 1, 2}
    assert min(others) >= FIRST_TEXT_ID
    assert max(others) < RULE.vocabulary
    assert RULE.prompt("turning", 40, random.Random(3)) == prompts[3]


def test_a_prompt_may_begin_as_others_do_and_hold_any_id():
    prefix = [7, 8, 9]
    draw = random.Random(1)
    long = RULE.prompt("even", 500, draw, vocabulary=100_000, prefix=prefix)
    assert long[:3] == prefix
    assert len(long) == 500
    assert max(long) > RULE.vocabulary
    assert len(RULE.prompt("even", 4, draw, prefix=prefix)) == 4
    with pytest.raises(ValueError, match="the prefix's 3 ids and 1 more; found 3"):
        RULE.prompt("even", 3, draw, prefix=prefix)


def test_a_prompt_walks_for_as_long_as_the_models_remember():
    rule = replace(RULE, memory=3)
    prompt = rule.prompt("fading", 10, random.Random(2), prefix=[7, 8, 9])
    assert len(prompt) == 10
    assert prompt[-3:] == rule.answer(prompt[-4], 3)
    assert rule.kind_of(prompt[-4]) == 1
    assert prompt[-4] != rule.next_token(prompt[-5])
    assert len(rule.prompt("fading", 4, random.Random(2))) == 4
    with pytest.raises(ValueError, match="0 ids and 4 more; found 3"):
        rule.prompt("fading", 3, random.Random(2))


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ((), r"expected kinds of different names; found \[\]"),
        ((EVEN, EVEN), "found .'even', 'even'"),
        ((replace(EVEN, phases=()),), r"found \[\] in 'even'"),
        ((replace(EVEN, phases=TURNING.phases[1:]),), r"add up to 1; found \[0.75\]"),
        ((replace(EVEN, phases=(Phase(share=1.0, agreement=()),)),), "found none in 'even'"),
        ((replace(EVEN, phases=(Phase(share=1.0, agreement=(0.5, -1)),)),), "found 0.5, -1 in"),
    ],
)
def test_a_rule_that_is_none_is_refused(kinds, message):
    with pytest.raises(ValueError, match=message):
        Rule(kinds=kinds)


def test_a_kind_that_is_none_is_refused():
    for ask in (
        lambda: RULE.acceptance("odd", {3: 1}),
        lambda: RULE.prompt("odd", 5, random.Random(0)),
    ):
        with pytest.raises(ValueError, match="among even, fading, turning; found 'odd'"):
            ask()
