"""
A scripted policy that learns acceptance as `goodput` does, anew with every script.

Test-only. It writes a line of JSON a round: the estimate of each position's acceptance after it.
"""

import json
from pathlib import Path
from typing import Any

from sglang_dynspec.estimates import AcceptanceModel
from sglang_dynspec_cpu.scripted import Scripted


class Learning(Scripted):
    """Plays a script and writes down what it would estimate of acceptance."""

    def __init__(self, *, path: str, rates: str, seed: int = 0) -> None:
        super().__init__(path=path, seed=seed)
        self._rates = Path(rates)
        self._file: Any = None
        self._learned: tuple[Any, AcceptanceModel] | None = None

    def learn(self, outcome: Any) -> None:
        if self._file is None:
            # Not earlier: the launcher makes a policy, too, and runs no round.
            self._file = self._rates.open("a", buffering=1)
        if self._learned is None or self._learned[0] != self._version:
            self._learned = self._version, AcceptanceModel(self.limits.largest)
        acceptance = self._learned[1]
        acceptance.observe(outcome)
        self._file.write(json.dumps(acceptance.expected().rates) + "\n")
