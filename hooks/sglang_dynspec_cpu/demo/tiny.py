"""The demo's models by default: tiny ones with random weights, built in seconds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec_cpu.demo.load import Answer, Phase, Ramp
from sglang_dynspec_cpu.demo.subject import Subject

# Here and not where it is called: what it lacks is said before anything is begun.
from sglang_dynspec_cpu.models import shallow_pair
from sglang_dynspec_hooks.client import accepted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from sglang_dynspec_cpu.checkpoint import ModelPair
    from sglang_dynspec_cpu.demo.steps import Tell

_NAME: Final = "tiny"
#: With these models no two best logits of the demo's answers are closer than 8e-4, while the batch
#: size moves them by 2e-5: a near tie that fell the other way would look like a fault.
_SEED: Final = 1
#: Plain and the largest depth. Those in between lose less where speculation does not pay: too
#: little to tell them from plain in a minute, on a machine that may have other work.
_DEPTHS: Final = (0, 5)
#: Concurrency of each phase, and how many requests every client of it sends. A policy that measures
#: needs dozens of rounds of each.
_PHASES: Final = ((1, 5), (8, 3), (48, 2), (8, 3), (1, 5))
#: Fewest and most tokens of an answer. Lengths differ, so that requests come and go one by one.
_LENGTHS: Final = (40, 72)
_TOPICS: Final = ("rivers", "bridges", "clouds", "maps", "harbours", "lamps", "gardens", "clocks")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat request; nothing that a random model says is worth showing."""

    number: int
    #: Tokens of the answer.
    length: int
    kind: str = ""

    @property
    def body(self) -> dict[str, Any]:
        """The request as the endpoint takes it: greedy, and of a known length."""
        topic = _TOPICS[self.number % len(_TOPICS)]
        content = f"{self.number}. Tell me about {topic}."
        return {
            "model": _NAME,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": self.length,
            # Extensions of SGLang.
            "ignore_eos": True,
            "return_token_ids": True,
        }

    async def send(self, client: httpx.AsyncClient, show: Tell) -> Answer:  # noqa: ARG002
        """Send it, and wait for the whole answer."""
        answer = accepted(await client.post("/v1/chat/completions", json=self.body))
        choice = answer.json()["choices"][0]
        return Answer(tuple(choice["response_token_ids"]), choice["message"]["content"])


def tiny() -> Subject:
    """Return the demo with tiny models."""
    return Subject(
        name=_NAME,
        algorithm="STANDALONE",
        depths=_DEPTHS,
        title="build a target and a draft model",
        build=_build,
        ramp=lambda _: tiny_ramp(),
    )


def tiny_ramp() -> Ramp:
    """Return the load for tiny models."""
    numbers = itertools.count()
    phases = [
        Phase(concurrency, _requests(numbers, concurrency * each)) for concurrency, each in _PHASES
    ]
    return Ramp(phases, warm_up=ChatRequest(next(numbers), _LENGTHS[0]))


def _build(out: Path, _: Tell) -> ModelPair:
    # To verify a few tokens at once takes a CPU little longer than to decode one, as both read the
    # same weights; to verify hundreds takes their arithmetic. So it depends on the batch size
    # whether such a draft pays.
    return shallow_pair(out / "models", seed=_SEED)


def _requests(numbers: Iterator[int], count: int) -> tuple[ChatRequest, ...]:
    shortest, longest = _LENGTHS
    spread = longest - shortest + 1
    # 13 has no factor in common with the spread: lengths neither repeat soon nor grow in order.
    return tuple(
        ChatRequest(n, shortest + 13 * n % spread) for n in itertools.islice(numbers, count)
    )
