"""
Loads as servers see them: requests that come and go, and what they got, by the clock.

A load says how many requests there should be at each moment (closed loop: who is answered makes
room for the next), or when each arrives (open loop). `drive` tells an engine the requests and
measures tokens, time to the first token, and the gaps between tokens of some that are streamed.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from pairs import Pair

#: One in this many requests is streamed: streaming all of them would cost the host more than the
#: rounds.
_STREAMED = 16

#: Prompts drawn at a time, and the spread of output lengths, of their logarithms.
_BLOCK = 64
_SPREAD = 0.6

#: Seconds between two looks at how many requests there should be.
_TICK = 0.01


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks."""

    prompt: list[int]
    #: Most tokens of the answer, and whether it has all of them whatever the model says.
    tokens: int
    ignore_eos: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """
    How many requests there are, or when they arrive.

    Attributes:
        name: As it is asked for.

        seconds: How long requests are sent.

        concurrency: Gives how many there should be at a second; None for an open loop.

        rate: Gives arrivals per second at a second; None for a closed loop.
    """

    name: str
    seconds: float
    concurrency: Callable[[float], float] | None = None
    rate: Callable[[float], float] | None = None


def parse(name: str, seconds: float) -> Load:
    """
    Read a load's name.

    Args:
        name: ``closed:C``; ``ramp:A-B``, from one concurrency to another; ``steps:A,B,...:S``,
            each for S seconds, over and over; ``drain:A-B``, as a ramp in steps downwards;
            ``poisson:R`` or ``poisson:A-B``, arrivals per second, the second from half time on.

        seconds: How long requests are sent.

    Raises:
        ValueError: For another name.
    """
    kind, _, rest = name.partition(":")
    try:
        if kind == "closed":
            level = int(rest)
            return Load(name, seconds, concurrency=lambda _: level)
        if kind in {"ramp", "drain"}:
            first, last = map(int, rest.split("-"))
            # By factors, not by differences: as many seconds from 1 to 14 as from 14 to 200.
            growth = math.log(last / first)
            return Load(
                name, seconds, concurrency=lambda now: first * math.exp(growth * now / seconds)
            )
        if kind == "steps":
            listed, _, each = rest.partition(":")
            levels, length = [int(level) for level in listed.split(",")], float(each)
            return Load(
                name, seconds, concurrency=lambda now: levels[int(now / length) % len(levels)]
            )
        if kind == "poisson":
            rates = [float(rate) for rate in rest.split("-")]
            return Load(
                name, seconds, rate=lambda now: rates[0] if now < seconds / 2 else rates[-1]
            )
    except ValueError:
        pass
    raise ValueError(
        f"expected a load like closed:32, ramp:1-200, steps:4,200:5 or poisson:60; found {name!r}"
    )


def requests(
    pair: Pair, *, seed: int, prompt: tuple[int, int], tokens: tuple[int, int, int]
) -> Iterator[Request]:
    """
    Draw requests without end.

    Args:
        pair: Whose prompts they have.

        seed: Decides them all.

        prompt: Shortest and longest prompt, drawn evenly.

        tokens: Fewest, median and most output tokens, log-normal.
    """
    draw = random.Random(seed)
    fewest, median, most = tokens
    for block in count(1000 * seed):
        lengths = [draw.randint(*prompt) for _ in range(_BLOCK)]
        for ids in pair.prompts(lengths, _BLOCK * block):
            drawn = round(median * math.exp(draw.gauss(0.0, _SPREAD)))
            yield Request(ids, min(max(drawn, fewest), most), pair.ignore_eos)


@dataclass(slots=True)
class Served:
    """
    What the engine did while a load lasted.

    Attributes:
        began: When it did, by the performance counter.

        done: Of each answer when it was asked for and when it was whole, in seconds, and its
            tokens.

        first_token: Seconds to the first token of each streamed request.

        gaps: Seconds between the tokens of streamed requests, a round's tokens counted evenly.

        accepted: Rounds by accepted drafts, summed over requests.
    """

    began: float = 0.0
    done: list[tuple[float, float, int]] = field(default_factory=list)
    first_token: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def summary(self, start: float, end: float) -> dict[str, Any]:
        """
        Give figures of what happened between two seconds, as plain JSON types.

        An answer's tokens count evenly over the time that it took: counted where it ends, a few
        long ones would decide the figure of a short load.
        """
        return {
            "tok_s": round(self._tokens(start, end) / (end - start), 1),
            "requests": sum(start <= whole < end for _, whole, _ in self.done),
            "ttft_ms": _quantiles(self.first_token),
            "itl_ms": _quantiles(self.gaps),
            "accepted": self.accepted,
            "by_second": self._by_second(),
        }

    def _by_second(self) -> list[int]:
        last = int(max((whole for _, whole, _ in self.done), default=0.0))
        return [round(self._tokens(second, second + 1)) for second in range(last + 1)]

    def _tokens(self, start: float, end: float) -> float:
        return sum(
            tokens * max(min(whole, end) - max(asked, start), 0.0) / (whole - asked)
            for asked, whole, tokens in self.done
        )


def _quantiles(values: list[float]) -> dict[str, float]:
    """Give p50 and p99 in milliseconds; nothing of nothing."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        name: round(1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


async def drive(
    load: Load,
    requests: Iterator[Request],
    generate: Callable[..., Awaitable[Any]],
) -> Served:
    """
    Tell an engine a load, and wait for the last answer.

    Args:
        load: How many requests, and when.

        requests: What they are, in order.

        generate: SGLang's ``async_generate``.
    """
    served = Served(began=time.perf_counter())
    running: set[asyncio.Task[None]] = set()
    number = count(1)

    def send() -> None:
        streamed = next(number) % _STREAMED == 0
        task = asyncio.create_task(_answer(next(requests), generate, served, streamed=streamed))
        running.add(task)
        task.add_done_callback(running.discard)

    draw = random.Random(1)
    while (now := time.perf_counter() - served.began) < load.seconds:
        if load.concurrency is not None:
            wanted = round(load.concurrency(now))
            while len(running) < wanted:
                send()
            pause = asyncio.create_task(asyncio.sleep(_TICK))
            # Whoever is answered makes room at once.
            await asyncio.wait({pause, *running}, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
        else:
            send()
            await asyncio.sleep(draw.expovariate(load.rate(now)))
        for task in [task for task in running if task.done()]:
            task.result()
    await asyncio.gather(*running)
    return served


async def _answer(
    request: Request, generate: Callable[..., Awaitable[Any]], served: Served, *, streamed: bool
) -> None:
    sampling = {
        "temperature": 0,
        "max_new_tokens": request.tokens,
        "ignore_eos": request.ignore_eos,
    }
    sent = time.perf_counter()
    answer = await generate(input_ids=request.prompt, sampling_params=sampling, stream=streamed)
    if streamed:
        answer = await _follow(answer, sent, served)
    meta = answer["meta_info"]
    whole = time.perf_counter()
    served.done.append((sent - served.began, whole - served.began, meta["completion_tokens"]))
    histogram = meta.get("spec_correct_drafts_histogram") or ()
    served.accepted += [0] * (len(histogram) - len(served.accepted))
    for accepted, rounds in enumerate(histogram):
        served.accepted[accepted] += rounds


async def _follow(chunks: AsyncIterator[Any], sent: float, served: Served) -> Any:
    last, tokens, chunk = sent, 0, None
    async for chunk in chunks:
        now, total = time.perf_counter(), chunk["meta_info"]["completion_tokens"]
        if not tokens:
            served.first_token.append(now - sent)
        elif total > tokens:
            served.gaps += [(now - last) / (total - tokens)] * (total - tokens)
        last, tokens = now, total
    return chunk
