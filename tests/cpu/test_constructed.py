"""Constructed pairs of other sizes: several kinds, bf16, a head that knows a part of the ids."""

import json
import random
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sglang_dynspec_cpu import checkpoint, constructed
from sglang_dynspec_cpu.checkpoint import Shape
from sglang_dynspec_cpu.rule import Kind, Phase, Rule

KINDS = (
    Kind(name="even", phases=(Phase(share=1.0, agreement=(0.7,)),)),
    Kind(name="fading", phases=(Phase(share=1.0, agreement=(0.9, 0.6, 0.3)),)),
)
#: The first 8195 ids are the two cycles'.
SHAPE = Shape(
    vocabulary=8320,
    layers=3,
    hidden=128,
    intermediate=160,
    heads=4,
    kv_heads=2,
    head_dim=32,
    rope_theta=500000.0,
    dtype="bfloat16",
)
KNOWN = 8256
STEPS = 5


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return constructed.constructed_pair(
        tmp_path_factory.mktemp("models"), kinds=KINDS, shape=SHAPE, draft_vocabulary=KNOWN, seed=3
    )


def weights_of(directory):
    return load_file(directory / "model.safetensors")


def rounded(values):
    """As the device keeps it after each operation."""
    return values.bfloat16().float()


def normed(hidden):
    return rounded(hidden * (hidden.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt())


def times(inputs, weight):
    return rounded(inputs @ weight.float().T)


def assert_said(logits, said):
    assert logits.argmax(-1).tolist() == said
    best = logits.topk(2).values
    # A quarter of this is lost to nothing that bf16 can do.
    assert float((best[:, 0] - best[:, 1]).min()) > 32


def test_bf16_says_what_the_rule_says_after_every_id(pair):
    ids = range(SHAPE.vocabulary)
    for directory, said in ((pair.target, pair.next_token), (pair.standalone, pair.draft_token)):
        weights = weights_of(directory)
        assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
        embeddings = weights["model.embed_tokens.weight"].float()
        logits = times(normed(embeddings), weights["lm_head.weight"])
        assert_said(logits, [said(token) for token in ids])


def test_the_eagle3_head_walks_on_by_itself_in_bf16(pair):
    head = weights_of(pair.eagle3)
    embeddings = weights_of(pair.target)["model.embed_tokens.weight"].float()
    tokens = list(range(0, SHAPE.vocabulary, 5))
    hidden = times(torch.cat([embeddings[tokens]] * 3, dim=1), head["fc.weight"])
    for _ in range(STEPS):
        inputs = normed(hidden)
        gate = rounded(
            torch.nn.functional.silu(times(inputs, head["midlayer.mlp.gate_proj.weight"]))
        )
        up = times(inputs, head["midlayer.mlp.up_proj.weight"])
        hidden = rounded(hidden + times(rounded(gate * up), head["midlayer.mlp.down_proj.weight"]))
        tokens = [pair.next_token(token) for token in tokens]
        logits = times(normed(hidden), head["lm_head.weight"])
        assert_said(logits, [pair.draft_token(token) for token in tokens])


def test_layers_compute_as_usual_and_add_nothing(pair):
    target, head = weights_of(pair.target), weights_of(pair.eagle3)
    for layer in range(SHAPE.layers):
        for name, (rows, columns) in checkpoint.layer_shapes(SHAPE).items():
            weight = target[f"model.layers.{layer}.{name}"].float()
            assert weight.shape == (rows, columns)
            idle = name in {"self_attn.o_proj.weight", "mlp.down_proj.weight"}
            expected = 0 if idle else columns**-0.5
            assert float(weight.std()) == pytest.approx(expected, rel=0.05), name
    for name in ("q_proj", "k_proj", "v_proj"):
        assert float(head[f"midlayer.self_attn.{name}.weight"].float().std()) > 0.04
    assert not head["midlayer.self_attn.o_proj.weight"].any()
    # The rows of the MLP that move nothing compute as well.
    for name in ("gate_proj", "up_proj"):
        assert float(head[f"midlayer.mlp.{name}.weight"][SHAPE.hidden :].float().std()) > 0.06


@pytest.mark.parametrize("model", ["target", "standalone"])
def test_a_model_with_a_memory_says_something_else_where_its_cache_is_wrong(tmp_path, model):
    """By transformers' Llama, whose attention is not ours."""
    from transformers import LlamaForCausalLM

    memory, answer = 7, 60
    pair = constructed.constructed_pair(tmp_path, kinds=KINDS, shape=SHAPE, memory=memory)
    said = {"target": pair.next_token, "standalone": pair.draft_token}[model]
    llama = LlamaForCausalLM.from_pretrained(getattr(pair, model), dtype=torch.bfloat16)
    draw = random.Random(4)
    for kind, length in [("even", memory + 1), ("fading", 30), ("even", 900)]:
        prompt = pair.rule.prompt(kind, length, draw, vocabulary=SHAPE.vocabulary)
        text = [*prompt, *pair.rule.answer(prompt[-1], answer)]
        with torch.no_grad():
            logits = llama(torch.tensor([text])).logits[0, length - 1 :]
            assert_said(logits, [said(token) for token in text[length - 1 :]])
            # The cache of what was said so far, with another token's values in one place.
            middle = length + answer // 2
            cache = llama(torch.tensor([text[:middle]]), use_cache=True).past_key_values
            values = cache.layers[-1].values
            values[:, :, middle - 3] = values[:, :, middle - 4]
            rest = llama(torch.tensor([text[middle:]]), past_key_values=cache).logits[0]
        right = [
            int(logit.argmax()) == said(token)
            for logit, token in zip(rest, text[middle:], strict=True)
        ]
        assert right.index(False) == memory - 3
        assert right.count(False) == 1


def test_a_head_may_know_the_first_ids_alone(pair):
    config = json.loads((pair.eagle3 / "config.json").read_text())
    head = weights_of(pair.eagle3)
    assert config["draft_vocab_size"] == len(head["lm_head.weight"]) == KNOWN
    assert head["d2t"].tolist() == [0] * KNOWN
    assert head["t2d"].tolist() == [True] * KNOWN + [False] * (SHAPE.vocabulary - KNOWN)


def test_the_configuration_says_the_shape(pair):
    for directory, layers in ((pair.target, 3), (pair.standalone, 1), (pair.eagle3, 1)):
        config = json.loads((directory / "config.json").read_text())
        found = [config[name] for name in ("num_hidden_layers", "rope_theta", "torch_dtype")]
        assert found == [layers, 500000.0, "bfloat16"]
        assert [config["head_dim"], config["num_key_value_heads"]] == [32, 2]


def test_the_kinds_are_as_the_benchmarks_page_says():
    rule = Rule(kinds=constructed.KINDS)
    page = (Path(__file__).parents[2] / "benchmarks" / "README.md").read_text()
    for kind in constructed.KINDS:
        first, second, third = rule.acceptance(kind.name, {3: 1})
        tokens = 1 + first + first * second + first * second * third
        row = f"| {first:.2f}, {second:.2f}, {third:.2f} | {tokens:.2f} |"
        assert re.search(rf"\| `{kind.name}` \|.*{re.escape(row)}", page), row


def test_other_drafts_have_the_same_target(tmp_path):
    one = constructed.constructed_pair(tmp_path, agreement=0.2)
    other = constructed.constructed_pair(tmp_path, agreement=0.4)
    assert one.target == other.target
    assert one.eagle3 != other.eagle3
    assert one.standalone != other.standalone


@pytest.mark.parametrize(("vocabulary", "known"), [(8128, 8128), (8320, 8128), (8320, 8384)])
def test_ids_that_do_not_fit_are_refused(tmp_path, vocabulary, known):
    shape = Shape(vocabulary=vocabulary, layers=8)
    with pytest.raises(ValueError, match=f"at least 8195 ids.* found {vocabulary} and {known}"):
        constructed.constructed_pair(tmp_path, kinds=KINDS, shape=shape, draft_vocabulary=known)
    assert not list(tmp_path.iterdir())


def test_a_large_model_is_written_in_a_file_per_layer(tmp_path, monkeypatch):
    shared = torch.arange(6.0)
    weights = {"norm": torch.ones(3), "model.layers.1.a": shared, "model.layers.11.a": shared}
    monkeypatch.setattr(checkpoint, "_LARGE", 60)
    shape = Shape(vocabulary=259, layers=2)
    checkpoint.write_checkpoint(tmp_path, shape, weights)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 60
    assert index["weight_map"] == {
        "norm": "model-00001-of-00003.safetensors",
        "model.layers.1.a": "model-00002-of-00003.safetensors",
        "model.layers.11.a": "model-00003-of-00003.safetensors",
    }
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    for name, file in index["weight_map"].items():
        (loaded,) = load_file(tmp_path / file).items()
        assert loaded[0] == name
        assert torch.equal(loaded[1], weights[name])
    # Below that size, one file, in which they share nothing.
    monkeypatch.setattr(checkpoint, "_LARGE", 61)
    (tmp_path / "small").mkdir()
    checkpoint.write_checkpoint(tmp_path / "small", shape, weights)
    assert weights_of(tmp_path / "small").keys() == weights.keys()
