"""
Worlds whose rounds cost what no formula says: cold, slow, pulsing, bent by kernels, of two kinds.
"""

from sglang_dynspec.replay.worlds._making import (
    A16,
    A26,
    HOPELESS,
    LONG,
    SIMULATED,
    slopes,
    steps,
    world,
)
from sglang_dynspec.simulator.server import NVLINK_MOE, PCIE_1T, SMALL_GPU
from sglang_dynspec.simulator.service import Bend, Modes, Slow, World
from sglang_dynspec.simulator.service.pace import Pace


def cold_start() -> tuple[World, ...]:
    """
    List worlds whose first rounds compile, and whose batch leaves a size before it knows it.
    """
    kind, wide = "cold-start", (8, 60, 400)
    waves = steps((0.0, 48), (0.05, 1), every=5.0)
    moe = {"server": NVLINK_MOE, "kinds": A16, "output": wide, "clients": waves}
    five = {"depths": (0, 1, 3, 5), "kinds": HOPELESS}
    return (
        world(kind, "waves-moe", "waves of 48", cold=0.2, seconds=12, **moe),
        world(kind, "waves-moe-slow", "slow to compile", cold=0.4, seconds=24, **moe),
        world(
            kind,
            "waves-small",
            "waves of 48",
            server=SMALL_GPU,
            kinds=A26,
            output=wide,
            clients=waves,
            cold=0.2,
            seconds=24,
        ),
        world(
            kind,
            "waves-pcie",
            "plain wins",
            server=PCIE_1T,
            kinds=A26,
            output=wide,
            clients=waves,
            cold=0.2,
            seconds=36,
        ),
        world(kind, "small", "2 a second", rate=2, server=SMALL_GPU, cold=0.5, seconds=40),
        world(kind, "pcie-4", "4 depths", clients=4, server=PCIE_1T, cold=0.2, seconds=24, **five),
        world(kind, "h200-24", "good drafts", clients=24, kinds=A26, cold=0.25, seconds=12),
    )


def cold_sizes() -> tuple[World, ...]:
    """
    List worlds whose first rounds compile at every CUDA graph size.
    """
    kind = "cold-sizes"
    up, down = slopes((0.0, 34), (20.0, 94)), slopes((0.0, 94), (20.0, 34))
    wide = slopes((0.0, 4), (25.0, 200))
    tour = steps((0.0, 34), (3.0, 94), (6.0, 50), (9.0, 78), every=12.0)
    small = slopes((0.0, 40), (30.0, 10))
    rise = slopes((0.0, 10), (40.0, 45))
    return (
        world(kind, "34-94", "34 to 94", clients=up, kinds=A16, cold=0.15),
        world(kind, "94-34", "94 to 34", clients=down, kinds=SIMULATED, cold=0.3),
        world(kind, "4-200", "4 to 200", clients=wide, kinds=SIMULATED, cold=0.12, seconds=30),
        world(kind, "tour", "34, 94, 50, 78", clients=tour, kinds=A16, cold=0.25, seconds=24),
        world(kind, "rising", "by the clock", rate=rise, kinds=A26, cold=0.4, seconds=44),
        world(
            kind,
            "small",
            "40 to 10",
            clients=small,
            server=SMALL_GPU,
            kinds=A26,
            cold=0.2,
            seconds=50,
        ),
    )


def _slow(depth: int, begin: float, seconds: float, factor: float = 4.0) -> Pace:
    slow = Slow(begin=begin, end=begin + seconds, factor=factor, depths=(depth,))
    return Pace(slow=(slow,))


def slow_depth() -> tuple[World, ...]:
    """
    List worlds in which one depth becomes four times slower, and recovers.
    """
    kind, deep = "slow-depth", {"kinds": A26, "output": LONG, "seconds": 30.0}
    return (
        world(kind, "1", "of 1 request", clients=1, pace=_slow(3, 8, 10), **deep),
        world(kind, "8", "of 8 requests", clients=8, pace=_slow(3, 8, 10), **deep),
        world(kind, "32", "of 32 requests", clients=32, pace=_slow(3, 10, 10), **deep),
        world(kind, "32-soon", "soon", clients=32, pace=_slow(3, 2, 12), **deep),
        world(
            kind,
            "96-shallow",
            "depth 1 of 96 requests",
            clients=96,
            pace=_slow(1, 10, 10),
            kinds=SIMULATED,
            output=LONG,
            seconds=36.0,
        ),
        world(kind, "8-two", "the only one", clients=8, depths=(0, 3), pace=_slow(3, 6, 9), **deep),
        world(kind, "8-churn", "8 clients", clients=8, pace=_slow(3, 8, 8), kinds=A26, seconds=28),
    )


def pace() -> tuple[World, ...]:
    """
    List worlds in which the whole server slows down or speeds up.
    """
    kind = "pace"

    def at(*slow: tuple[float, float, float]) -> Pace:
        return Pace(slow=tuple(Slow(begin=b, end=e, factor=f) for b, e, f in slow))

    long = {"output": LONG}
    jitter = steps((0.0, 24), (2.5, 72), (5.0, 40), (7.5, 120), every=10.0)
    return (
        world(kind, "96-throttled", "1.4", clients=96, kinds=A16, pace=at((6, 14, 1.4)), **long),
        world(kind, "32-halved", "2.0", clients=32, kinds=A26, pace=at((5, 12, 2.0)), **long),
        world(kind, "1-faster", "0.7", clients=1, kinds=A16, pace=at((5, 99, 0.7))),
        world(
            kind,
            "8-stairs",
            "1.2, 1.5, 1.9, then 1",
            clients=8,
            kinds=A16,
            pace=at((4, 8, 1.2), (8, 12, 1.5), (12, 16, 1.9)),
        ),
        world(kind, "twice", "3.0, twice", clients=48, kinds=A26, pace=at((3, 5, 3), (9, 12, 3))),
        world(
            kind,
            "moving",
            "1.6 as clients change",
            clients=jitter,
            kinds=A16,
            pace=at((2.4, 7.6, 1.6), (12.5, 19, 1.6)),
        ),
        world(kind, "200-churn", "1.5", clients=200, kinds=A16, pace=at((8, 18, 1.5)), seconds=28),
    )


def _pulse(length: float, every: float, factor: float, *depths: int) -> Pace:
    begin = every / 2
    slow = Slow(begin=begin, end=begin + length, factor=factor, depths=depths, every=every)
    return Pace(slow=(slow,))


def pulses() -> tuple[World, ...]:
    """
    List worlds with some six slow rounds now and then.
    """
    kind, deep, low = "pulses", {"kinds": A26, "output": LONG}, {"kinds": A16, "output": LONG}
    return (
        world(kind, "32-all", "all, 2.5x", clients=32, pace=_pulse(0.12, 3.0, 2.5), **deep),
        world(kind, "32-depth", "depth 3, 4x", clients=32, pace=_pulse(0.2, 3.0, 4.0, 3), **deep),
        world(kind, "96-all", "all, 2x", clients=96, pace=_pulse(0.15, 2.0, 2.0), **low),
        world(kind, "8-often", "all, often", clients=8, pace=_pulse(0.07, 0.7, 2.0), **deep),
        world(kind, "128-plain", "plain, 3x", clients=128, pace=_pulse(0.3, 2.5, 3.0, 0), **low),
    )


def bimodal() -> tuple[World, ...]:
    """
    List worlds with rounds of two kinds.
    """
    kind, deep, low = "bimodal", {"kinds": A26, "output": LONG}, {"kinds": A16, "output": LONG}

    def modes(factor: float, share: float, length: float, *depths: int) -> Pace:
        return Pace(modes=Modes(factor=factor, share=share, length=length, depths=depths))

    return (
        world(kind, "32-all", "1.5 half of the time", clients=32, pace=modes(1.5, 0.5, 2), **low),
        world(kind, "32-long", "for 40 rounds", clients=32, pace=modes(1.4, 0.4, 40), **low),
        world(kind, "48-depth", "depth 3", clients=48, pace=modes(1.6, 0.4, 1, 3), **deep),
        world(kind, "64-depth", "depth 3, on end", clients=64, pace=modes(1.8, 0.3, 12, 3), **deep),
        world(kind, "128-plain", "plain", clients=128, pace=modes(1.5, 0.4, 6, 0), **low),
    )


def kernels() -> tuple[World, ...]:
    """
    List worlds whose costs fall or jump with the batch size.
    """
    kind, both = "kernels", (1, 3)
    around = steps((0.0, 118), (4.0, 126), (8.0, 134), every=12.0)
    near = steps((0.0, 60), (3.0, 68), (6.0, 76), every=9.0)
    saw = slopes((0.0, 40), (10.0, 140), (20.0, 40), every=20.0)
    jump = (Bend(sizes=(121, 128), factor=1.5, depths=both),)
    plain = (Bend(sizes=(121, 128), factor=0.7, depths=(0,)),)
    fall = (Bend(sizes=(24, 64), factor=1.6, depths=(3,)),)
    switch = (Bend(sizes=(72, 256), factor=0.62, depths=(3,)),)
    teeth = tuple(Bend(sizes=(at, at), factor=1.35, depths=(1,)) for at in range(48, 144, 16))
    flip = (
        Bend(sizes=(72, 104), factor=1.45, depths=(1,)),
        Bend(sizes=(72, 104), factor=0.65, depths=(3,)),
    )
    long = {"output": LONG, "seconds": 26.0}
    moves = {"output": (24, 60, 120), "seconds": 26.0}
    return (
        world(kind, "jump-128", "1, 3 at 128", clients=around, kinds=A16, bends=jump, **moves),
        world(kind, "plain-128", "plain at 128", clients=around, kinds=A16, bends=plain, **moves),
        world(kind, "fall-96", "depth 3 to 64", clients=saw, kinds=A26, bends=fall, **moves),
        world(kind, "switch-72", "depth 3 from 72", clients=near, kinds=A26, bends=switch, **moves),
        world(kind, "teeth", "every other size", clients=saw, kinds=A16, bends=teeth, **moves),
        world(kind, "flip", "1 and 3 flip at 72", clients=near, kinds=A26, bends=flip, **moves),
        world(kind, "switch-96", "steady", clients=96, kinds=A26, bends=switch, **long),
        world(kind, "jump-steady", "steady at 126", clients=126, kinds=A16, bends=jump, **long),
    )
