"""
What the tables of worlds are written with.
"""

from dataclasses import replace
from typing import Any, Final

from sglang_dynspec.simulator.drafts import Kind, geometric
from sglang_dynspec.simulator.server import H200_8B
from sglang_dynspec.simulator.service import Habit, Load, Moves, Requests, World
from sglang_dynspec.simulator.service.load import held

#: Drafts of which a round of depth 3 gives 1.6 and 2.6 tokens, as in what was measured.
A16: Final = geometric(0.42, 0.85).kinds
A26: Final = geometric(0.74, 0.95).kinds

#: 1.6 tokens at every depth: as SGLang simulates them, the first draft alone may be right.
SIMULATED: Final = (Kind(positions=(0.6, 0.0)),)

#: Drafts that are hardly ever right.
HOPELESS: Final = geometric(0.12, 0.8).kinds

#: Code and chat.
CODE: Final = (0.9, 0.9, 0.9)
CHAT: Final = (0.1, 0.1, 0.1)

#: Outputs so long that next to no round follows a prefill.
LONG: Final = (3000, 4000, 6000)

#: An H200 whose rounds cost the same however long contexts are, for such outputs: what is measured
#: in steady decoding is measured at short contexts.
AT_SHORT_CONTEXTS: Final = replace(H200_8B, name="h200-8b-short-contexts", context=0.0)

#: Outputs of a burst that lasts some 60 rounds.
BRIEF: Final = (24, 48, 72)


def world(kind: str, name: str, summary: str, /, **fields: Any) -> World:
    """
    Make a world; an H200 unless told otherwise.

    With `LONG` outputs it has been running, and contexts cost nothing.

    Args:
        kind: Its kind.

        name: What to call it, after its kind.

        summary: What is special about it.

        **fields: ``clients`` of its closed loop or ``rate`` of its Poisson arrivals, each a number
            or `Moves`; ``kinds``, ``output`` and ``prompt`` of its `Requests`; and fields of
            `World`, ``seconds`` being 20 unless given.
    """
    load = Load(
        clients=_moving(fields.pop("clients", None)), rate=_moving(fields.pop("rate", None))
    )
    requests = Requests(
        kinds=fields.pop("kinds", A16),
        **{part: fields.pop(part) for part in ("output", "prompt") if part in fields},
    )
    long = requests.output == LONG
    usual: dict[str, Any] = {
        "server": AT_SHORT_CONTEXTS if long else H200_8B,
        "running": long,
        "seconds": 20.0,
    }
    return World(
        name=f"{kind}-{name}",
        kind=kind,
        summary=summary,
        requests=requests,
        load=load,
        **usual | fields,
    )


def steps(*knots: tuple[float, float], every: float | None = None) -> Moves:
    """
    Make a number that is held between moments.

    Args:
        *knots: Second and value.

        every: Seconds after which it begins anew.
    """
    return Moves(knots=knots, every=every)


def slopes(*knots: tuple[float, float], every: float | None = None) -> Moves:
    """
    Make a number that moves on lines between moments.

    Args:
        *knots: Second and value.

        every: Seconds after which it begins anew.
    """
    return Moves(knots=knots, sloping=True, every=every)


def staged(kinds: tuple[Kind, ...], *stages: tuple[int, float]) -> tuple[Kind, ...]:
    """
    Give kinds stages.

    Args:
        kinds: The kinds.

        *stages: First token and level of each.
    """
    return tuple(Habit(share=kind.share, positions=kind.positions, stages=stages) for kind in kinds)


def mixed(*parts: tuple[float, tuple[float, ...]]) -> tuple[Kind, ...]:
    """
    Mix kinds.

    Args:
        *parts: Share of each, and its acceptance by position.
    """
    return tuple(Kind(share=share, positions=positions) for share, positions in parts)


def _moving(value: float | Moves | None) -> Moves | None:
    return held(value) if isinstance(value, int | float) else value
