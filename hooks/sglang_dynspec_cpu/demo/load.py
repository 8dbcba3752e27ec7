"""The demo's load: chat requests whose concurrency rises and falls, and their answers."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx

from sglang_dynspec_hooks.client import accepted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sglang_dynspec_cpu.demo.steps import Tell

#: Concurrency of each phase, and how many requests every client of it sends. A policy that measures
#: needs dozens of rounds of each.
_PHASES: Final = ((1, 5), (8, 3), (48, 2), (8, 3), (1, 5))
#: Fewest and most tokens of an answer. Lengths differ, so that requests come and go one by one.
_LENGTHS: Final = (40, 72)
#: Seconds for one answer; a CPU that several jobs share is slow.
_TIMEOUT: Final = 300.0
_TOPICS: Final = ("rivers", "bridges", "clouds", "maps", "harbours", "lamps", "gardens", "clocks")


@dataclass(frozen=True, slots=True)
class Request:
    """One chat request."""

    number: int
    length: int

    @property
    def body(self) -> dict[str, Any]:
        """The request as the endpoint takes it: greedy, and of a known length."""
        topic = _TOPICS[self.number % len(_TOPICS)]
        content = f"{self.number}. Tell me about {topic}."
        return {
            "model": "tiny",
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": self.length,
            # Extensions of SGLang.
            "ignore_eos": True,
            "return_token_ids": True,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    token_ids: tuple[int, ...]
    text: str


@dataclass(slots=True)
class Phase:
    """A stretch of constant concurrency."""

    concurrency: int
    requests: tuple[Request, ...]
    #: By number of the request.
    answers: dict[int, Answer] = field(default_factory=dict)
    #: Unix times.
    began: float = 0.0
    ended: float = 0.0

    def drive(self, url: str, tell: Tell) -> None:
        """Send the requests, `concurrency` at a time, and keep the answers."""
        self.began = time.time()
        self.answers = _answers(url, self.requests, self.concurrency, tell)
        self.ended = time.time()


class Ramp:
    """The whole load, and the plain server's answers to it."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.phases = [
            Phase(concurrency, _requests(self._numbers, concurrency * each))
            for concurrency, each in _PHASES
        ]
        #: By number of the request.
        self.plain_answers: dict[int, Answer] = {}

    @property
    def requests(self) -> list[Request]:
        """All requests, in the order they are sent."""
        return [request for phase in self.phases for request in phase.requests]

    @property
    def concurrency(self) -> int:
        """Most requests in flight at a time."""
        return max(phase.concurrency for phase in self.phases)

    def warm_up(self, url: str) -> None:
        """Let a server load what it loads at its first request; the answer is of no interest."""
        _answers(url, [Request(next(self._numbers), _LENGTHS[0])], 1, lambda _: None)

    def drive_plain(self, url: str, tell: Tell) -> None:
        """Send the same requests to a server without speculation."""
        self.plain_answers = _answers(url, self.requests, self.concurrency, tell)

    def differing(self) -> list[int]:
        """List the requests whose answers differ, by number."""
        answers = {n: answer for phase in self.phases for n, answer in phase.answers.items()}
        numbers = sorted(answers.keys() | self.plain_answers.keys())
        return [n for n in numbers if answers.get(n) != self.plain_answers.get(n)]


def _requests(numbers: Iterator[int], count: int) -> tuple[Request, ...]:
    shortest, longest = _LENGTHS
    spread = longest - shortest + 1
    # 13 has no factor in common with the spread: lengths neither repeat soon nor grow in order.
    return tuple(Request(n, shortest + 13 * n % spread) for n in itertools.islice(numbers, count))


def _answers(
    url: str, requests: Sequence[Request], concurrency: int, tell: Tell
) -> dict[int, Answer]:
    return asyncio.run(_send_all(url, requests, concurrency, tell))


async def _send_all(
    url: str, requests: Sequence[Request], concurrency: int, tell: Tell
) -> dict[int, Answer]:
    """Send requests, always `concurrency` of them in flight while there are more."""
    waiting = iter(requests)
    answers: dict[int, Answer] = {}

    async def work(client: httpx.AsyncClient) -> None:
        for request in waiting:
            answers[request.number] = await _send(client, request)
            tokens = sum(len(answer.token_ids) for answer in answers.values())
            tell(f"{len(answers)} of {len(requests)} answers, {tokens} tokens")

    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT, trust_env=False) as client:
        await asyncio.gather(*(work(client) for _ in range(concurrency)))
    return answers


async def _send(client: httpx.AsyncClient, request: Request) -> Answer:
    answer = accepted(await client.post("/v1/chat/completions", json=request.body))
    choice = answer.json()["choices"][0]
    return Answer(tuple(choice["response_token_ids"]), choice["message"]["content"])
