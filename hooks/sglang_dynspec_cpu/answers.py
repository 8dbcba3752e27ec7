"""What goes into the CPU engine and what comes out, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: One set of sampling parameters, or one per request.
Sampling = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def as_sglang(sampling: Sampling | None) -> dict[str, Any] | list[dict[str, Any]]:
    """Return sampling parameters as SGLang takes them; None means greedy."""
    if sampling is None:
        return {"temperature": 0}
    return dict(sampling) if isinstance(sampling, Mapping) else [dict(each) for each in sampling]


class EngineDiedError(RuntimeError):
    """A process of the engine died; its own traceback is on stderr."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one request, or what there is of it so far when streaming."""

    output_ids: tuple[int, ...]
    text: str
    #: SGLang's account of the request.
    meta_info: Mapping[str, Any]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Completion":
        """Take over SGLang's answer."""
        return cls(
            output_ids=tuple(answer["output_ids"]),
            text=answer["text"],
            meta_info=answer["meta_info"],
        )

    @property
    def accepted_histogram(self) -> tuple[int, ...]:
        """Rounds by number of accepted drafts, from 0; empty without speculative rounds."""
        return tuple(self.meta_info.get("spec_correct_drafts_histogram") or ())

    @property
    def finish_reason(self) -> str | None:
        """Why the request ended: ``length``, ``stop``, ``abort``; None while it has not."""
        reason = self.meta_info.get("finish_reason")
        return None if reason is None else str(reason["type"])


@dataclass(frozen=True, slots=True)
class KvFigures:
    """The KV pool, in slots."""

    #: Slots that requests and the radix cache may use.
    capacity: int
    #: Slots that nobody holds.
    free: int
    #: Slots that the radix cache alone holds; they can be freed at any time.
    evictable: int
