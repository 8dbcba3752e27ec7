"""The demo's load: requests whose concurrency rises and falls, and their answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import httpx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_dynspec_cpu.demo.steps import Tell

#: Seconds for one answer; a CPU that several jobs share is slow.
_TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    token_ids: tuple[int, ...]
    text: str
    #: Rounds by number of accepted drafts, from 0, plain ones among them; no part of the answer.
    accepted: tuple[int, ...] = field(default=(), compare=False)


class Request(Protocol):
    """A request that can be sent, to either server."""

    @property
    def number(self) -> int:
        """What tells it from the others."""

    @property
    def kind(self) -> str:
        """What kind of prompt it has; empty where all are alike."""

    async def send(self, client: httpx.AsyncClient, show: Tell) -> Answer:
        """
        Send it, and wait for the answer.

        Args:
            client: A client of the server.
            show: Is given prompt and answer, piece by piece as they come, where a request is
                streamed.
        """


@dataclass(slots=True)
class Phase:
    """A stretch of constant concurrency."""

    concurrency: int
    requests: tuple[Request, ...]
    #: Whether its answers are shown while they come.
    is_shown: bool = False
    #: By number of the request.
    answers: dict[int, Answer] = field(default_factory=dict)
    #: Unix times.
    began: float = 0.0
    ended: float = 0.0

    def drive(self, url: str, tell: Tell, show: Tell) -> None:
        """Send the requests, `concurrency` at a time, and keep the answers."""
        self.began = time.time()
        self.answers = _answers(url, self.requests, self.concurrency, tell, show)
        self.ended = time.time()


class Ramp:
    """The whole load, and the plain server's answers to it."""

    def __init__(
        self, phases: Sequence[Phase], warm_up: Request, measured: Phase | None = None
    ) -> None:
        """
        Put a load together.

        Args:
            phases: In the order they are driven; no two requests have the same number.
            warm_up: What is sent first, to both servers; its answer is of no interest.
            measured: Requests of the phases that are sent once more while every round speculates,
                to count accepted drafts; None where that is of no interest.
        """
        self.phases = list(phases)
        self.measured = measured
        self._warm_up = warm_up
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
        """Let a server load what it loads at its first request."""
        _answers(url, [self._warm_up], 1, _ignore, _ignore)

    def drive_plain(self, url: str, tell: Tell) -> None:
        """Send the same requests to a server without speculation."""
        self.plain_answers = _answers(url, self.requests, self.concurrency, tell, _ignore)

    def differing(self) -> list[int]:
        """List the requests whose answers differ, by number."""
        answers = {n: answer for phase in self.phases for n, answer in phase.answers.items()}
        again = {} if self.measured is None else self.measured.answers
        numbers = sorted(answers.keys() | self.plain_answers.keys())
        return [
            n
            for n in numbers
            if not answers.get(n) == again.get(n, answers.get(n)) == self.plain_answers.get(n)
        ]


def _ignore(_: str) -> None:
    """Show nothing."""


def _answers(
    url: str, requests: Sequence[Request], concurrency: int, tell: Tell, show: Tell
) -> dict[int, Answer]:
    return asyncio.run(_send_all(url, requests, concurrency, tell, show))


async def _send_all(
    url: str, requests: Sequence[Request], concurrency: int, tell: Tell, show: Tell
) -> dict[int, Answer]:
    """Send requests, always `concurrency` of them in flight while there are more."""
    waiting = iter(requests)
    answers: dict[int, Answer] = {}

    async def work(client: httpx.AsyncClient) -> None:
        for request in waiting:
            answers[request.number] = await request.send(client, show)
            tokens = sum(len(answer.token_ids) for answer in answers.values())
            tell(f"{len(answers)} of {len(requests)} answers, {tokens} tokens")

    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT, trust_env=False) as client:
        await asyncio.gather(*(work(client) for _ in range(concurrency)))
    return answers
