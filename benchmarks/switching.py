"""What a switch between plain and speculative rounds costs, from the periods of rounds."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections import deque
from pathlib import Path
from typing import Any

from sglang_dynspec_hooks.cpu.scripted import Scripted

#: Rounds and passes kept.
_KEPT = 4000
#: Rounds between two writes of the report.
_REPORT_EVERY = 64


class Timed(Scripted):
    """Plays a script and reports the period of every round and the time of every draft-extend."""

    def __init__(self, *, path: str, report: str, seed: int = 0) -> None:
        super().__init__(path=path, seed=seed)
        self._report = Path(report)
        self._rounds: deque[tuple[int, int, float | None]] = deque(maxlen=_KEPT)
        self._passes: dict[str, deque[float]] = {}
        self._waiting: deque[tuple[str, Any, Any]] = deque()
        self._asked = False

    def decide(self, observation: Any) -> Any:
        if not self._passes:
            self._install()
        self._asked = True
        return super().decide(observation)

    def learn(self, outcome: Any) -> None:
        self._rounds.append((outcome.depth, outcome.batch_size, outcome.period))
        # A report takes milliseconds: none while the depth is forced and throughput is measured.
        if self._asked and outcome.round % _REPORT_EVERY == 0:
            self._asked = False
            while self._waiting and self._waiting[0][2].query():
                name, begin, end = self._waiting.popleft()
                self._passes[name].append(begin.elapsed_time(end))
            scratch = self._report.with_suffix(".new")
            passes = {name: list(times) for name, times in self._passes.items()}
            scratch.write_text(json.dumps({"rounds": list(self._rounds), "passes_ms": passes}))
            scratch.replace(self._report)

    def _install(self) -> None:
        from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

        from sglang_dynspec_hooks.worker.kv_write import KvWriter

        for owner, name in ((EagleDraftWorker, "_draft_extend_for_decode"), (KvWriter, "write")):
            self._passes[name] = deque(maxlen=_KEPT)
            setattr(owner, name, self._timed(name, getattr(owner, name)))

    def _timed(self, name: str, function: Any) -> Any:
        import torch

        on_gpu = torch.cuda.is_available()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if on_gpu:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                done = function(*args, **kwargs)
                end.record()
                self._waiting.append((name, begin, end))
                return done
            start = time.perf_counter()
            done = function(*args, **kwargs)
            self._passes[name].append(1e3 * (time.perf_counter() - start))
            return done

        return call


def switch_costs(report: dict[str, Any], concurrency: int) -> dict[str, float]:
    """
    Compare each switching round with the two rounds after it, which run at the same depth.

    Args:
        report: What `Timed` wrote.
        concurrency: Only rounds with this many requests count.

    Returns:
        Switches counted, and the median excess of a switching round in milliseconds, towards
        speculation and towards plain.
    """
    rounds = report["rounds"]
    excess: dict[str, list[float]] = {"to_speculative": [], "to_plain": []}
    for before, here, *after in zip(rounds, rounds[1:], rounds[2:], rounds[3:], strict=False):
        stretch = (before, here, *after)
        same_depth = all(each[0] == here[0] for each in after)
        if before[0] == here[0] or not same_depth or any(each[2] is None for each in stretch):
            continue
        if any(each[1] != concurrency for each in stretch):
            continue
        kind = "to_plain" if here[0] == 0 else "to_speculative"
        excess[kind].append(1e3 * (here[2] - statistics.mean(each[2] for each in after)))
    return {
        "switches": sum(map(len, excess.values())),
        **{
            f"{kind}_excess_ms": round(statistics.median(values), 4)
            for kind, values in excess.items()
            if values
        },
    }
