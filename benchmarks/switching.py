"""What a switch between plain and speculative rounds costs, from the periods of rounds."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections import deque
from pathlib import Path
from typing import Any

from sglang_dynspec.files import write_whole
from sglang_dynspec_cpu.scripted import Scripted

#: Rounds at one depth between two switches. With an upkeep window of 4 a pass falls on the middle.
STRETCH = 8
#: Rounds and passes kept.
_KEPT = 4000
#: Rounds between two writes of the report.
_REPORT_EVERY = 64


class Timed(Scripted):
    """Plays a script and reports the period of every round and the times of upkeep's passes."""

    def __init__(self, *, path: str, report: str, seed: int = 0) -> None:
        super().__init__(path=path, seed=seed)
        self._report = Path(report)
        self._rounds: deque[tuple[int, int, float | None]] = deque(maxlen=_KEPT)
        self._last = 0.0
        self._passes: dict[str, deque[float]] = {}
        self._launches: dict[str, deque[float]] = {}
        self._waiting: deque[tuple[str, Any, Any]] = deque()
        self._asked = False

    def decide(self, observation: Any) -> Any:
        if not self._passes:
            self._install()
        self._asked = True
        return super().decide(observation)

    def learn(self, outcome: Any) -> None:
        # By the clock, as `outcome.period` moves launches to where they belong, and a sum over a
        # switch must not depend on where that is. None after a prefill, as there.
        now = time.perf_counter()
        period = None if outcome.period is None else now - self._last
        self._last = now
        self._rounds.append((outcome.depth, outcome.batch_size, period))
        # A report takes milliseconds: none while the depth is forced and throughput is measured.
        if self._asked and outcome.round % _REPORT_EVERY == 0:
            self._asked = False
            while self._waiting and self._waiting[0][2].query():
                name, begin, end = self._waiting.popleft()
                self._passes[name].append(begin.elapsed_time(end))
            report = {
                "rounds": list(self._rounds),
                "pass_ms": {name: list(times) for name, times in self._passes.items()},
                "launch_ms": {name: list(times) for name, times in self._launches.items()},
            }
            write_whole(self._report, json.dumps(report))

    def _install(self) -> None:
        from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

        from sglang_dynspec_hooks.worker.kv_write import KvWriter
        from sglang_dynspec_hooks.worker.upkeep import Upkeep

        for owner, name in (
            (EagleDraftWorker, "_draft_extend_for_decode"),
            (KvWriter, "write"),
            (Upkeep, "before_speculative_round"),
        ):
            self._passes[name] = deque(maxlen=_KEPT)
            self._launches[name] = deque(maxlen=_KEPT)
            setattr(owner, name, self._timed(name, getattr(owner, name)))

    def _timed(self, name: str, function: Any) -> Any:
        """Time a pass on the device and its launch on the host; False means that none ran."""
        import torch

        on_gpu = torch.cuda.is_available()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if on_gpu:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
            start = time.perf_counter()
            done = function(*args, **kwargs)
            took = 1e3 * (time.perf_counter() - start)
            if done is not False:
                self._launches[name].append(took)
                if on_gpu:
                    end.record()
                    self._waiting.append((name, begin, end))
            return done

        return call


def switch_costs(report: dict[str, Any], concurrency: int) -> dict[str, Any]:
    """
    Compare the rounds around each switch with steady rounds of their depths.

    Where the host is busier than the device, what a round costs shows up in the period of the round
    before, whose result waits while it is launched. So a switch is charged with the two rounds
    before it and the three that begin with it, less what five steady rounds would have taken. What
    is shifted so from one round to the next makes one direction look dearer and the other cheaper:
    their sum, of a switch there and one back, is what counts.

    Args:
        report: What `Timed` wrote while a script alternated between two depths, `STRETCH` rounds
            each.
        concurrency: Only rounds with this many requests count.

    Returns:
        Switches counted, the median of a steady round in milliseconds by depth, the median cost of
        a switch in milliseconds, towards speculation and towards plain, and the median excess of
        each of the rounds around it.
    """
    rounds = report["rounds"]
    whole = [
        (start, rounds[start : start + STRETCH])
        for start in range(1, len(rounds) - STRETCH)
        if rounds[start - 1][0] != rounds[start][0] != rounds[start + STRETCH][0]
        and len({each[0] for each in rounds[start : start + STRETCH]}) == 1
    ]
    steady: dict[int, list[float]] = {}
    for _, stretch in whole:
        for depth, size, period in stretch[STRETCH // 2 - 1 : STRETCH // 2 + 2]:
            if size == concurrency and period is not None:
                steady.setdefault(depth, []).append(1e3 * period)
    level = {depth: statistics.median(periods) for depth, periods in steady.items()}
    switches: dict[str, list[list[float]]] = {"to_speculative": [], "to_plain": []}
    for start, _ in whole:
        around = rounds[max(start - 2, 0) : start + 3]
        usual = len(around) == 5 and around[0][0] == around[1][0]
        if not usual or any(size != concurrency or time is None for _, size, time in around):
            continue
        excess = [1e3 * period - level[depth] for depth, _, period in around]
        switches["to_plain" if around[2][0] == 0 else "to_speculative"].append(excess)
    found: dict[str, Any] = {
        "switches": sum(map(len, switches.values())),
        "steady_ms": {str(depth): round(value, 4) for depth, value in level.items()},
    }
    for kind, excesses in switches.items():
        if excesses:
            found[f"{kind}_ms"] = round(statistics.median(map(sum, excesses)), 4)
            columns = zip(*excesses, strict=True)
            found[f"{kind}_by_round_ms"] = [round(statistics.median(one), 4) for one in columns]
    return found
