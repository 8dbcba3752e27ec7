"""
Worlds of every day: steady, with requests that come and go, with load that moves.
"""

from sglang_dynspec.replay.worlds._making import (
    A16,
    A26,
    BRIEF,
    LONG,
    SIMULATED,
    slopes,
    steps,
    world,
)
from sglang_dynspec.simulator.server import H200_8B, NVLINK_MOE, PCIE_1T, SMALL_GPU
from sglang_dynspec.simulator.service import Bend, World

_TWO_K = (1800, 2200)


def steady() -> tuple[World, ...]:
    """
    List those in which nothing changes and next to no round follows a prefill.
    """
    kind = "steady"
    return (
        world(kind, "3-low", "3 requests", clients=3, kinds=A16, output=LONG),
        world(kind, "20-low", "20 requests", clients=20, kinds=A16, output=LONG),
        world(kind, "96-low", "96 requests", clients=96, kinds=A16, output=LONG),
        world(kind, "200-low", "200 requests", clients=200, kinds=A16, output=LONG),
        world(kind, "3-high", "3 requests, good drafts", clients=3, kinds=A26, output=LONG),
        world(kind, "20-high", "20, good drafts", clients=20, kinds=A26, output=LONG),
        world(kind, "96-high", "96, good drafts", clients=96, kinds=A26, output=LONG),
        world(kind, "200-high", "200, good drafts", clients=200, kinds=A26, output=LONG),
    )


def growing() -> tuple[World, ...]:
    """
    List worlds whose requests begin together, so that contexts grow together and rounds with them.
    """
    kind, apart = "growing", {"output": LONG, "running": False, "server": H200_8B}
    return (
        world(kind, "20-low", "20 requests", clients=20, kinds=A16, **apart),
        world(kind, "96-low", "96 requests", clients=96, kinds=A16, **apart),
        world(kind, "200-high", "200, good drafts", clients=200, kinds=A26, seconds=30, **apart),
        world(kind, "64-high", "64, good drafts", clients=64, kinds=A26, **apart),
    )


def churn() -> tuple[World, ...]:
    """
    List closed loops at a fixed concurrency, as measured in service.
    """
    kind, simulated = "churn", SIMULATED
    return (
        world(kind, "32-simulated", "32 clients, accepted 1.6", clients=32, kinds=simulated),
        world(kind, "96-simulated", "96, accepted 1.6", clients=96, kinds=simulated),
        world(kind, "200-simulated", "200, accepted 1.6", clients=200, kinds=simulated, seconds=30),
        world(kind, "8-low", "8 clients", clients=8, kinds=A16),
        world(kind, "150-low", "150 clients", clients=150, kinds=A16, seconds=30),
        world(kind, "32-high", "32 clients, good drafts", clients=32, kinds=A26),
        world(kind, "200-high", "200, good drafts", clients=200, kinds=A26, seconds=30),
        world(
            kind,
            "32-2k",
            "32 clients, prompts of 2k",
            clients=32,
            kinds=A16,
            prompt=_TWO_K,
            seconds=40,
        ),
    )


def moving() -> tuple[World, ...]:
    """
    List closed loops whose concurrency moves.
    """
    kind = "moving"
    ramp = slopes((0.0, 1), (30.0, 200))
    squares = steps((0.0, 4), (6.0, 200), every=10.0)
    jitter = steps((0.0, 24), (2.5, 72), (5.0, 40), (7.5, 120), every=10.0)
    drain = steps((0.0, 200), (8.0, 3))
    saw = slopes((0.0, 20), (6.0, 160), (12.0, 20), every=12.0)
    return (
        world(kind, "ramp-simulated", "1 to 200", clients=ramp, kinds=SIMULATED, seconds=34),
        world(kind, "ramp-high", "the same, good drafts", clients=ramp, kinds=A26, seconds=34),
        world(kind, "on-off", "4 and 200 in turn", clients=squares, kinds=SIMULATED, seconds=32),
        world(kind, "jitter", "24, 72, 40, 120", clients=jitter, kinds=SIMULATED, seconds=32),
        world(kind, "jitter-high", "good drafts", clients=jitter, kinds=A26, seconds=32),
        world(kind, "drain", "200 clients, then 3", clients=drain, kinds=A26, seconds=24),
        world(kind, "saw", "20 to 160 and back", clients=saw, kinds=A16, seconds=36),
    )


def poisson() -> tuple[World, ...]:
    """
    List worlds whose requests come by the clock, with a queue where they are too many.
    """
    kind = "poisson"
    rising = steps((0.0, 20), (14.0, 60))
    turns = steps((0.0, 8), (4.0, 70), (7.0, 8), every=10.0)
    return (
        world(kind, "12", "12 requests a second", rate=12, kinds=A16, seconds=24),
        world(kind, "30", "30 a second", rate=30, kinds=A16, seconds=24),
        world(kind, "45-high", "45 a second, good drafts", rate=45, kinds=A26, seconds=24),
        world(kind, "rising", "20, then 60 a second", rate=rising, kinds=A16, seconds=30),
        world(kind, "turns", "8 and 70 in turn", rate=turns, kinds=A16, seconds=30),
        world(kind, "small", "a small GPU", rate=2.5, server=SMALL_GPU, kinds=A26, seconds=60),
        world(kind, "too-many", "120 a second: a queue", rate=120, kinds=SIMULATED, seconds=30),
    )


def untimed() -> tuple[World, ...]:
    """
    List worlds in which nearly every round follows a prefill.
    """
    kind, short, many = "untimed", (6, 14, 30), {"seconds": 50.0}
    return (
        world(kind, "64", "64 clients, short answers", clients=64, output=short, kinds=A26, **many),
        world(kind, "200", "200 clients", clients=200, output=short, kinds=A26, **many),
        world(kind, "128-low", "128, poor drafts", clients=128, output=short, kinds=A16, **many),
        world(kind, "200-all", "all", clients=200, output=(2, 6, 10), kinds=SIMULATED, seconds=120),
        world(
            kind,
            "32-long-prompts",
            "32 clients, prompts of 2k, short answers",
            clients=32,
            output=short,
            prompt=_TWO_K,
            kinds=A26,
            seconds=90,
        ),
    )


def losing() -> tuple[World, ...]:
    """
    List worlds where plain is best, always or in turn: the way to plain must be free.
    """
    kind = "losing"
    swings = steps((0.0, 1.0), (1.2, 0.05), every=2.4)
    squares = steps((0.0, 4), (2.0, 48), every=6.0)
    # Less than a factor of two apart, on either side of where other kernels run.
    soon, later = steps((0.0, 14), (1.5, 26), every=3.0), steps((0.0, 14), (3.0, 26), every=6.0)
    small = {
        "server": SMALL_GPU,
        "kinds": A26,
        "output": BRIEF,
        "prefill": (0.002, 1e-5),
        "bends": (Bend(sizes=(24, 256), factor=2.2, depths=(1, 3)),),
        "seconds": 50.0,
    }
    fast = {
        "clients": steps((0.0, 30), (0.6, 44), every=1.2),
        "kinds": A26,
        "output": BRIEF,
        "bends": (Bend(sizes=(40, 256), factor=2.5, depths=(1, 3)),),
        "prefill": (0.002, 1e-5),
    }
    return (
        world(kind, "pcie-10", "plain by far", clients=10, server=PCIE_1T, seconds=60),
        world(kind, "pcie-48", "plain by farther", clients=48, server=PCIE_1T, seconds=90),
        world(kind, "moe-4", "a tie", clients=4, server=NVLINK_MOE, kinds=A16),
        world(
            kind,
            "small-squares",
            "4 and 48 in turn: on and off",
            clients=squares,
            server=SMALL_GPU,
            kinds=A26,
            seconds=60,
        ),
        world(kind, "small-75", "14 and 26 in turn, every 75 rounds", clients=soon, **small),
        world(kind, "small-150", "every 150 rounds", clients=later, **small),
        world(kind, "h200-80", "30 and 44 in turn, every 80 rounds", **fast),
        world(kind, "swings-1", "drafts fail in turn", clients=1, kinds=A26, level=swings),
        world(kind, "swings-16", "of 16", clients=16, kinds=A26, level=swings, output=LONG),
        world(kind, "swings-64", "of 64", clients=64, kinds=A26, level=swings, output=LONG),
    )
