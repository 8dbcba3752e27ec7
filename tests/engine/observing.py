"""
`Goodput` that plays a script and writes down what it is told, and which rounds ran upkeep.

Test-only. The estimates are goodput's own, fed by the real engine; the depths are the script's. The
record has one JSON object a line: a round's outcome with the estimates after it, or a pass.
"""

import json
from dataclasses import asdict
from typing import Any

from sglang_dynspec.policies.goodput import Goodput
from sglang_dynspec_cpu.scripted import Scripted


class Observing(Goodput):
    """Goodput whose decisions come from a script and whose input goes to a file."""

    def __init__(self, *, path: str, record: str) -> None:
        super().__init__()
        self._script = Scripted(path=path)
        self._record = record
        self._file: Any = None
        self._round = 0
        self._sizes: dict[int, int] = {}

    def decide(self, observation: Any) -> Any:
        if self._file is None:
            # Not earlier: the launcher makes a policy, too, and runs no round.
            self._file = open(self._record, "a", buffering=1)  # noqa: PTH123, SIM115
            self._watch_passes()
        # The round runs on this thread, before the next one is decided.
        self._round = observation.round
        self._sizes[observation.round] = observation.batch_size
        return self._script.decide(observation)

    def learn(self, outcome: Any) -> None:
        super().learn(outcome)
        self._write(
            kind="round",
            **asdict(outcome),
            launched=self._sizes.pop(outcome.round),
            rates=self.acceptance.expected().rates,
        )

    def _write(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")

    def _watch_passes(self) -> None:
        """Note the passes where they do their work, past the account that is to be checked."""
        from sglang_dynspec_hooks.worker import upkeep

        extend, write = upkeep.extend_draft, upkeep.KvWriter.write

        def extend_noted(worker: Any, ledger: Any, batch: Any, slots: Any, owed: Any, **more: Any):
            # Of each request that the pass covers, where its newest token is.
            covered = [
                (req.rid, length)
                for req, length, tokens in zip(
                    batch.reqs, more["lengths"].tolist(), owed.tolist(), strict=True
                )
                if tokens
            ]
            self._write(kind="extend", round=self._round, covered=covered)
            return extend(worker, ledger, batch, slots, owed, **more)

        def write_noted(writer: Any, slots: Any) -> None:
            self._write(kind="write", round=self._round)
            write(writer, slots)

        upkeep.extend_draft = extend_noted
        upkeep.KvWriter.write = write_noted
