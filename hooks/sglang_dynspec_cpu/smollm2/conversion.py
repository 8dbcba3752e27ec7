"""
A GGUF file of a Llama as the checkpoint that SGLang loads.

The weights are what the file's quantised ones stand for, rounded to bf16: whatever type they are
served in, the model is the same. llama.cpp keeps the rows of the query and key matrices in an order
of its own, which is undone.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from sglang_dynspec_cpu.smollm2.vocabulary import write_vocabulary

if TYPE_CHECKING:
    import gguf

    from sglang_dynspec_cpu.checkpoint import Weights

#: Tells how far a build is.
Tell = Callable[[str], None]

# Configuration keys that are the file's as they are.
_CONFIG: Final = {
    "vocab_size": "vocab_size",
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "rope.dimension_count",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope.freq_base",
}

_NAMES: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
}
_LAYER_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# Tensors between two words on how far it is.
_STEP: Final = 30


def convert(source: Path, directory: Path, tell: Tell) -> None:
    """
    Write a GGUF file as Hugging Face lays a model out; takes ten seconds.

    Args:
        source: The file, of a Llama whose output matrix is its embedding.
        directory: An existing directory.
        tell: Is told how far it is.

    Raises:
        ValueError: When the file is of another kind.
    """
    import gguf
    from safetensors.torch import save_file

    tell("reading the vocabulary")
    reader = gguf.GGUFReader(source)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    config = configuration(metadata)
    weights: Weights = {}
    for number, tensor in enumerate(reader.tensors):
        if number % _STEP == 0:
            tell(f"{number} of {len(reader.tensors)} tensors")
        weights[weight_name(tensor.name)] = _weight(tensor, config)
    tell("writing")
    write_vocabulary(directory, metadata, config["max_position_embeddings"])
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, str(directory / "model.safetensors"), metadata={"format": "pt"})


def configuration(metadata: dict[str, Any]) -> dict[str, Any]:
    """
    Return the configuration of the model.

    Args:
        metadata: The fields of a GGUF file by name.

    Raises:
        ValueError: When it is no Llama.
    """
    architecture = metadata["general.architecture"]
    if architecture != "llama":
        raise ValueError(f"expected a Llama; found {architecture}; give the file of SmolLM2")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{name: metadata[f"llama.{field}"] for name, field in _CONFIG.items()},
        # Kept in fp32, where 1e-5 is 9.99999974e-06.
        "rms_norm_eps": round(metadata["llama.attention.layer_norm_rms_epsilon"], 10),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        # The chat's end of a turn.
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def weight_name(name: str) -> str:
    """
    Return the name of a weight in the checkpoint.

    Args:
        name: Its name in the file, such as ``blk.3.attn_q.weight``.

    Raises:
        ValueError: For an unknown name.
    """
    stem, _, suffix = name.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    known = _NAMES.get(stem) if layer is None else _LAYER_NAMES.get(layer[2])
    if known is None or suffix != "weight":
        raise ValueError(
            f"expected tensors of a Llama with tied embeddings; found {name}; give the file of "
            f"SmolLM2"
        )
    return f"{known}.weight" if layer is None else f"model.layers.{layer[1]}.{known}.weight"


def unpermuted(weight: Tensor, heads: int) -> Tensor:
    """
    Undo llama.cpp's order of the rows of a query or key matrix.

    Within a head, llama.cpp puts each pair of rows that is rotated together side by side; a
    checkpoint has the first half of all pairs, then the second.

    Args:
        weight: ``[heads * head_dim, inputs]``.
        heads: Heads of this matrix.

    Returns:
        The same rows, ``[heads * head_dim, inputs]``, in the order of a checkpoint.
    """
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, pairs, 2, -1).transpose(1, 2).reshape(weight.shape)


def _weight(tensor: "gguf.ReaderTensor", config: dict[str, Any]) -> Tensor:
    """Return a tensor of the file as a weight, bf16."""
    from gguf.quants import dequantize

    # Copied: what is not quantised is a view of the file.
    weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
    if ".attn_q." in tensor.name:
        weight = unpermuted(weight, config["num_attention_heads"])
    elif ".attn_k." in tensor.name:
        weight = unpermuted(weight, config["num_key_value_heads"])
    return weight.to(torch.bfloat16).contiguous()
