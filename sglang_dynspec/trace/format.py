"""
What a trace holds: a header and one record per round.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, FiniteFloat

#: Version of the format. A reader refuses a newer one.
VERSION = 1

#: Key of the version in the header line; its presence marks a trace.
VERSION_KEY = "dynspec_trace"

#: Readers take nothing for a number that is none.
_STRICT = ConfigDict(strict=True)

_Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHeader:
    """
    What a trace was recorded with.

    Attributes:
        sglang: Version of SGLang.

        dynspec: Version of this package.

        model: Path of the target model.

        draft: Path of the draft model.

        algorithm: SGLang's speculative algorithm.

        depths: Candidate depths.

        policy: The policy, as configured.

        options: Its options.

        started: When, ISO 8601 in UTC. Times of rounds count from here.

        overlap: Whether outcomes arrived a round late, as under SGLang's overlap loop.

        max_running_requests: The server's cap, as the policy learned it.

        seed: Seed of the policy's limits.

        exact_sampling: Whether batches with `Observation.plain_requests` were decoded plainly.
    """

    __pydantic_config__ = _STRICT

    sglang: str = ""
    dynspec: str = ""
    model: str = ""
    draft: str = ""
    algorithm: str = ""
    depths: tuple[_Count, ...] = ()
    policy: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    overlap: bool = True
    max_running_requests: int | None = None
    seed: int = 0
    exact_sampling: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRound:
    """
    One round of a trace. The fields of `Observation`, `Plan` and `Outcome` mean the same here.

    Those with a default are left out of the file where they have it, and were unknown to older
    versions.

    Attributes:
        t: Seconds from the start of the trace to the moment the outcome was known.
    """

    __pydantic_config__ = _STRICT

    round: int
    t: FiniteFloat
    batch_size: _Count
    padded_batch_size: _Count
    running: int
    waiting: int
    seq_len_sum: int
    seq_len_max: int
    kv_free: float
    depth: _Count
    planned: int
    reason: str
    accepted: tuple[_Count, ...]
    tokens: int
    period: FiniteFloat | None
    probe: bool = False
    predicted: tuple[float, ...] = ()
    confidence: float | None = None
    blocked: str = ""
    upkeep: bool = False
    guesses: int = 0
    right_guesses: int = 0
    plain_requests: _Count = 0
    upkeep_window: _Count = 0
    seq_lens: tuple[_Count, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """
    A trace that has been read.

    Attributes:
        header: What it was recorded with.

        rounds: Its rounds, in the order their outcomes arrived.
    """

    header: TraceHeader
    rounds: list[TraceRound]

    def seconds(self, unix_time: float) -> float:
        """
        Convert a wall-clock time to seconds since the start of the trace.

        Args:
            unix_time: Seconds since the epoch, as from `time.time`.

        Returns:
            The same moment on the scale of `TraceRound.t`.
        """
        return unix_time - datetime.fromisoformat(self.header.started).timestamp()
