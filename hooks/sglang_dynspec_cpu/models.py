"""
Models with random weights: a target and drafts that depend on the whole history.

What a random Llama says next depends on every token before it, so a wrong or missing KV row
changes its output, for the target and for a STANDALONE draft alike. The draft's weights are the
target's plus noise: without noise every draft is right, with more noise fewer are. A random
EAGLE3 or EAGLE head is almost never right.

A draft that costs as much as its target can never pay. `shallow_pair` has one that costs little: a
target of many layers, of which all but the first add little, and a draft that is the first alone.

The tests' other family, whose acceptance is known exactly, is in `constructed`; a real model is in
`smollm2`.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from sglang_dynspec_cpu.checkpoint import (
    ModelPair,
    Shape,
    Weights,
    cached,
    layer_shapes,
    write_checkpoint,
    write_eagle3_head,
)
from sglang_dynspec_cpu.constructed import constructed_pair
from sglang_dynspec_cpu.smollm2.pair import smollm2_pair

#: Noise at which a STANDALONE draft of depth 3 has 1.2 drafts accepted on average; without noise
#: it is 1.6, not 3, for SGLang's STANDALONE draft never sees a request's first token.
PARTLY_AGREEING = 0.04

#: Gain of the later layers at which the draft of `shallow_pair`, at depth 5, has 1.8 drafts
#: accepted on average.
MOSTLY_SHALLOW = 0.12

# Gains of a layer's matrices. Sharp attention: the output must depend on which keys it sees. Not
# too much of it: one key more or less, the first token, must not turn every draft wrong.
_GAINS = {
    "self_attn.q_proj.weight": 2.0,
    "self_attn.k_proj.weight": 2.0,
    "self_attn.o_proj.weight": 0.4,
}

# The matrices whose products a layer adds to the hidden state.
_OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")

_NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")


# SGLang's default EAGLE3 capture needs eight layers of the target.
_TARGET_SHAPE = Shape(vocabulary=512, layers=8)
#: Sizes that GPU kernels accept: their heads are 64 wide or more.
GPU_SHAPE = Shape(
    vocabulary=512, layers=8, hidden=256, intermediate=512, heads=4, kv_heads=2, head_dim=64
)
# Wide MLPs beside little attention: a few tokens at once cost a CPU little more than one, whose
# time is that of reading the weights, and many tokens cost it their arithmetic.
_DEEP_SHAPE = Shape(
    vocabulary=512, layers=12, hidden=384, intermediate=1536, heads=4, kv_heads=1, head_dim=32
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRecipe:
    """What decides the weights of a random model."""

    shape: Shape
    seed: int
    #: Standard deviation of the noise on each matrix, relative to the matrix's own.
    noise: float = 0.0
    #: Gain of what each layer but the first adds to the hidden state.
    later_gain: float = 1.0


def build(name: str, cache: Path | None = None) -> ModelPair:
    """
    Build models by name.

    Args:
        name: ``random``: a random target and a STANDALONE draft that equals it; ``noisy``: with a
            draft that agrees partly; ``constructed``: see `constructed`, at its defaults;
            ``smollm2``: see `smollm2`.
        cache: Where checkpoints are kept; None for the user's cache directory.

    Raises:
        ConfigError: When what ``smollm2`` needs is not installed.
        ValueError: For another name.
    """
    if name == "random":
        return random_pair(cache)
    if name == "noisy":
        return random_pair(cache, noise=PARTLY_AGREEING)
    if name == "constructed":
        return constructed_pair(cache)
    if name == "smollm2":
        return smollm2_pair(cache)
    raise ValueError(
        f"expected models random, noisy, constructed or smollm2; found {name!r}; choose one of them"
    )


def random_pair(
    cache: Path | None = None,
    *,
    seed: int = 0,
    noise: float = 0.0,
    shape: Shape = _TARGET_SHAPE,
) -> ModelPair:
    """
    Build a random target, a STANDALONE draft that is the target plus noise, and EAGLE heads.

    Args:
        cache: Where checkpoints are kept; None for the user's cache directory.
        seed: Seed of all the weights.
        noise: Relative noise on the STANDALONE draft's matrices; 0: draft and target are one.
        shape: The target's sizes, eight layers or more; the heads have one layer of them.

    Returns:
        The directories, built if they are not in the cache.
    """
    target = _llama(cache, RandomRecipe(shape=shape, seed=seed))
    standalone = _llama(cache, RandomRecipe(shape=shape, seed=seed, noise=noise))
    one = RandomRecipe(shape=dataclasses.replace(shape, layers=1), seed=seed)
    return ModelPair(
        target=target,
        standalone=standalone,
        eagle3=_eagle3(cache, one),
        eagle=_eagle(cache, one),
    )


def shallow_pair(
    cache: Path | None = None,
    *,
    seed: int = 0,
    later_gain: float = MOSTLY_SHALLOW,
    shape: Shape = _DEEP_SHAPE,
) -> ModelPair:
    """
    Build a random target of many layers and a STANDALONE draft that is its first layer.

    Args:
        cache: Where checkpoints are kept; None for the user's cache directory.
        seed: Seed of all the weights.
        later_gain: Gain of what the target's layers after the first add to its hidden state. The
            larger, the fewer drafts are right; 0: the draft says what the target says.
        shape: The target's sizes; the draft and the EAGLE3 head have one layer of them.

    Returns:
        The directories, built if they are not in the cache.
    """
    one = dataclasses.replace(shape, layers=1)
    target = _llama(cache, RandomRecipe(shape=shape, seed=seed, later_gain=later_gain))
    # The weights are drawn layer by layer: with the same seed, these are the target's first ones.
    standalone = _llama(cache, RandomRecipe(shape=one, seed=seed))
    head = _eagle3(cache, RandomRecipe(shape=one, seed=seed))
    return ModelPair(target=target, standalone=standalone, eagle3=head)


def _llama(cache: Path | None, recipe: RandomRecipe) -> Path:
    def build(directory: Path) -> None:
        weights = _llama_weights(recipe.shape, Generator().manual_seed(recipe.seed))
        for layer in range(1, recipe.shape.layers):
            for name in _OUTPUTS:
                weights[f"model.layers.{layer}.{name}"] *= recipe.later_gain
        if recipe.noise:
            _add_noise(weights, recipe.noise, Generator().manual_seed(recipe.seed + 1))
        write_checkpoint(directory, recipe.shape, weights)

    return cached(cache, "random-llama", recipe, build)


def _eagle3(cache: Path | None, recipe: RandomRecipe) -> Path:
    def build(directory: Path) -> None:
        weights = _eagle3_weights(recipe.shape, Generator().manual_seed(recipe.seed + 2))
        write_eagle3_head(directory, recipe.shape, weights)

    return cached(cache, "random-eagle3", recipe, build)


def _eagle(cache: Path | None, recipe: RandomRecipe) -> Path:
    def build(directory: Path) -> None:
        weights = _eagle_weights(recipe.shape, Generator().manual_seed(recipe.seed + 3))
        write_checkpoint(directory, recipe.shape, weights, architecture="LlamaForCausalLMEagle")

    return cached(cache, "random-eagle", recipe, build)


def _llama_weights(shape: Shape, generator: Generator) -> Weights:
    hidden, vocabulary = shape.hidden, shape.vocabulary
    weights = {
        "model.embed_tokens.weight": torch.randn(vocabulary, hidden, generator=generator),
        "model.norm.weight": torch.ones(hidden),
        # Far apart logits: the greedy choice does not hang on the last bits of a sum.
        "lm_head.weight": 4 * _matrix(vocabulary, hidden, generator),
    }
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        for name, size in layer_shapes(shape).items():
            weights[prefix + name] = _GAINS.get(name, 1.0) * _matrix(*size, generator)
        weights |= {prefix + name: torch.ones(hidden) for name in _NORMS}
    return weights


def _eagle3_weights(shape: Shape, generator: Generator) -> Weights:
    hidden = shape.hidden
    weights = {
        # The head reads the hidden states of three of the target's layers.
        "fc.weight": _matrix(hidden, 3 * hidden, generator),
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": _matrix(shape.vocabulary, hidden, generator),
    }
    for name, size in layer_shapes(shape, inputs=2 * hidden).items():
        weights[f"midlayer.{name}"] = _matrix(*size, generator)
    for name in (*_NORMS, "hidden_norm.weight"):
        weights[f"midlayer.{name}"] = torch.ones(hidden)
    return weights


def _eagle_weights(shape: Shape, generator: Generator) -> Weights:
    """Weights of an EAGLE head, which SGLang gives the target's embedding and output matrix."""
    hidden = shape.hidden
    weights = {
        # It reads the token's embedding beside the target's last hidden state.
        "fc.weight": _matrix(hidden, 2 * hidden, generator),
        "fc.bias": torch.zeros(hidden),
        "layers.0.post_attention_layernorm.weight": torch.ones(hidden),
    }
    for name, size in layer_shapes(shape).items():
        weights[f"layers.0.{name}"] = _matrix(*size, generator)
    return weights


def _matrix(outputs: int, inputs: int, generator: Generator) -> Tensor:
    """Return a random matrix that keeps the size of its input."""
    return torch.randn(outputs, inputs, generator=generator) / inputs**0.5


def _add_noise(weights: Weights, noise: float, generator: Generator) -> None:
    """Add noise to every matrix in place; vectors, the norms' weights, stay."""
    for weight in weights.values():
        if weight.dim() > 1:
            deviation = noise * weight.std()
            weight.add_(deviation * torch.randn(weight.shape, generator=generator))
