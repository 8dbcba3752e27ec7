"""
Worlds whose requests differ: in kind, as they go on, as they come, in bursts, with stale drafts.
"""

from sglang_dynspec.replay.worlds._making import (
    A16,
    A26,
    BRIEF,
    CHAT,
    CODE,
    LONG,
    mixed,
    staged,
    steps,
    world,
)
from sglang_dynspec.simulator.drafts import geometric
from sglang_dynspec.simulator.server import NVLINK_MOE, SMALL_GPU
from sglang_dynspec.simulator.service import World

_DEEPER = (0, 1, 2, 3, 4, 5, 7)


def mixture() -> tuple[World, ...]:
    """
    List worlds with code at 0.9 beside chat at 0.1.
    """
    kind, half = "mixture", mixed((0.5, CODE), (0.5, CHAT))
    rare = mixed((0.15, CODE), (0.85, CHAT))
    three = mixed((0.4, CODE), (0.3, (0.5, 0.45, 0.4)), (0.3, CHAT))
    long = (120, 400, 1200)
    return (
        world(kind, "1", "1 client", clients=1, kinds=half, seconds=24),
        world(kind, "1-long", "1, long answers", clients=1, kinds=half, output=long, seconds=24),
        world(kind, "4", "4 clients", clients=4, kinds=half, seconds=24),
        world(kind, "4-long", "4, long answers", clients=4, kinds=half, output=long, seconds=24),
        world(kind, "2-rare", "2, code is rare", clients=2, kinds=rare, output=long, seconds=24),
        world(kind, "16-three", "16, three kinds", clients=16, kinds=three),
        world(kind, "64", "64 clients", clients=64, kinds=half),
        world(kind, "4-moe", "4, a mixture", clients=4, kinds=half, server=NVLINK_MOE, output=long),
    )


def phases() -> tuple[World, ...]:
    """
    List worlds whose requests change as they go on.
    """
    kind, long = "phases", (400, 600, 900)
    turns = tuple((at, 1.0 if at // 100 % 2 == 0 else 0.15) for at in range(0, 900, 100))
    thinks = ((0, 0.2), (300, 1.0))
    tires = ((0, 1.0), (150, 0.5), (300, 0.2))
    return (
        world(kind, "1-turns", "by 100", clients=1, kinds=staged(A26, *turns), output=long),
        world(kind, "4-turns", "4 clients", clients=4, kinds=staged(A26, *turns), output=long),
        world(kind, "2-thinks", "first poor", clients=2, kinds=staged(A26, *thinks), output=long),
        world(kind, "8-tires", "then poor", clients=8, kinds=staged(A26, *tires), output=long),
        world(kind, "1-tires", "then poor", clients=1, kinds=staged(A26, *tires), output=long),
    )


def cold_requests() -> tuple[World, ...]:
    """
    List worlds whose requests begin with poor drafts.
    """
    kind, young = "cold-requests", ((0, 0.1), (12, 1.0))
    poor, good = staged(A16, *young), staged(A26, *young)
    burst = steps((0.0, 4), (1.6, 64), (1.7, 4), every=2.4)
    waves = steps((0.0, 24), (2.0, 96), (2.2, 24), every=4.0)
    return (
        world(kind, "4-burst", "bursts of 64", clients=burst, kinds=good, output=BRIEF),
        world(kind, "24-burst", "bursts of 96", clients=waves, kinds=good),
        world(kind, "1", "1 client, short answers", clients=1, kinds=good, output=BRIEF),
        world(kind, "16", "16 clients, short answers", clients=16, kinds=good, output=BRIEF),
        world(kind, "64-low", "64 clients", clients=64, kinds=poor),
        world(kind, "128-low", "bursts", clients=waves, kinds=poor, output=BRIEF),
    )


def bursts() -> tuple[World, ...]:
    """
    List worlds with bursts of some 60 rounds.
    """
    kind, small = "bursts", {"server": SMALL_GPU, "output": BRIEF, "seconds": 40.0}
    narrow = steps((0.0, 2), (2.2, 48), (2.3, 2), every=5.0)
    often = steps((0.0, 4), (1.0, 40), (1.1, 4), every=3.2)
    wide = steps((0.0, 8), (1.5, 200), (1.6, 8), every=3.0)
    uneven = steps((0.0, 8), (2.5, 160), (2.6, 8), (4.1, 200), (4.2, 8), every=8.0)
    long = {"output": BRIEF, "seconds": 26.0}
    return (
        world(kind, "small-48", "2, bursts of 48", clients=narrow, kinds=A26, **small),
        world(kind, "small-40", "4, bursts of 40", clients=often, kinds=A26, **small),
        world(kind, "8-200-low", "8, bursts of 200", clients=wide, kinds=A16, **long),
        world(kind, "8-200-high", "good drafts", clients=wide, kinds=A26, **long),
        world(kind, "uneven", "160 and 200", clients=uneven, kinds=A16, **long),
        world(kind, "small-low", "poor drafts", clients=narrow, kinds=A16, **small),
    )


def stale() -> tuple[World, ...]:
    """
    List worlds without upkeep: after plain rounds drafts are poor for a while.
    """
    kind, none = "stale", {"upkeep_window": 0}
    drain = steps((0.0, 240), (8.0, 16))
    squares = steps((0.0, 4), (3.0, 48), (5.0, 4), every=12.0)
    poor, good = {"output": LONG, "stale": 0.2}, steps((0.0, 0.05), (4.0, 1.0))
    return (
        world(kind, "16", "bad, then good", clients=16, kinds=A26, level=good, **poor, **none),
        world(kind, "32", "bad, then good", clients=32, kinds=A26, level=good, **poor, **none),
        world(kind, "64-churn", "64 clients", clients=64, kinds=A26, **none),
        world(kind, "drain", "240, then 16", clients=drain, kinds=A26, seconds=24, **none),
        world(
            kind,
            "small",
            "4 and 48 in turn",
            clients=squares,
            server=SMALL_GPU,
            kinds=A26,
            seconds=50,
            **none,
        ),
    )


def collapse() -> tuple[World, ...]:
    """
    List worlds whose acceptance collapses, or only seems to.
    """
    kind = "collapse"
    fails = steps((0.0, 1.0), (6.0, 0.02), (13.0, 1.0))
    often = steps((0.0, 1.0), (3.0, 0.02), (4.5, 1.0), every=6.0)
    seems = mixed((0.8, (0.85, 0.8, 0.8)), (0.2, (0.0, 0.0, 0.0)))
    long = {"output": LONG}
    return (
        world(kind, "1", "of 1 request", clients=1, kinds=A26, level=fails, **long),
        world(kind, "32", "of 32", clients=32, kinds=A26, level=fails, **long),
        world(kind, "32-often", "again and again", clients=32, kinds=A26, level=often, **long),
        world(kind, "1-seems", "one request in five is hopeless", clients=1, kinds=seems),
        world(kind, "2-seems", "of 2 clients", clients=2, kinds=seems),
    )


def many_depths() -> tuple[World, ...]:
    """
    List worlds with more candidate depths than three.
    """
    kind, deep = "many-depths", geometric(0.93, 0.99).kinds
    five = (0, 1, 3, 5, 7)
    sixteen = tuple(range(16))
    saw = steps((0.0, 8), (3.0, 40), (6.0, 96), (9.0, 24), every=12.0)
    return (
        world(kind, "4-deep", "4 clients", clients=4, kinds=deep, depths=five),
        world(kind, "64-deep", "64 clients", clients=64, kinds=deep, depths=_DEEPER),
        world(kind, "20-low", "20 clients", clients=20, kinds=A16, depths=_DEEPER),
        world(kind, "moving", "8, 40, 96, 24", clients=saw, kinds=A26, depths=_DEEPER, seconds=24),
        world(kind, "sixteen", "0 to 15", clients=16, kinds=deep, depths=sixteen, seconds=14),
    )
