"""
Models whose acceptance is known exactly: a walk through a permutation of the vocabulary.

The target says ``next(t)`` after token ``t``, whatever came before, where ``next`` runs through
all text ids in one cycle. The drafts say the same after a chosen share of the ids, and something
wrong after the others. So the number of accepted drafts of a round follows from its first token.

How a Llama comes to do that: place ``n`` of the cycle has the embedding ``e_n``, a vector of
cosines and sines of ``n`` times some frequencies, beside a constant. Attention and MLP add
nothing, so the last hidden state is ``e_n``, and row ``next(t)`` of ``lm_head`` is the embedding
of ``t``: all embeddings are equally long, so the right row has the largest product.

Such an embedding is moved one place on by a fixed rotation. An EAGLE3 head must do that to its own
hidden state at every draft step: its MLP computes ``(rotation - 1) x``, with a gate that the
constant component keeps constant.

A draft that is wrong or stale in its KV shows nothing here; use `models` for that.
"""

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch.nn.functional import silu

from sglang_dynspec_cpu.checkpoint import (
    ModelPair,
    Shape,
    Weights,
    cached,
    layer_shapes,
    write_checkpoint,
    write_eagle3_head,
)
from sglang_dynspec_cpu.tokenizer import FIRST_TEXT_ID

#: Number of ids in the cycle.
PERIOD = 4096
# Full period modulo 2^12: the increment is odd, the multiplier is 1 modulo 4.
_MULTIPLIER, _INCREMENT = 1229, 851

# A multiple of 64, to which SGLang pads a vocabulary anyway.
_VOCABULARY = -(-(FIRST_TEXT_ID + PERIOD) // 64) * 64
_FREQUENCIES = 31
# Eight layers: the drafts have one, so speculation is worth its cost.
_TARGET_SHAPE = Shape(vocabulary=_VOCABULARY, layers=8)
_DRAFT_SHAPE = Shape(vocabulary=_VOCABULARY, layers=1)
# Logits so far apart that sampling at a temperature of 1 is greedy, too.
_SHARPNESS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructedRecipe:
    """What decides the weights of the constructed models."""

    #: Share of the ids after which the drafts are right, 0 to 1.
    agreement: float
    seed: int


@dataclass(frozen=True, slots=True)
class ConstructedPair(ModelPair):
    """Constructed models, and what they will do."""

    recipe: ConstructedRecipe

    def next_token(self, token: int) -> int:
        """Return what the target says after ``token``; special ids continue at the start."""
        return int(_next_ids()[token])

    def draft_token(self, token: int) -> int:
        """Return what the drafts say after ``token``."""
        return int(_draft_ids(self.recipe)[token])

    def expected_accepted(self, start_token: int, depth: int, rounds: int = 1) -> tuple[int, ...]:
        """
        Walk the cycle: how many drafts are accepted, round after round.

        Args:
            start_token: The newest token before the first round.
            depth: Draft steps per round.
            rounds: How many rounds.

        Returns:
            Accepted drafts of each round.
        """
        right, wrong = _next_ids().tolist(), _draft_ids(self.recipe).tolist()
        token, accepted = start_token, []
        for _ in range(rounds):
            count = 0
            while count < depth and right[token] == wrong[token]:
                token = right[token]
                count += 1
            # The target's own token ends the round.
            token = right[token]
            accepted.append(count)
        return tuple(accepted)


def constructed_pair(
    cache: Path | None = None,
    *,
    agreement: float = 0.5,
    seed: int = 0,
) -> ConstructedPair:
    """
    Build the constructed target, a STANDALONE draft and an EAGLE3 head.

    Args:
        cache: Where checkpoints are kept; None for the user's cache directory.
        agreement: Share of the ids after which the drafts are right, 0 to 1.
        seed: Decides which ids these are.

    Returns:
        The directories, built if they are not in the cache.

    Raises:
        ValueError: When ``agreement`` is not a share.
    """
    if not 0 <= agreement <= 1:
        raise ValueError(f"expected an agreement of 0 to 1; found {agreement}; pass a share")
    everywhere = ConstructedRecipe(agreement=1.0, seed=0)
    recipe = ConstructedRecipe(agreement=agreement, seed=seed)

    def build_target(directory: Path) -> None:
        write_checkpoint(directory, _TARGET_SHAPE, _llama(_TARGET_SHAPE, _next_ids()))

    def build_standalone(directory: Path) -> None:
        write_checkpoint(directory, _DRAFT_SHAPE, _llama(_DRAFT_SHAPE, _draft_ids(recipe)))

    def build_eagle3(directory: Path) -> None:
        write_eagle3_head(directory, _DRAFT_SHAPE, _head(_DRAFT_SHAPE, _draft_ids(recipe)))

    return ConstructedPair(
        target=cached(cache, "constructed-target", everywhere, build_target),
        standalone=cached(cache, "constructed-standalone", recipe, build_standalone),
        eagle3=cached(cache, "constructed-eagle3", recipe, build_eagle3),
        recipe=recipe,
    )


@functools.cache
def _cycle() -> Tensor:
    """Return the text ids in the order of the cycle, ``[PERIOD]`` int64."""
    places, value = [], 0
    for _ in range(PERIOD):
        places.append(FIRST_TEXT_ID + value)
        value = (_MULTIPLIER * value + _INCREMENT) % PERIOD
    return torch.tensor(places)


@functools.cache
def _next_ids() -> Tensor:
    """Return the target's next id after each id, ``[vocabulary]`` int64."""
    cycle = _cycle()
    # Ids outside the cycle continue at its start.
    following = torch.full((_VOCABULARY,), int(cycle[0]))
    following[cycle] = cycle.roll(-1)
    return following


@functools.cache
def _draft_ids(recipe: ConstructedRecipe) -> Tensor:
    """Return the drafts' next id after each id, ``[vocabulary]`` int64."""
    following = _next_ids()
    cycle = _cycle()
    # A share of one id less than all cannot be: one id alone has no wrong id to swap with.
    wrong = round((1 - recipe.agreement) * PERIOD)
    shuffled = torch.randperm(PERIOD, generator=Generator().manual_seed(recipe.seed))
    ids = cycle[shuffled[:wrong]] if wrong > 1 else cycle[:0]
    drafted = following.clone()
    drafted[ids] = following[ids.roll(1)]
    # Ids outside the cycle share the embedding of the cycle's last place, so its draft as well.
    outside = torch.ones(_VOCABULARY, dtype=torch.bool)
    outside[cycle] = False
    drafted[outside] = drafted[cycle[-1]]
    return drafted


def _places(hidden: int) -> tuple[Tensor, Tensor]:
    """
    Return the embedding of each place and the rotation that moves one on.

    Returns:
        ``[PERIOD, hidden]`` and ``[hidden, hidden]``, fp64: ``embedding @ rotation.T`` is the
        next place's embedding. All embeddings have length sqrt(hidden), which RMSNorm keeps.
    """
    generator = Generator().manual_seed(0)
    # Odd frequencies: each pair of places differs in all of them.
    odd = torch.randperm(PERIOD // 4, generator=generator)[:_FREQUENCIES] * 2 + 1
    step = 2 * math.pi * odd.double() / PERIOD
    angles = torch.arange(PERIOD).double().unsqueeze(1) * step
    constant = hidden - 2 * _FREQUENCIES
    embedding = torch.cat([angles.cos(), angles.sin(), torch.ones(PERIOD, constant)], dim=1)
    length = embedding[0].norm()
    rotation = torch.eye(hidden, dtype=torch.float64)
    cosine, sine = torch.diag(step.cos()), torch.diag(step.sin())
    waves = 2 * _FREQUENCIES
    rotation[:waves, :waves] = torch.cat(
        [torch.cat([cosine, -sine], dim=1), torch.cat([sine, cosine], dim=1)]
    )
    return embedding * hidden**0.5 / length, rotation


def _embeddings(shape: Shape) -> Tensor:
    """Return the embedding of each id, ``[vocabulary, hidden]`` fp64."""
    places, _ = _places(shape.hidden)
    embeddings = places[-1].repeat(shape.vocabulary, 1)
    embeddings[_cycle()] = places
    return embeddings


def _lm_head(shape: Shape, following: Tensor) -> Tensor:
    """Return the matrix that turns the embedding of ``t`` into ``following[t]``."""
    head = torch.zeros(shape.vocabulary, shape.hidden, dtype=torch.float64)
    cycle = _cycle()
    head[following[cycle]] = _embeddings(shape)[cycle]
    return (_SHARPNESS * head / shape.hidden**0.5).float()


def _zero_layer(shape: Shape, prefix: str, *, inputs: int | None = None) -> Weights:
    """Return a decoder layer that adds nothing to its input."""
    weights = {
        prefix + name: torch.zeros(size)
        for name, size in layer_shapes(shape, inputs=inputs).items()
    }
    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        weights[prefix + name] = torch.ones(shape.hidden)
    return weights


def _llama(shape: Shape, following: Tensor) -> Weights:
    """Return a Llama that says ``following[t]`` after ``t``."""
    weights = {
        "model.embed_tokens.weight": _embeddings(shape).float(),
        "model.norm.weight": torch.ones(shape.hidden),
        "lm_head.weight": _lm_head(shape, following),
    }
    for layer in range(shape.layers):
        weights |= _zero_layer(shape, f"model.layers.{layer}.")
    return weights


def _head(shape: Shape, following: Tensor) -> Weights:
    """
    Return an EAGLE3 head that says ``following[t]`` after ``t``.

    Its input is the target's hidden state one place behind the newest token, or its own from the
    step before; its MLP moves that on by one place.
    """
    hidden = shape.hidden
    places, rotation = _places(hidden)
    constant = places[0, -1]
    gate = silu(constant)
    move = torch.zeros(shape.intermediate, hidden, dtype=torch.float64)
    move[:hidden] = (rotation - torch.eye(hidden, dtype=torch.float64)) / gate
    keep = torch.zeros(shape.intermediate, hidden, dtype=torch.float64)
    keep[:, -1] = 1
    weights = _zero_layer(shape, "midlayer.", inputs=2 * hidden)
    weights["midlayer.hidden_norm.weight"] = torch.ones(hidden)
    weights["midlayer.mlp.gate_proj.weight"] = keep.float()
    weights["midlayer.mlp.up_proj.weight"] = move.float()
    weights["midlayer.mlp.down_proj.weight"] = torch.eye(hidden, shape.intermediate)
    # The target's three captured hidden states are all the embedding: take the first.
    weights["fc.weight"] = torch.eye(hidden, 3 * hidden)
    weights["norm.weight"] = torch.ones(hidden)
    weights["lm_head.weight"] = _lm_head(shape, following)
    return weights
