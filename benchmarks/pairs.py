"""
The models that the serving benchmarks serve, by `--pair`, and the prompts that they send them.

Each is a function in `PAIRS`, of the benchmark's options. It is called in the benchmark's process
before any engine starts, where it may build, and in every engine's.
"""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target and its EAGLE3 head."""

    #: What the results say of them.
    weights: str
    target: Path
    draft: Path
    #: Their lengths in tokens, and a seed -> prompts.
    prompts: Callable[[Sequence[int], int], list[list[int]]]
    #: A prompt and a number of tokens -> the answer; None where nobody knows it.
    answer: Callable[[Sequence[int], int], list[int]] | None = None
    #: Arguments of every engine, of those that speculate besides, and variables of all processes.
    arguments: dict[str, Any] = field(default_factory=dict)
    draft_arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    #: Whether answers go on to the length asked for, whatever the model says.
    ignore_eos: bool = True
    #: What is known of acceptance, for the results.
    acceptance: dict[str, Any] = field(default_factory=dict)

    def differing(self, prompts: list[list[int]], answers: list[list[int]], tokens: int) -> int:
        """Tokens that are not what they should be, of answers so long; 0 where nobody knows."""
        if self.answer is None:
            return 0
        return sum(
            expected != found
            for prompt, answer in zip(prompts, answers, strict=True)
            for expected, found in zip_longest(self.answer(prompt, tokens), answer)
        )


def chosen(options: argparse.Namespace) -> Pair:
    """The pair of `--pair`."""
    return PAIRS[options.pair](options)


def random_pair(options: argparse.Namespace) -> Pair:
    """Random weights, whose accepted length SGLang simulates; on a CPU nothing does."""

    def prompts(lengths: Sequence[int], seed: int) -> list[list[int]]:
        draw = random.Random(seed)
        return [[draw.randrange(3, 250) for _ in range(length)] for length in lengths]

    if options.tiny:
        from sglang_dynspec_cpu.models import build

        built = build("random", None)
        return Pair(
            weights="random; tiny", target=built.target, draft=built.eagle3, prompts=prompts
        )
    from shapes import HEAD, TARGET

    return Pair(
        weights="random; shapes of Llama-3.1-8B and an EAGLE3 head",
        target=_configured("target", TARGET),
        draft=_configured("draft", HEAD),
        prompts=prompts,
        arguments={"load_format": "dummy"},
        draft_arguments={"speculative_draft_load_format": "dummy"},
        environment={"SGLANG_SIMULATE_ACC_LEN": str(options.accepted)},
        acceptance={"simulated_length": options.accepted},
    )


def known_pair(options: argparse.Namespace) -> Pair:
    """The constructed pair: layers that compute as usual, drafts that are right by a rule."""
    from sglang_dynspec_cpu.checkpoint import HEAD_VOCABULARY, LLAMA_8B
    from sglang_dynspec_cpu.constructed import KINDS, MEMORY, constructed_pair

    sizes = {} if options.tiny else {"shape": LLAMA_8B, "draft_vocabulary": HEAD_VOCABULARY}
    built = constructed_pair(kinds=KINDS, memory=MEMORY, **sizes)
    rule = built.rule
    kinds = options.kinds or [kind.name for kind in rule.kinds]

    def prompts(lengths: Sequence[int], seed: int) -> list[list[int]]:
        draw = random.Random(seed)
        return [
            rule.prompt(kinds[number % len(kinds)], length, draw, vocabulary=built.shape.vocabulary)
            for number, length in enumerate(lengths)
        ]

    return Pair(
        weights=f"constructed; {'tiny' if options.tiny else 'shapes of Llama-3.1-8B and its head'}",
        target=built.target,
        draft=built.eagle3,
        prompts=prompts,
        answer=lambda prompt, count: rule.answer(prompt[-1], count),
        acceptance={
            kind: {depth: rule.acceptance(kind, {depth: 1}) for depth in options.depths if depth}
            for kind in kinds
        },
    )


def real_pair(options: argparse.Namespace) -> Pair:
    """SmolLM2 and its head, in bf16: real prompts, of whatever length they have."""
    from transformers import AutoTokenizer

    from sglang_dynspec_cpu.smollm2.pair import smollm2_pair
    from sglang_dynspec_cpu.smollm2.prompts import chat_template, prompts_by_kind

    built = smollm2_pair(head=options.head)
    by_kind = prompts_by_kind()
    kinds = options.kinds or list(by_kind)
    render, tokenizer = chat_template(built.target), AutoTokenizer.from_pretrained(built.target)
    # Kinds in turn, so that any few requests are of all of them.
    texts = [
        text for each in zip(*(by_kind[kind] for kind in kinds), strict=False) for text in each
    ]
    encoded = [tokenizer.encode(render(text), add_special_tokens=False) for text in texts]

    def prompts(lengths: Sequence[int], seed: int) -> list[list[int]]:
        return [encoded[(seed + number) % len(encoded)] for number in range(len(lengths))]

    return Pair(
        weights="SmolLM2-135M-Instruct and its EAGLE3 head, bf16",
        target=built.target,
        draft=built.eagle3,
        prompts=prompts,
        # In fp32, triton's verification takes 70 ms a round on an H200: no server is run so.
        arguments={} if options.tiny else {"dtype": "bfloat16"},
        ignore_eos=False,
    )


PAIRS = {"random": random_pair, "known": known_pair, "real": real_pair}


def _configured(name: str, config: dict[str, Any]) -> Path:
    """A model directory with no weights."""
    path = Path(tempfile.gettempdir(), f"serve_modes_{name}")
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path
