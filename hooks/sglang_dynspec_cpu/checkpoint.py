"""
Checkpoints of built Llama models and EAGLE3 heads, and the cache they are kept in.

A checkpoint is built by code from a recipe, a frozen dataclass of plain values that decides every
weight. It is kept in a directory named by the hash of recipe and code, so it is built once.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
    "rule.py",
    "tokenizer.py",
    "waves.py",
    "smollm2/conversion.py",
    "smollm2/vocabulary.py",
)

Weights = dict[str, Tensor]

#: Bytes from which weights are written in several files, and how many of these at once.
_LARGE, _WRITERS = 2**30, 8
_LAYER = re.compile(r"layers\.(\d+)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a Llama model or EAGLE3 head."""

    vocabulary: int
    layers: int
    hidden: int = 64
    intermediate: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    context: int = 2048
    rope_theta: float = 10000.0
    #: Of all weights, by torch's name.
    dtype: str = "float32"


#: Llama-3.1-8B.
LLAMA_8B = Shape(
    vocabulary=128256,
    layers=32,
    hidden=4096,
    intermediate=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    context=131072,
    rope_theta=500000.0,
    dtype="bfloat16",
)
#: Ids that EAGLE3 heads for it know.
HEAD_VOCABULARY = 32000


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


def configuration(shape: Shape, architecture: str = "LlamaForCausalLM") -> dict[str, Any]:
    """Return a model's ``config.json``; ``architecture`` is SGLang's model class."""
    return {
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
        "rope_theta": shape.rope_theta,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": shape.dtype,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
    }


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
        weights: Its weights by name. A large model's go into a file per layer, at once, so that
            layers may share tensors and an 8B model takes seconds.
        architecture: SGLang's model class.
        extra: More configuration keys.
    """
    config = {**configuration(shape, architecture), **(extra or {})}
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    _write_weights(directory, weights)
    write_tokenizer(directory, shape.vocabulary, shape.context)


def _write_weights(directory: Path, weights: Weights) -> None:
    from safetensors.torch import save_file

    size = sum(weight.numel() * weight.element_size() for weight in weights.values())
    if size < _LARGE:
        # Copies: tensors of one file may share no memory.
        copies = {name: weight.clone().contiguous() for name, weight in weights.items()}
        save_file(copies, str(directory / "model.safetensors"))
        return
    shards: dict[str, Weights] = {}
    for name, weight in weights.items():
        layer = _LAYER.search(name)
        shards.setdefault(layer[1] if layer else "", {})[name] = weight.contiguous()
    files = {
        f"model-{number:05}-of-{len(shards):05}.safetensors": shard
        for number, shard in enumerate(shards.values(), start=1)
    }
    index = {
        "metadata": {"total_size": size},
        "weight_map": {name: file for file, shard in files.items() for name in shard},
    }
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    with ThreadPoolExecutor(_WRITERS) as pool:
        # It lets go of Python's lock. A list, so that a failure is raised here.
        list(pool.map(lambda file: save_file(files[file], str(directory / file)), files))


def write_eagle3_head(directory: Path, shape: Shape, weights: Weights) -> None:
    """
    Write an EAGLE3 head that knows the first of the target's ids, or all.

    Args:
        directory: An existing directory.
        shape: The head's sizes; one layer.
        weights: Its weights, without the vocabulary maps. Rows of ``lm_head.weight`` are ids.
    """
    known = len(weights["lm_head.weight"])
    maps = {
        # Differences between target and draft ids, and which target ids have a draft id.
        "d2t": torch.zeros(known, dtype=torch.int64),
        "t2d": torch.arange(shape.vocabulary) < known,
    }
    write_checkpoint(
        directory,
        shape,
        {**weights, **maps},
        architecture="LlamaForCausalLMEagle3",
        extra={"draft_vocab_size": known},
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
