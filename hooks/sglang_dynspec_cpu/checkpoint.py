"""
Checkpoints of tiny Llama models and EAGLE3 heads, and the cache they are kept in.

A checkpoint is built by code from a recipe, a frozen dataclass of plain values that decides every
weight. It is kept in a directory named by the hash of recipe and code, so it is built once.
"""

import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sglang_dynspec_cpu.tokenizer import BOS_ID, EOS_ID, write_tokenizer

# The modules that decide what becomes of a recipe.
_BUILDERS = (
    "checkpoint.py",
    "constructed.py",
    "models.py",
    "tokenizer.py",
    "smollm2/conversion.py",
    "smollm2/vocabulary.py",
)

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a Llama model or EAGLE3 head; all in fp32."""

    vocabulary: int
    layers: int
    hidden: int = 64
    intermediate: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    context: int = 2048


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Directories of a target and its drafts."""

    target: Path
    #: A whole model, for the algorithm STANDALONE; None where there is none.
    standalone: Path | None
    #: A head on the target's hidden states, for the algorithm EAGLE3.
    eagle3: Path
    #: A head on the target's last hidden state, for EAGLE and NEXTN, which SGLang serves as EAGLE;
    #: None where there is none.
    eagle: Path | None = field(default=None, kw_only=True)

    def draft(self, algorithm: str) -> Path:
        """
        Return the draft of an algorithm.

        Raises:
            ValueError: For an algorithm without one.
        """
        drafts = {"EAGLE3": self.eagle3}
        if self.standalone is not None:
            drafts = {"STANDALONE": self.standalone, **drafts}
        if self.eagle is not None:
            drafts |= {"EAGLE": self.eagle, "NEXTN": self.eagle}
        if algorithm not in drafts:
            raise ValueError(
                f"expected an algorithm among {', '.join(drafts)}; found {algorithm!r}; choose one"
            )
        return drafts[algorithm]


def default_cache() -> Path:
    """Return ``$XDG_CACHE_HOME/sglang-dynspec/models``, by default in ``~/.cache``."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "sglang-dynspec" / "models"


def cached(cache: Path | None, name: str, recipe: Any, build: Callable[[Path], None]) -> Path:
    """
    Return the directory of a recipe's checkpoint, built if it is not there.

    Two processes may build the same one at once: each builds apart and the first rename wins.

    Args:
        cache: Where checkpoints are kept; None for `default_cache`.
        name: Readable first part of the directory's name.
        recipe: The recipe, a dataclass.
        build: Called with an empty directory to fill.

    Returns:
        The directory.
    """
    cache = default_cache() if cache is None else cache
    digest = _code_digest().copy()
    digest.update(json.dumps([name, asdict(recipe)], sort_keys=True).encode())
    final = cache / f"{name}-{digest.hexdigest()[:12]}"
    if final.is_dir():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    try:
        build(scratch)
        scratch.rename(final)
    except OSError:
        # A directory cannot be renamed onto one that is not empty: another process was first.
        if not final.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return final


@functools.cache
def _code_digest() -> "hashlib._Hash":
    """Hash the builders, so that a changed one never meets what an older one made."""
    digest = hashlib.sha256()
    for name in _BUILDERS:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest


def write_checkpoint(
    directory: Path,
    shape: Shape,
    weights: Weights,
    *,
    architecture: str = "LlamaForCausalLM",
    extra: Mapping[str, Any] | None = None,
) -> None:
    """
    Write a model as Hugging Face lays it out: configuration, weights and tokenizer.

    Args:
        directory: An existing directory.
        shape: The model's sizes.
        weights: Its weights by name.
        architecture: SGLang's model class.
        extra: More configuration keys.
    """
    from safetensors.torch import save_file

    config = {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        **(extra or {}),
    }
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    contiguous = {name: weight.contiguous() for name, weight in weights.items()}
    save_file(contiguous, str(directory / "model.safetensors"))
    write_tokenizer(directory, shape.vocabulary, shape.context)


def write_eagle3_head(directory: Path, shape: Shape, weights: Weights) -> None:
    """
    Write an EAGLE3 head whose draft vocabulary is the target's.

    Args:
        directory: An existing directory.
        shape: The head's sizes; one layer.
        weights: Its weights, without the vocabulary maps.
    """
    maps = {
        # Differences between target and draft ids, and which target ids have a draft id.
        "d2t": torch.zeros(shape.vocabulary, dtype=torch.int64),
        "t2d": torch.ones(shape.vocabulary, dtype=torch.bool),
    }
    write_checkpoint(
        directory,
        shape,
        {**weights, **maps},
        architecture="LlamaForCausalLMEagle3",
        extra={"draft_vocab_size": shape.vocabulary},
    )


def layer_shapes(shape: Shape, *, inputs: int | None = None) -> dict[str, tuple[int, int]]:
    """
    Return the matrices of one decoder layer: name within the layer to (outputs, inputs).

    Args:
        shape: The model's sizes.
        inputs: Width of the attention's input; None for the hidden size. An EAGLE3 head's is
            twice that: token embedding beside target hidden state.
    """
    inputs = shape.hidden if inputs is None else inputs
    query, key_value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "self_attn.q_proj.weight": (query, inputs),
        "self_attn.k_proj.weight": (key_value, inputs),
        "self_attn.v_proj.weight": (key_value, inputs),
        "self_attn.o_proj.weight": (shape.hidden, query),
        "mlp.gate_proj.weight": (shape.intermediate, shape.hidden),
        "mlp.up_proj.weight": (shape.intermediate, shape.hidden),
        "mlp.down_proj.weight": (shape.hidden, shape.intermediate),
    }
