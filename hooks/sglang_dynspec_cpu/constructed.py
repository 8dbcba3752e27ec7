"""
Models whose tokens and acceptance are known exactly, of any size.

The target says ``next(t)`` after token ``t``, whatever came before, and the drafts say the same or
something wrong, as a `Rule` has it. So every answer and the number of accepted drafts of a round
follow from a token.

How a Llama comes to do that: ids have the vectors of `Waves`. Attention and MLP compute as in any
Llama, from random matrices, and add nothing, because their last matrices are zero. So the last
hidden state is the embedding, and row ``next(t)`` of ``lm_head`` is the embedding of ``t``: all are
equally long, so the right row has the largest product.

Such an embedding is moved one place on by a fixed rotation. An EAGLE3 head must do that to its own
hidden state at every draft step: its MLP computes ``(rotation - 1) x``, with a gate that the
constant component keeps constant.

A model that is wrong or stale in its KV shows nothing of it, unless the models have a ``memory``:
then the last layer of each looks so many tokens back, and a cache that is wrong there shows.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from sglang_dynspec_cpu.rule import Kind, Phase, Rule
from sglang_dynspec_cpu.waves import Waves

#: Kinds that differ: drafts that are right alike everywhere; the less so, the deeper in a round;
#: and by turns mostly and seldom, which changes every 32 tokens of an answer.
KINDS = (
    Kind(name="even", phases=(Phase(share=1.0, agreement=(0.73,)),)),
    Kind(name="fading", phases=(Phase(share=1.0, agreement=(0.9, 0.7, 0.4)),)),
    Kind(
        name="turning",
        phases=(
            Phase(share=1 / 128, agreement=(0.9,)),
            Phase(share=1 / 128, agreement=(0.3,)),
        )
        * 64,
    ),
)

#: Tokens back that a cache is looked at in. Any number does; this one is past all that a round or
#: an upkeep pass writes at once.
MEMORY = 16

# Eight layers: the drafts have one, so speculation is worth its cost.
_LAYERS = 8
# What a layer adds is the product of one of these with something.
_OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
_ATTENTION = tuple(f"self_attn.{name}_proj.weight" for name in "qkvo")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructedRecipe:
    """What decides the weights of a constructed draft."""

    rule: Rule
    shape: Shape
    draft_vocabulary: int


@dataclass(frozen=True, slots=True)
class ConstructedPair(ModelPair):
    """Constructed models, and what they will do."""

    rule: Rule
    #: The target's.
    shape: Shape

    def next_token(self, token: int) -> int:
        """Return what the target says after ``token``; see `Rule.next_token`."""
        return self.rule.next_token(token)

    def draft_token(self, token: int) -> int:
        """Return what the drafts say after ``token``."""
        return self.rule.draft_token(token)

    def expected_accepted(self, start_token: int, depth: int, rounds: int = 1) -> tuple[int, ...]:
        """Return how many drafts are accepted, round after round; see `Rule.accepted`."""
        return self.rule.accepted(start_token, depth, rounds)


def constructed_pair(
    cache: Path | None = None,
    *,
    agreement: float = 0.5,
    seed: int = 0,
    kinds: Sequence[Kind] = (),
    memory: int = 0,
    shape: Shape | None = None,
    draft_vocabulary: int | None = None,
) -> ConstructedPair:
    """
    Build the constructed target, a STANDALONE draft and an EAGLE3 head.

    Args:
        cache: Where checkpoints are kept; None for the user's cache directory.
        agreement: Share of the ids after which the drafts are right, 0 to 1, where there are no
            kinds.
        seed: Decides which ids these are.
        kinds: Kinds of requests; empty for a single one.
        memory: How many tokens back all the models look, and say something else where they do not
            find in their KV cache what should be there; 0 for models that no cache can mislead.
            Prompts must have been walking for so long: see `Rule.prompt`.
        shape: The target's sizes, eight layers or more; the drafts have one layer of them. None for
            eight small layers in fp32.
        draft_vocabulary: Ids that the EAGLE3 head knows, the first ones; None for all.

    Returns:
        The directories, built if they are not in the cache.

    Raises:
        ValueError: When ``agreement`` is not a share, or the rule's ids do not fit a vocabulary.
    """
    alike = Kind(name="alike", phases=(Phase(share=1.0, agreement=(agreement,)),))
    rule = Rule(kinds=tuple(kinds) or (alike,), seed=seed, memory=memory)
    if shape is None:
        # A multiple of 64, to which SGLang pads a vocabulary anyway.
        shape = Shape(vocabulary=-(-rule.vocabulary // 64) * 64, layers=_LAYERS)
    known = shape.vocabulary if draft_vocabulary is None else draft_vocabulary
    if not rule.vocabulary <= known <= shape.vocabulary:
        raise ValueError(
            f"expected vocabularies of at least {rule.vocabulary} ids, the head's no larger than "
            f"the target's; found {shape.vocabulary} and {known}; raise them or leave kinds out"
        )
    one = replace(shape, layers=1)
    places, following, drafted = _tables(rule)
    # Once for all that are built, if any is.
    waves = functools.cache(lambda: Waves(len(rule.kinds), shape.hidden))

    def build_target(directory: Path) -> None:
        write_checkpoint(directory, shape, _llama(shape, waves(), places, following, memory))

    def build_standalone(directory: Path) -> None:
        write_checkpoint(directory, one, _llama(one, waves(), places, drafted, memory))

    def build_eagle3(directory: Path) -> None:
        write_eagle3_head(directory, one, _head(one, waves(), drafted, memory, known))

    # Whatever the drafts say, the target is the same.
    target = f"constructed-target-{len(rule.kinds)}-{memory}"
    recipe = ConstructedRecipe(rule=rule, shape=one, draft_vocabulary=known)
    return ConstructedPair(
        target=cached(cache, target, shape, build_target),
        standalone=cached(cache, "constructed-standalone", recipe, build_standalone),
        eagle3=cached(cache, "constructed-eagle3", recipe, build_eagle3),
        rule=rule,
        shape=shape,
    )


def _tables(rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """Return each place's id, the target's next one and the drafts', ``[kinds, PERIOD]`` each."""
    cycles = [rule.cycle(kind) for kind in range(len(rule.kinds))]
    following = [[rule.next_token(token) for token in cycle] for cycle in cycles]
    return torch.tensor(cycles), torch.tensor(following), torch.tensor(rule.drafted())


def _dtype(shape: Shape) -> torch.dtype:
    found = getattr(torch, shape.dtype)
    assert isinstance(found, torch.dtype)  # noqa: S101 - tells the type checker
    return found


def _idle_layer(shape: Shape, *, inputs: int | None = None) -> Weights:
    """Return a decoder layer that computes as any and adds nothing to its input."""
    generator = Generator().manual_seed(0)
    weights = {}
    for name, (rows, columns) in layer_shapes(shape, inputs=inputs).items():
        if name in _OUTPUTS:
            weights[name] = torch.zeros(rows, columns, dtype=_dtype(shape))
        else:
            drawn = torch.randn(rows, columns, generator=generator, dtype=_dtype(shape))
            weights[name] = drawn.div_(columns**0.5)
    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        weights[name] = torch.ones(shape.hidden, dtype=_dtype(shape))
    return weights


def _llama(shape: Shape, waves: Waves, places: Tensor, following: Tensor, memory: int) -> Weights:
    """Return a Llama that says the following id after each place's."""
    dtype = _dtype(shape)
    # One layer's matrices serve all: at real sizes it takes minutes to draw them.
    layer = _idle_layer(shape)
    layers = [layer] * (shape.layers - 1) + [dict(layer)]
    if memory:
        # The last one, so that EAGLE3's captured hidden states do not depend on it.
        for name in _ATTENTION:
            layers[-1][name] = layer[name].clone()
        waves.look_back(layers[-1], shape, memory)
    return {
        "model.embed_tokens.weight": waves.embeddings(places, shape.vocabulary, dtype),
        "model.norm.weight": torch.ones(shape.hidden, dtype=dtype),
        "lm_head.weight": waves.lm_head(following, shape.vocabulary, dtype),
        **{
            f"model.layers.{number}.{name}": weight
            for number, each in enumerate(layers)
            for name, weight in each.items()
        },
    }


def _head(shape: Shape, waves: Waves, following: Tensor, memory: int, vocabulary: int) -> Weights:
    """
    Return an EAGLE3 head that says the following id after each place's.

    Its input is the target's hidden state one place behind the newest token, or its own from the
    step before; its MLP moves that on by one place.
    """
    hidden, dtype = shape.hidden, _dtype(shape)
    gate = silu(waves.constant)
    layer = _idle_layer(shape, inputs=2 * hidden)
    if memory:
        waves.look_back(layer, shape, memory)
    # The rows of the MLP that count; the others compute as usual.
    move = (waves.rotation - torch.eye(hidden, dtype=torch.float64)) / gate
    layer["mlp.up_proj.weight"][:hidden] = move.to(dtype)
    layer["mlp.gate_proj.weight"][:hidden] = 0
    layer["mlp.gate_proj.weight"][:hidden, -1] = 1
    layer["mlp.down_proj.weight"] = torch.eye(hidden, shape.intermediate, dtype=dtype)
    return {
        **{f"midlayer.{name}": weight for name, weight in layer.items()},
        "midlayer.hidden_norm.weight": torch.ones(hidden, dtype=dtype),
        # The target's three captured hidden states are all the embedding: take the first.
        "fc.weight": torch.eye(hidden, 3 * hidden, dtype=dtype),
        "norm.weight": torch.ones(hidden, dtype=dtype),
        "lm_head.weight": waves.lm_head(following, vocabulary, dtype),
    }
