"""The demo with a real model, SmolLM2, and prompts of four kinds."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec.errors import ServerError
from sglang_dynspec_cpu.answers import Completion
from sglang_dynspec_cpu.demo.load import Answer, Phase, Ramp
from sglang_dynspec_cpu.demo.subject import Subject
from sglang_dynspec_cpu.smollm2.distribution import find_gguf
from sglang_dynspec_cpu.smollm2.pair import smollm2_head, smollm2_pair
from sglang_dynspec_cpu.smollm2.prompts import chat_template, prompts_by_kind
from sglang_dynspec_hooks.client import accepted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from sglang_dynspec_cpu.checkpoint import ModelPair
    from sglang_dynspec_cpu.demo.steps import Tell

#: Plain and one depth, so that a minute tells them apart. To verify six tokens takes a CPU about
#: as long as to verify three: a shallow depth saves little.
_DEPTHS: Final = (0, 5)
#: Concurrency of each phase and its requests: as many of each kind, and all the prompts in all.
_PHASES: Final = ((1, 4), (4, 12), (16, 32), (4, 8), (1, 4))
#: Concurrency and requests when drafts are counted.
_MEASURED: Final = (4, 16)
#: Most tokens of an answer; many end earlier by themselves.
_LENGTH: Final = 48


@dataclass(frozen=True, slots=True)
class StreamedRequest:
    """A prompt whose answer is streamed."""

    number: int
    kind: str
    #: What a user would type.
    message: str
    #: The same in the words of the model's chat template.
    prompt: str

    @property
    def body(self) -> dict[str, Any]:
        """
        The request as SGLang's own endpoint takes it, which streams token ids as well: greedy.
        """
        sampling = {"temperature": 0, "max_new_tokens": _LENGTH}
        return {"text": self.prompt, "sampling_params": sampling, "stream": True}

    async def send(self, client: httpx.AsyncClient, show: Tell) -> Answer:
        """Send it, and show the prompt, then the answer as it grows."""
        show(f"\n  [{self.kind}] {self.message}\n  > ")
        done: Completion | None = None
        async with client.stream("POST", "/generate", json=self.body) as response:
            if not response.is_success:
                # `accepted` quotes it.
                await response.aread()
            async for line in accepted(response).aiter_lines():
                if line.startswith("data: {"):
                    # Each event holds the whole answer so far.
                    before = "" if done is None else done.text
                    done = _completion(json.loads(line.removeprefix("data: ")))
                    show(done.text.removeprefix(before).replace("\n", "\n    "))
        show("\n")
        if done is None or done.finish_reason not in {"stop", "length"}:
            raise _cut_off(None if done is None else done.meta_info)
        return Answer(done.output_ids, done.text, done.accepted_histogram)


def real(head: Path | None = None) -> Subject:
    """
    Return the demo with SmolLM2.

    Args:
        head: Directory of an EAGLE3 head for it; None for the repository's.

    Raises:
        ConfigError: When the package that holds the model is not installed, or there is no head.
    """
    find_gguf()
    smollm2_head(head)

    def build(_: Path, tell: Tell) -> ModelPair:
        # In the user's cache: every run uses the same 270 MB.
        return smollm2_pair(head=head, tell=tell)

    return Subject(
        name="smollm2",
        algorithm="EAGLE3",
        depths=_DEPTHS,
        title="build SmolLM2, unless it is in the cache",
        build=build,
        ramp=lambda models: real_ramp(chat_template(models.target)),
    )


def real_ramp(render: Callable[[str], str]) -> Ramp:
    """
    Return the load for a real model, whose first answers are shown.

    Args:
        render: Puts a message into the model's chat template.
    """
    by_kind = prompts_by_kind()
    # One of each kind after the other.
    mixed = zip(*by_kind.values(), strict=True)
    requests: Iterator[StreamedRequest] = (
        StreamedRequest(number, kind, message, render(message))
        for number, (kind, message) in enumerate(
            (kind, message) for row in mixed for kind, message in zip(by_kind, row, strict=True)
        )
    )
    phases = [
        Phase(concurrency, tuple(itertools.islice(requests, count)), is_shown=number == 0)
        for number, (concurrency, count) in enumerate(_PHASES)
    ]
    concurrency, count = _MEASURED
    sent = [request for phase in phases for request in phase.requests]
    greeting = "Hello!"
    return Ramp(
        phases,
        warm_up=StreamedRequest(-1, "", greeting, render(greeting)),
        measured=Phase(concurrency, tuple(sent[:count])),
    )


def _completion(event: dict[str, Any]) -> Completion:
    if "error" in event:
        raise _cut_off(event)
    return Completion.of(event)


def _cut_off(found: object) -> ServerError:
    return ServerError(
        expected="a whole answer", found=f"{found!r:.200}", remedy="read the server's log"
    )
