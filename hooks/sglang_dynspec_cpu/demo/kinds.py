"""How many drafts were right, by kind of prompt."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from sglang_dynspec_cpu.demo.load import Ramp

_UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """What became of the drafts for one kind of prompt."""

    kind: str
    answers: int
    #: Tokens of the answers.
    tokens: int
    #: Rounds of its requests, each counted once for every request in it.
    rounds: int
    #: Share of them whose first draft was right, 0 to 1; None without any.
    first_draft: float | None
    #: Mean tokens a request advances in one, 1 + mean accepted drafts; None without any.
    accepted_length: float | None

    def as_json(self) -> dict[str, Any]:
        """Give the row as plain JSON types."""
        return asdict(self)


def kind_rows(ramp: Ramp) -> list[KindRow]:
    """
    Summarise the answers of a load by kind of prompt.

    Args:
        ramp: A load that was driven.

    Returns:
        A row for each kind, in the order of the requests that were sent to be measured; none
        without them.
    """
    if ramp.measured is None:
        return []
    rows = []
    for kind in dict.fromkeys(request.kind for request in ramp.measured.requests):
        given = [
            ramp.measured.answers[each.number]
            for each in ramp.measured.requests
            if each.kind == kind
        ]
        histogram = _sum(answer.accepted for answer in given)
        rounds = histogram.total()
        drafts = sum(accepted * count for accepted, count in histogram.items())
        rows.append(
            KindRow(
                kind=kind,
                answers=len(given),
                tokens=sum(len(answer.token_ids) for answer in given),
                rounds=rounds,
                first_draft=1 - histogram[0] / rounds if rounds else None,
                accepted_length=1 + drafts / rounds if rounds else None,
            )
        )
    return rows


def kind_table(rows: Iterable[KindRow]) -> Table:
    """Lay the rows out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title="how good the drafts are, by kind of prompt")
    table.caption = "some of the prompts again, with every round speculative"
    table.add_column("prompts")
    for title in (
        "answers",
        "tokens",
        "rounds",
        "first draft right",
        "accepted length",
    ):
        table.add_column(title, justify="right")
    for row in rows:
        first = _UNKNOWN if row.first_draft is None else f"{row.first_draft:.0%}"
        length = _UNKNOWN if row.accepted_length is None else f"{row.accepted_length:.2f}"
        table.add_row(
            row.kind, str(row.answers), f"{row.tokens:,}", f"{row.rounds:,}", first, length
        )
    return table


def _sum(histograms: Iterable[tuple[int, ...]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(dict(enumerate(histogram)))
    return total
