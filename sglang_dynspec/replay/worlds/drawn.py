"""
Worlds that are drawn, from broad priors over everything that a world has.

**The worlds of `PUBLISHED_SEED` are not to be looked at while a policy is tuned.** Neither they nor
figures on them: they are scored once, at the end, and what comes out is published. Whoever wants to
look at worlds like these draws them with another seed.
"""

import re
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sglang_dynspec.simulator.server import H200_8B, NVLINK_MOE, PCIE_1T, SMALL_GPU
from sglang_dynspec.simulator.service import Bend, Habit, Load, Modes, Moves, Requests, Slow, World
from sglang_dynspec.simulator.service.pace import Pace

#: What is published is of this seed and so many worlds. Not to be looked at while tuning.
PUBLISHED_SEED: Final = 20261201
PUBLISHED: Final = 100

_NAME: Final = re.compile(r"drawn-(\d+)-(\d{3})")

#: Rounds that a world is to last, about.
_ROUNDS: Final = 2500

_DEPTHS: Final = ((0, 1, 3), (0, 1, 3), (0, 1, 2, 3), (0, 3), (0, 2), (0, 1, 3, 5), (0, 1, 3, 5, 7))


def drawn(seed: int, count: int) -> tuple[World, ...]:
    """
    Draw worlds.

    Args:
        seed: Decides them. Not `PUBLISHED_SEED` while a policy is tuned.

        count: How many, at most 1000. Fewer are the beginning of more.

    Returns:
        The worlds, of the kind ``drawn``.
    """
    return tuple(_draw(seed, index) for index in range(count))


def find_drawn(name: str) -> World | None:
    """
    Find a world that was drawn, by its name.

    Args:
        name: ``drawn-SEED-NUMBER``.

    Returns:
        The world; None if the name is no such name.
    """
    match = _NAME.fullmatch(name)
    return None if match is None else _draw(int(match[1]), int(match[2]))


@lru_cache(maxsize=256)
def _draw(seed: int, index: int) -> World:
    rng = np.random.default_rng([seed, index])
    server = _one(rng, (H200_8B,) * 5 + (SMALL_GPU, SMALL_GPU, NVLINK_MOE, PCIE_1T))
    small = server in (SMALL_GPU, PCIE_1T)
    round_seconds = 0.04 if small else 0.014
    seconds = float(np.round(_ROUNDS * round_seconds, 1))
    depths = _one(rng, _DEPTHS)
    clients, rate = _load(rng, seconds, most=64 if small else 230)
    return World(
        name=f"drawn-{seed}-{index:03d}",
        kind="drawn",
        summary=f"{server.name}, depths {', '.join(map(str, depths))}",
        server=server,
        requests=_requests(rng),
        load=Load(clients=clients, rate=rate),
        seconds=seconds,
        depths=depths,
        bends=_bends(rng, depths),
        level=_level(rng, seconds),
        pace=_pace(rng, seconds, depths),
        upkeep_window=0 if _chance(rng, 0.08) else None,
        stale=float(rng.uniform(0.1, 0.7)),
        freshening=float(_log(rng, 6.0, 60.0)),
        reentry=float(rng.uniform(0.0, 0.003)),
        prefill=(float(_log(rng, 0.004, 0.025)), float(_log(rng, 1.0e-5, 6.0e-5))),
        cold=float(_log(rng, 0.04, 0.25)) if _chance(rng, 0.3) else 0.0,
        running=_chance(rng, 0.5),
        noise=float(_log(rng, 0.01, 0.08)),
        outliers=float(_log(rng, 0.001, 0.02)),
    )


def _one(rng: np.random.Generator, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _chance(rng: np.random.Generator, share: float) -> bool:
    return bool(rng.random() < share)


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniformly distributed."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _load(
    rng: np.random.Generator, seconds: float, *, most: int
) -> tuple[Moves | None, Moves | None]:
    """Draw clients, or a rate; held, in steps, on slopes, or again and again."""
    closed = _chance(rng, 0.8)
    low, high = (1.0, float(most)) if closed else (0.1 * most / 10, 0.45 * most)
    shape = _one(rng, ("held", "held", "steps", "slopes", "again"))
    count = {"held": 1, "again": 2}.get(shape, int(rng.integers(2, 6)))
    values = [_log(rng, low, high) for _ in range(count)]
    if closed:
        values = [float(round(value)) for value in values]
    every = float(_log(rng, 0.6, 10.0)) if shape == "again" else None
    span = seconds if every is None else every
    begins = np.sort(rng.random(count - 1)) * span
    knots = ((0.0, values[0]), *zip(begins.tolist(), values[1:], strict=True))
    moves = Moves(knots=knots, sloping=shape == "slopes", every=every)
    return (moves, None) if closed else (None, moves)


def _requests(rng: np.random.Generator) -> Requests:
    kinds = []
    count = _one(rng, (1, 1, 2, 2, 3))
    for share in rng.dirichlet(np.full(count, 2.0)).tolist():
        first, decay = rng.uniform(0.05, 0.95), rng.uniform(0.75, 1.0)
        positions = tuple(float(first * decay**position) for position in range(8))
        kinds.append(Habit(share=share, positions=positions, stages=_stages(rng)))
    median = int(_log(rng, 12.0, 1500.0))
    prompt = int(_log(rng, 16.0, 2000.0))
    return Requests(
        kinds=tuple(kinds),
        prompt=(max(prompt // 2, 1), prompt * 3 // 2),
        output=(max(median // 5, 2), median, median * 4),
        spread=float(rng.uniform(0.1, 0.9)),
    )


def _stages(rng: np.random.Generator) -> tuple[tuple[int, float], ...]:
    """Draw none for most; poor first drafts, or several stages, for some."""
    if _chance(rng, 0.6):
        return ((0, 1.0),)
    if _chance(rng, 0.5):
        return ((0, float(rng.uniform(0.1, 0.7))), (int(_log(rng, 4.0, 40.0)), 1.0))
    length = int(_log(rng, 30.0, 300.0))
    return tuple((place * length, float(rng.uniform(0.2, 1.0))) for place in range(4))


def _bends(rng: np.random.Generator, depths: tuple[int, ...]) -> tuple[Bend, ...]:
    count = _one(rng, (0, 0, 0, 1, 2))
    bends = []
    for _ in range(count):
        begin = int(_log(rng, 4.0, 200.0))
        chosen = tuple(depth for depth in depths if _chance(rng, 0.5))
        factor = float(_log(rng, 0.65, 1.6))
        bends.append(Bend(sizes=(begin, begin * 2), factor=factor, depths=chosen))
    return tuple(bends)


def _level(rng: np.random.Generator, seconds: float) -> Moves:
    if _chance(rng, 0.7):
        return Moves(knots=((0.0, 1.0),))
    begins = np.sort(rng.random(int(rng.integers(1, 5)))) * seconds
    knots = [(0.0, 1.0), *((begin, float(rng.uniform(0.0, 1.0))) for begin in begins.tolist())]
    return Moves(knots=tuple(knots), sloping=_chance(rng, 0.5))


def _pace(rng: np.random.Generator, seconds: float, depths: tuple[int, ...]) -> Pace:
    slow, modes = [], None
    if _chance(rng, 0.3):
        begin, length = rng.uniform(0.1, 0.6) * seconds, rng.uniform(0.05, 0.3) * seconds
        chosen = (_one(rng, depths),) if _chance(rng, 0.5) else ()
        factor = float(_log(rng, 1.2, 4.0))
        slow.append(Slow(begin=begin, end=begin + length, factor=factor, depths=chosen))
    if _chance(rng, 0.15):
        every = float(rng.uniform(0.5, 4.0))
        factor, length = float(_log(rng, 1.5, 4.0)), float(rng.uniform(0.02, 0.08)) * every
        slow.append(Slow(begin=every / 2, end=every / 2 + length, factor=factor, every=every))
    if _chance(rng, 0.15):
        chosen = (_one(rng, depths),) if _chance(rng, 0.5) else ()
        modes = Modes(
            factor=float(_log(rng, 1.2, 1.8)),
            share=float(rng.uniform(0.1, 0.5)),
            length=float(_log(rng, 1.0, 40.0)),
            depths=chosen,
        )
    return Pace(slow=tuple(slow), modes=modes)
