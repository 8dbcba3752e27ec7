"""The text a head is trained on: a model's answers, to its own questions and to written ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from instructions import instructions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Most tokens of a question that the model asks itself, and of an answer.
QUESTION, ANSWER = 64, 320

#: Requests told to the engine at a time.
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Text:
    """Conversations: prompt and answer, as token ids."""

    #: The ids of each.
    ids: list[list[int]]
    #: How many of them are the prompt.
    prompts: list[int]
    #: What kind of instruction each began with; ``own`` where the model asked.
    kinds: list[str]

    def save(self, path: Path) -> None:
        lengths = np.array([len(each) for each in self.ids])
        np.savez_compressed(
            path,
            ids=np.concatenate([np.asarray(each, dtype=np.uint16) for each in self.ids]),
            lengths=lengths,
            prompts=np.array(self.prompts),
            kinds=np.array(self.kinds),
        )

    @classmethod
    def load(cls, path: Path) -> Text:
        with np.load(path) as saved:
            ends = np.cumsum(saved["lengths"])[:-1]
            ids = [each.astype(int).tolist() for each in np.split(saved["ids"], ends)]
            return cls(ids, saved["prompts"].tolist(), saved["kinds"].tolist())


class Speaker:
    """
    SGLang's engine without speculation, and the words that a chat is made of.

    Args:
        model: Directory of the model.

        **arguments: More arguments of the engine.
    """

    def __init__(self, model: Path, **arguments: Any) -> None:
        import sglang
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._engine = sglang.Engine(
            model_path=str(model), skip_tokenizer_init=True, random_seed=1, **arguments
        )
        before, _, after = self._as_chat("\0").partition("\0")
        self._before, self._after = self._encode(before), self._encode(after)
        self._end = self._tokenizer.eos_token_id

    def prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Put instructions into the chat's form."""
        return [[*self._before, *self._encode(text), *self._after] for text in texts]

    def questions(self, count: int) -> list[list[int]]:
        """Let the model ask: what it says in the user's place, as prompts."""
        asked = self._complete([self._before] * count, temperature=1.0, tokens=QUESTION)
        whole = [each[:-1] for each in asked if each[-1] == self._end and len(each) > 4]
        unique = {tuple(each): each for each in whole}
        return [[*self._before, *each, *self._after] for each in unique.values()]

    def answers(self, prompts: list[list[int]], temperature: float) -> list[list[int]]:
        """Let the model answer; an answer is at most `ANSWER` tokens."""
        return self._complete(prompts, temperature=temperature, tokens=ANSWER)

    def end(self) -> None:
        self._engine.shutdown()

    def _complete(
        self, prompts: list[list[int]], *, temperature: float, tokens: int
    ) -> list[list[int]]:
        sampling = {
            "temperature": temperature,
            "max_new_tokens": tokens,
            "stop_token_ids": [self._end],
        }
        found = []
        for begin in range(0, len(prompts), _CHUNK):
            chunk = prompts[begin : begin + _CHUNK]
            done = self._engine.generate(input_ids=chunk, sampling_params=sampling)
            found += [list(each["output_ids"]) for each in done]
            print(f"  {len(found)} of {len(prompts)}", flush=True)
        return found

    def _as_chat(self, text: str) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def write_text(speaker: Speaker, questions: int) -> tuple[Text, Text]:
    """
    Have conversations.

    Args:
        speaker: The model.

        questions: How many questions it may ask itself.

    Returns:
        What to train on: greedy answers, and one sampled to each prompt. What to judge by: greedy
        answers to instructions that are in neither.
    """
    print("its own questions", flush=True)
    own = speaker.questions(questions)
    written = instructions(held_out=False)
    prompts = own + speaker.prompts([text for _, text in written])
    kinds = ["own"] * len(own) + [kind for kind, _ in written]
    train = Text([], [], [])
    for temperature in (0.0, 0.8):
        print(f"answers at temperature {temperature}", flush=True)
        _add(train, prompts, speaker.answers(prompts, temperature), kinds)
    order = list(range(len(train.ids)))
    random.Random(1).shuffle(order)
    shuffled = Text(
        *([column[at] for at in order] for column in (train.ids, train.prompts, train.kinds))
    )
    print("answers to judge by", flush=True)
    kept = instructions(held_out=True)
    prompts = speaker.prompts([text for _, text in kept])
    judged = Text([], [], [])
    _add(judged, prompts, speaker.answers(prompts, 0.0), [kind for kind, _ in kept])
    return shuffled, judged


def _add(
    text: Text, prompts: list[list[int]], answers: list[list[int]], kinds: Sequence[str]
) -> None:
    for prompt, answer, kind in zip(prompts, answers, kinds, strict=True):
        text.ids.append(prompt + answer)
        text.prompts.append(len(prompt))
        text.kinds.append(kind)
