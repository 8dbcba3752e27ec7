"""Small GGUF files of Llamas, written as llama.cpp's converter writes them."""

import gguf
import numpy as np
from gguf.quants import quantize
from tokenizers import pre_tokenizers

Q4_1, Q8_0 = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, CONTEXT = 96, 128, 3, 1, 32, 2, 128
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENS = (*CONTROL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "ll", "12")
MERGES = ("h e", "l l", "1 2")
TEMPLATE = "{% for message in messages %}\n{{ message['content'] }}{% endfor %}"


def matrices():
    """Names and (outputs, inputs) of the quantised matrices."""
    layer = {
        "attn_q": (HEADS * HEAD_DIM, HIDDEN),
        "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_output": (HIDDEN, HEADS * HEAD_DIM),
        "ffn_gate": (INTERMEDIATE, HIDDEN),
        "ffn_up": (INTERMEDIATE, HIDDEN),
        "ffn_down": (HIDDEN, INTERMEDIATE),
    }
    return {f"blk.{n}.{name}": size for n in range(LAYERS) for name, size in layer.items()}


def write_gguf(path, *, architecture="llama", pre="smollm", extra=()):
    """
    Write a file with random weights, and return its quantised tensors and norms by name.

    ``extra`` are names of more tensors.
    """
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(TOKENS))
    writer.add_token_types([3 if token in CONTROL else 1 for token in TOKENS])
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    written = {}

    def add(name, data, kind=None):
        written[name] = data
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)

    def drawn(*size):
        return random.standard_normal(size).astype(np.float32)

    add("token_embd", quantize(drawn(len(TOKENS), HIDDEN), Q8_0), Q8_0)
    for name, size in matrices().items():
        add(name, quantize(drawn(*size), Q4_1), Q4_1)
    for name in (
        "output_norm",
        *(f"blk.{n}.{norm}" for n in range(LAYERS) for norm in ("attn_norm", "ffn_norm")),
    ):
        add(name, drawn(HIDDEN))
    for name in extra:
        add(name, drawn(HIDDEN))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written
