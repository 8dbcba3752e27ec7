"""SmolLM2 with a head, and prompts of four kinds as workloads."""

import dataclasses
import json
import os
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from sglang_dynspec_cpu.checkpoint import ModelPair, Shape, layer_shapes
from sglang_dynspec_cpu.smollm2.pair import HEAD, smollm2_head, smollm2_target
from sglang_dynspec_cpu.smollm2.prompts import chat_template, prompts_by_kind
from tests.engine.workloads import Workload

#: Environment variable with the directory of another head than the repository's.
HEAD_VARIABLE = "DYNSPEC_SMOLLM2_HEAD"

_SHAPE = Shape(
    vocabulary=49152,
    layers=1,
    hidden=576,
    intermediate=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    context=8192,
)
_DRAFT_VOCABULARY = 4096


def chosen_head() -> Path:
    """The head that tests of acceptance need: ConfigError where there is none."""
    directory = os.environ.get(HEAD_VARIABLE)
    return smollm2_head(None if directory is None else Path(directory))


def some_head(directory: Path) -> Path:
    """The chosen head, or one of random weights, with which tokens have to be the same."""
    if HEAD_VARIABLE in os.environ or HEAD.is_dir():
        return chosen_head()
    return write_random_head(directory)


def write_random_head(directory: Path) -> Path:
    """A head that is almost never right, in the form of a trained one."""
    generator = torch.Generator().manual_seed(0)
    hidden = _SHAPE.hidden

    def matrix(outputs: int, inputs: int) -> torch.Tensor:
        drawn = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
        return drawn.to(torch.bfloat16)

    drafted = torch.randperm(_SHAPE.vocabulary, generator=generator)[:_DRAFT_VOCABULARY].sort()[0]
    weights = {
        "fc.weight": matrix(hidden, 3 * hidden),
        "lm_head.weight": matrix(_DRAFT_VOCABULARY, hidden),
        **{
            f"midlayer.{name}": matrix(*size)
            for name, size in layer_shapes(_SHAPE, inputs=2 * hidden).items()
        },
        **{
            name: torch.ones(hidden, dtype=torch.bfloat16)
            for name in (
                "norm.weight",
                "midlayer.input_layernorm.weight",
                "midlayer.post_attention_layernorm.weight",
                "midlayer.hidden_norm.weight",
            )
        },
        # Differences between target and draft ids, and which target ids have a draft id.
        "d2t": drafted - torch.arange(_DRAFT_VOCABULARY),
        "t2d": torch.isin(torch.arange(_SHAPE.vocabulary), drafted),
    }
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "vocab_size": _SHAPE.vocabulary,
        "draft_vocab_size": _DRAFT_VOCABULARY,
        "num_hidden_layers": 1,
        "hidden_size": hidden,
        "intermediate_size": _SHAPE.intermediate,
        "num_attention_heads": _SHAPE.heads,
        "num_key_value_heads": _SHAPE.kv_heads,
        "head_dim": _SHAPE.head_dim,
        "max_position_embeddings": _SHAPE.context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, str(directory / "model.safetensors"), metadata={"format": "pt"})
    return directory


def pair_with(cache: Path, head: Path) -> ModelPair:
    return ModelPair(target=smollm2_target(cache), standalone=None, eagle3=head)


@dataclasses.dataclass(frozen=True)
class Prompts:
    """The first prompts of each kind, as a workload, and which kind each is of."""

    load: Workload
    kinds: tuple[str, ...]
    tokenizer: Tokenizer

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids)


def prompts(target: Path, each: int, tokens: int, *, ignore_eos: bool = False) -> Prompts:
    """The first `each` prompts of each kind, answered by at most so many tokens."""
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    render = chat_template(target)
    chosen = [(kind, text) for kind, all_ in prompts_by_kind().items() for text in all_[:each]]
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": ignore_eos}
    load = Workload(
        name="prompts",
        input_ids=tuple(tuple(tokenizer.encode(render(text)).ids) for _, text in chosen),
        sampling=(sampling,) * len(chosen),
    )
    return Prompts(load=load, kinds=tuple(kind for kind, _ in chosen), tokenizer=tokenizer)
