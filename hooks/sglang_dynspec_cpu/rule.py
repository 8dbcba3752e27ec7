"""
The rule that a constructed pair follows: what the target and its drafts say after each token.

The text ids are divided into cycles, one for each *kind* of request. After an id of a cycle the
target says the next id of the cycle, so a request stays in the cycle of its prompt's last token.
The drafts say the same after some of the ids and something else after the others. Which ids these
are is drawn once, phase by phase around the cycle. So all that happens follows from a token: what
the answer is, how many drafts of a round are right, and how often in the long run.
"""

import functools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator

from sglang_dynspec_cpu.tokenizer import FIRST_TEXT_ID

#: Number of ids in a cycle.
PERIOD = 4096
# Full period modulo 2^12: the increment is odd, the multiplier is 1 modulo 4.
_MULTIPLIER, _INCREMENT = 1229, 851


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of a cycle, and how often drafts are right there."""

    #: Share of the cycle, above 0 to 1.
    share: float
    #: One number: the share of the phase's ids after which drafts are right, strewn at random.
    #: More: the chance that they are right after an id when they were so after none, one, two, ...
    #: ids since the last after which they were wrong; past the last number they are wrong. So a
    #: round as deep as there are numbers has these as its acceptance by position.
    agreement: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Requests that are alike: their cycle's phases, in order."""

    name: str
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    What is said after each token, for all kinds.

    Args:
        kinds: One or more; each has the next `PERIOD` of the text ids.
        seed: Decides after which ids drafts are right.
        memory: How many ids of its cycle a prompt must end with, besides the last one.

    Raises:
        ValueError: When kinds are missing, share a name, or have phases that are no shares.
    """

    kinds: tuple[Kind, ...]
    seed: int = 0
    memory: int = 0

    def __post_init__(self) -> None:
        names = [kind.name for kind in self.kinds]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"expected kinds of different names; found {names}; name each its own")
        for kind in self.kinds:
            shares = [phase.share for phase in kind.phases]
            if min(shares, default=0) <= 0 or not math.isclose(sum(shares), 1, rel_tol=1e-6):
                raise ValueError(
                    f"expected shares above 0 that add up to 1; found {shares} in {kind.name!r}; "
                    f"divide the cycle among its phases"
                )
            for agreement in (phase.agreement for phase in kind.phases):
                if not agreement or not all(0 <= chance <= 1 for chance in agreement):
                    found = ", ".join(map(str, agreement)) or "none"
                    raise ValueError(
                        f"expected an agreement of 0 to 1; found {found} in {kind.name!r}; pass "
                        f"shares"
                    )

    @property
    def vocabulary(self) -> int:
        """The smallest vocabulary that has all the ids."""
        return FIRST_TEXT_ID + PERIOD * len(self.kinds)

    def cycle(self, kind: int) -> tuple[int, ...]:
        """Return the ids of a kind, by its index, in the order of the cycle."""
        first = FIRST_TEXT_ID + kind * PERIOD
        return tuple(first + value for value in _order())

    def kind_of(self, token: int) -> int:
        """Return the index of the kind whose cycle a token lies in."""
        return self._at(token)[0]

    def next_token(self, token: int) -> int:
        """Return what the target says after ``token``; ids of no cycle begin the first one."""
        kind, place = self._at(token)
        return self._id(kind, place + 1)

    def draft_token(self, token: int) -> int:
        """Return what the drafts say after ``token``."""
        kind, place = self._at(token)
        return self._id(kind, _drafted(self)[kind][place])

    def drafted(self) -> list[list[int]]:
        """Return what the drafts say after each id of each cycle, in the cycle's order."""
        return [
            [self._id(kind, place) for place in places]
            for kind, places in enumerate(_drafted(self))
        ]

    def answer(self, token: int, count: int) -> list[int]:
        """Return the ``count`` ids that the target says after a prompt that ends in ``token``."""
        kind, place = self._at(token)
        return [self._id(kind, place + step) for step in range(1, count + 1)]

    def accepted(self, token: int, depth: int, rounds: int = 1) -> tuple[int, ...]:
        """
        Walk the cycle: how many drafts are accepted, round after round.

        Args:
            token: The newest token before the first round.
            depth: Draft steps per round.
            rounds: How many rounds.

        Returns:
            Accepted drafts of each round.
        """
        kind, place = self._at(token)
        right, found = _right(self)[kind], []
        for _ in range(rounds):
            found.append(_run(right, place, depth))
            # The target's own token ends the round.
            place += found[-1] + 1
        return tuple(found)

    def acceptance(self, kind: str, depths: Mapping[int, float]) -> tuple[float, ...]:
        """
        Work out a kind's acceptance by position, in the long run.

        Args:
            kind: Its name.
            depths: Candidate depths to their chances: each round has one of its own, drawn
                whatever the depths before it were.

        Returns:
            For each position, up to the largest depth, how likely its draft is right given that
            all before it were; it ends before a position that is never tried.

        Raises:
            ValueError: When there is no such kind.
        """
        right = _right(self)[self._index(kind)]
        deepest = max(depths)
        total = sum(depths.values())
        # The chance that a round begins at each place, on a walk twice around the cycle. The first
        # lap forgets where the walk began.
        begins = [0.0] * (2 * PERIOD + deepest + 1)
        begins[0] = 1.0
        tried, succeeded = [0.0] * deepest, [0.0] * deepest
        for place in range(2 * PERIOD):
            for depth, weight in depths.items():
                chance = begins[place] * weight / total
                accepted = _run(right, place, depth)
                begins[place + accepted + 1] += chance
                if place >= PERIOD:
                    for position in range(min(accepted + 1, depth)):
                        tried[position] += chance
                        succeeded[position] += chance * (position < accepted)
        return tuple(good / all_ for good, all_ in zip(succeeded, tried, strict=True) if all_)

    def prompt(
        self,
        kind: str,
        length: int,
        draw: random.Random,
        *,
        vocabulary: int | None = None,
        prefix: Sequence[int] = (),
    ) -> list[int]:
        """
        Draw a prompt of a kind: text ids of any kind, then its cycle from some place on.

        Args:
            kind: Its name.
            length: Ids of the prompt, prefix included.
            draw: Where the chances come from.
            vocabulary: Ids of the model; None for `vocabulary`.
            prefix: What the prompt begins with.

        Raises:
            ValueError: When there is no such kind, or the length has no room for them.
        """
        free = length - len(prefix) - self.memory - 1
        if free < 0:
            raise ValueError(
                f"expected a length of the prefix's {len(prefix)} ids and {self.memory + 1} more; "
                f"found {length}; raise it"
            )
        index, place = self._index(kind), draw.randrange(PERIOD)
        ids = range(FIRST_TEXT_ID, self.vocabulary if vocabulary is None else vocabulary)
        walk = [self._id(index, place + step) for step in range(self.memory + 1)]
        return [*prefix, *(draw.choice(ids) for _ in range(free)), *walk]

    def _index(self, name: str) -> int:
        names = [kind.name for kind in self.kinds]
        if name not in names:
            raise ValueError(f"expected a kind among {', '.join(names)}; found {name!r}; name one")
        return names.index(name)

    def _at(self, token: int) -> tuple[int, int]:
        """Return kind and place of a token; of one without, what comes before the first place."""
        kind, value = divmod(token - FIRST_TEXT_ID, PERIOD)
        if not 0 <= kind < len(self.kinds):
            return 0, PERIOD - 1
        return kind, _place_of()[value]

    def _id(self, kind: int, place: int) -> int:
        return FIRST_TEXT_ID + kind * PERIOD + _order()[place % PERIOD]


def _run(right: list[bool], place: int, most: int) -> int:
    """Return how many drafts in a row, up to ``most``, are right from a place on."""
    for count in range(most):
        if not right[(place + count) % PERIOD]:
            return count
    return most


@functools.cache
def _order() -> tuple[int, ...]:
    """Return what stands at each place of a cycle, relative to the cycle's first id."""
    values, value = [], 0
    for _ in range(PERIOD):
        values.append(value)
        value = (_MULTIPLIER * value + _INCREMENT) % PERIOD
    return tuple(values)


@functools.cache
def _place_of() -> tuple[int, ...]:
    """Return the place of each id, relative to the cycle's first id."""
    places = [0] * PERIOD
    for place, value in enumerate(_order()):
        places[value] = place
    return tuple(places)


@functools.cache
def _right(rule: Rule) -> list[list[bool]]:
    """Return for each kind after which places the drafts are right."""
    generator = Generator().manual_seed(rule.seed)
    found = []
    for kind in rule.kinds:
        right: list[bool] = []
        end = 0.0
        for phase in kind.phases:
            end += phase.share
            right += _phase(phase.agreement, round(end * PERIOD) - len(right), generator)
        # One wrong place alone cannot be: it has no other's id to say.
        found.append(right if right.count(False) > 1 else [True] * PERIOD)
    return found


def _phase(agreement: tuple[float, ...], places: int, generator: Generator) -> list[bool]:
    if len(agreement) == 1:
        right = [True] * places
        wrong = round((1 - agreement[0]) * places)
        for place in torch.randperm(places, generator=generator)[:wrong].tolist():
            right[place] = False
        return right
    right, run = [], 0
    for chance in torch.rand(places, generator=generator).tolist():
        right.append(run < len(agreement) and chance < agreement[run])
        run = run + 1 if right[-1] else 0
    return right


@functools.cache
def _drafted(rule: Rule) -> list[list[int]]:
    """Return for each kind the place whose id the drafts say after each place."""
    found = []
    for right in _right(rule):
        drafted = list(range(1, PERIOD + 1))
        wrong = [place for place in range(PERIOD) if not right[place]]
        for place, before in zip(wrong, [*wrong[-1:], *wrong[:-1]], strict=True):
            drafted[place] = before + 1
        found.append(drafted)
    return found
