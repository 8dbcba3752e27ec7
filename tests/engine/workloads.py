"""Requests that engines answer, the same for the plain engine and for ours."""

import random
from dataclasses import dataclass, field
from typing import Any

#: Ids of the random model's vocabulary that are ordinary tokens.
ORDINARY = range(3, 259)


@dataclass(frozen=True)
class Workload:
    """One call of ``CpuEngine.generate``; ``name`` keys its plain answer."""

    name: str
    input_ids: tuple[tuple[int, ...], ...]
    sampling: tuple[dict[str, Any], ...]
    options: dict[str, Any] = field(default_factory=dict)

    def send(self, engine: Any) -> list[Any]:
        return engine.generate(
            input_ids=self.input_ids, sampling_params=list(self.sampling), **self.options
        )


def prompts(lengths: list[int], seed: int) -> tuple[tuple[int, ...], ...]:
    draw = random.Random(seed)  # to be repeated, not to be secret
    return tuple(tuple(draw.choice(ORDINARY) for _ in range(length)) for length in lengths)


def workload(
    name: str, lengths: list[int], new_tokens: list[int], *, seed: int, **sampling: Any
) -> Workload:
    """A workload; ``options`` may be given among ``sampling`` under that name."""
    options = sampling.pop("options", {})
    params = {"temperature": 0, "ignore_eos": True, **sampling}
    return Workload(
        name=name,
        input_ids=prompts(lengths, seed),
        sampling=tuple({**params, "max_new_tokens": new} for new in new_tokens),
        options=options,
    )


#: Batch sizes 16 down to 1: 24 requests for 16 places, which leave one after the other.
CROWD = workload(
    "crowd",
    [8 + 7 * i for i in range(24)],
    [30 * (i % 8) + 10 for i in range(24)],
    seed=1,
)
#: One request for a long time: many switches at little cost.
MARATHON = workload("marathon", [20], [1500], seed=2)
#: Prompts of several prefill chunks that arrive while others decode.
LONG_PROMPTS = workload(
    "long_prompts", [300, 40, 700, 65, 500, 64] * 3, [24, 60, 30, 45, 12, 50] * 3, seed=3
)
#: Answers that end with a stop string, a stop token, or at their length.
STOPS = Workload(
    name="stops",
    input_ids=prompts([12, 18, 25, 31, 40, 22], 4),
    sampling=(
        *({"temperature": 0, "max_new_tokens": 120, "stop": [text]} for text in "aeQ"),
        {"temperature": 0, "max_new_tokens": 120, "stop": ["!", "zz", "7"]},
        {"temperature": 0, "max_new_tokens": 120, "stop_token_ids": [40, 41, 42, 43, 44]},
        {"temperature": 0, "max_new_tokens": 70},
    ),
)
LOGPROBS = workload(
    "logprobs",
    [30, 45, 60, 80],
    [40, 25, 60, 33],
    seed=5,
    options={"return_logprob": True, "top_logprobs_num": 3, "logprob_start_len": 0},
)
_SCHEMA = (
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, '
    '"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["name", "age"]}'
)
GRAMMARS = Workload(
    name="grammars",
    input_ids=prompts([16, 24, 33, 20, 28, 36], 6),
    sampling=(
        {"temperature": 0, "max_new_tokens": 64, "json_schema": _SCHEMA},
        {"temperature": 0, "max_new_tokens": 64, "regex": "(ab|cd){2,20}x"},
        {"temperature": 0, "max_new_tokens": 64, "regex": "[0-9]{30}"},
        {"temperature": 0, "max_new_tokens": 64, "ignore_eos": True},
        {"temperature": 0, "max_new_tokens": 40, "json_schema": _SCHEMA},
        {"temperature": 0, "max_new_tokens": 64, "regex": "[a-z]+ [a-z]+"},
    ),
)
#: Everything the plain sampler knows. SGLang honours seeds of requests only with deterministic
#: inference, which its CPU backend does not offer: the draws come from one generator seeded at
#: start-up, so a fresh engine must answer this first, and its rounds must draw alike.
SAMPLING = Workload(
    name="sampling",
    input_ids=prompts([14, 22, 30, 17, 26, 41, 19, 23], 7),
    sampling=tuple(
        {"max_new_tokens": 50, "ignore_eos": True, **params}
        for params in (
            {"temperature": 0.9, "top_p": 0.95, "sampling_seed": 5},
            {"temperature": 1.1, "top_k": 20, "sampling_seed": 6},
            {"temperature": 0.7, "min_p": 0.1, "sampling_seed": 7},
            {"temperature": 0, "frequency_penalty": 0.7, "presence_penalty": 0.3},
            {"temperature": 0, "repetition_penalty": 1.3},
            {"temperature": 0, "logit_bias": {"50": 4.0, "60": -5.0}},
            {"temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.5, "sampling_seed": 8},
            {"temperature": 1.3, "top_k": 50, "top_p": 0.8, "min_p": 0.05, "logit_bias": {"9": 3}},
        )
    ),
)
#: Three samples of each prompt. Greedy: which sample gets which draw is up to the scheduler.
SAMPLES = Workload(
    name="samples",
    input_ids=prompts([21, 30], 8),
    sampling=tuple(
        {"temperature": 0, "max_new_tokens": 30, "n": 3, "ignore_eos": True, **penalty}
        for penalty in ({"frequency_penalty": 0.8}, {"presence_penalty": 0.6})
    ),
)
#: A request of each kind that the speculative sampler only approximates, among ordinary ones.
INEXACT = Workload(
    name="inexact",
    input_ids=prompts([24, 18, 30, 27, 21, 33], 9),
    sampling=(
        {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True},
        {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True, "frequency_penalty": 1.2},
        {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True, "presence_penalty": 0.9},
        {"temperature": 0, "max_new_tokens": 80, "ignore_eos": True},
        {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True, "repetition_penalty": 1.4},
        {"temperature": 0, "max_new_tokens": 40, "min_new_tokens": 20},
    ),
)

GREEDY = (CROWD, MARATHON, LONG_PROMPTS, STOPS, LOGPROBS, GRAMMARS, INEXACT, SAMPLES)
