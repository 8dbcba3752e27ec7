"""
Models whose tokens and acceptance are known exactly, of any size.

The target says ``next(t)`` after token ``t``, whatever came before, and the drafts say the same or
something wrong, as a `Rule` has it. So every answer and the number of accepted drafts of a round
follow from a token.

How a Llama comes to do that: place ``n`` of a cycle has the embedding ``e_n``, a vector of cosines
and sines of ``n`` times some frequencies, beside a constant. Each kind's cycle begins at phases of
its own. Attention and MLP compute as in any Llama, from random matrices, and add nothing, because
their last matrices are zero. So the last hidden state is ``e_n``, and row ``next(t)`` of
``lm_head`` is the embedding of ``t``: all embeddings are equally long, so the right row has the
largest product.

Such an embedding is moved one place on by a fixed rotation. An EAGLE3 head must do that to its own
hidden state at every draft step: its MLP computes ``(rotation - 1) x``, with a gate that the
constant component keeps constant.

A model that is wrong or stale in its KV shows nothing here; use `models` for that.
"""

import math
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
from sglang_dynspec_cpu.rule import PERIOD, Kind, Phase, Rule

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

# Eight layers: the drafts have one, so speculation is worth its cost.
_LAYERS = 8
# More would repeat these: the odd multiples of one turn in `PERIOD` places, up to half a turn.
_MOST_FREQUENCIES = PERIOD // 4
# Logit of the right id; others are several times smaller. So far apart that sampling at a
# temperature of 1 is greedy, too, and that nothing hangs on bf16's last bits.
_LOGIT = 64.0
# What a layer adds is the product of one of these with something.
_OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


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
        shape: The target's sizes, eight layers or more; the drafts have one layer of them. None for
            eight small layers in fp32.
        draft_vocabulary: Ids that the EAGLE3 head knows, the first ones; None for all.

    Returns:
        The directories, built if they are not in the cache.

    Raises:
        ValueError: When ``agreement`` is not a share, or the rule's ids do not fit a vocabulary.
    """
    alike = Kind(name="alike", phases=(Phase(share=1.0, agreement=(agreement,)),))
    rule = Rule(kinds=tuple(kinds) or (alike,), seed=seed)
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

    def build_target(directory: Path) -> None:
        write_checkpoint(directory, shape, _llama(shape, places, following))

    def build_standalone(directory: Path) -> None:
        write_checkpoint(directory, one, _llama(one, places, drafted))

    def build_eagle3(directory: Path) -> None:
        write_eagle3_head(directory, one, _head(one, places, drafted, known))

    # Whatever the drafts say, the target is the same.
    target = f"constructed-target-{len(rule.kinds)}"
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


class _Waves:
    """
    The embeddings of places.

    Attributes:
        embedding: Of each place, ``[kinds, PERIOD, hidden]`` fp64, all of length sqrt(hidden),
            which RMSNorm keeps.
        rotation: Moves one place on, ``[hidden, hidden]`` fp64: ``embedding @ rotation.T``.
        waves: How many of the components, the first ones, are cosines and sines.
    """

    def __init__(self, kinds: int, hidden: int) -> None:
        generator = Generator().manual_seed(0)
        frequencies = min(hidden // 2 - 1, _MOST_FREQUENCIES)
        # Odd frequencies: each pair of places differs in all of them.
        odd = torch.randperm(_MOST_FREQUENCIES, generator=generator)[:frequencies] * 2 + 1
        step = 2 * math.pi * odd.double() / PERIOD
        start = 2 * math.pi * torch.rand(kinds, 1, frequencies, generator=generator).double()
        angles = start + torch.arange(PERIOD).double().unsqueeze(1) * step
        self.waves = 2 * frequencies
        constant = torch.ones(kinds, PERIOD, hidden - self.waves)
        embedding = torch.cat([angles.cos(), angles.sin(), constant], dim=2)
        self.embedding = embedding * hidden**0.5 / embedding[0, 0].norm()
        cosine, sine = torch.diag(step.cos()), torch.diag(step.sin())
        self.rotation = torch.eye(hidden, dtype=torch.float64)
        self.rotation[: self.waves, : self.waves] = torch.cat(
            [torch.cat([cosine, -sine], dim=1), torch.cat([sine, cosine], dim=1)]
        )


def _dtype(shape: Shape) -> torch.dtype:
    found = getattr(torch, shape.dtype)
    assert isinstance(found, torch.dtype)  # noqa: S101 - tells the type checker
    return found


def _embeddings(shape: Shape, places: Tensor, waves: _Waves) -> Tensor:
    """Return the embedding of each id, ``[vocabulary, hidden]``."""
    embedding = waves.embedding.to(_dtype(shape))
    # Ids of no cycle are followed by the first one's beginning.
    embeddings = embedding[0, -1].repeat(shape.vocabulary, 1)
    embeddings[places] = embedding
    return embeddings


def _lm_head(shape: Shape, following: Tensor, waves: _Waves, vocabulary: int) -> Tensor:
    """Return the matrix that turns the embedding of each place into its following id."""
    # The constant would raise all logits alike, and cost bf16 bits.
    rows = waves.embedding.clone()
    rows[..., waves.waves :] = 0
    rows *= _LOGIT / rows[0, 0].dot(waves.embedding[0, 0])
    head = torch.zeros(vocabulary, shape.hidden, dtype=_dtype(shape))
    head[following] = rows.to(head.dtype)
    return head


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


def _llama(shape: Shape, places: Tensor, following: Tensor) -> Weights:
    """Return a Llama that says the following id after each place's."""
    waves = _Waves(len(places), shape.hidden)
    weights = {
        "model.embed_tokens.weight": _embeddings(shape, places, waves),
        "model.norm.weight": torch.ones(shape.hidden, dtype=_dtype(shape)),
        "lm_head.weight": _lm_head(shape, following, waves, shape.vocabulary),
    }
    # One layer's matrices serve all: at real sizes it takes minutes to draw them.
    layer = _idle_layer(shape)
    for number in range(shape.layers):
        weights |= {f"model.layers.{number}.{name}": weight for name, weight in layer.items()}
    return weights


def _head(shape: Shape, places: Tensor, following: Tensor, vocabulary: int) -> Weights:
    """
    Return an EAGLE3 head that says the following id after each place's.

    Its input is the target's hidden state one place behind the newest token, or its own from the
    step before; its MLP moves that on by one place.
    """
    hidden, dtype = shape.hidden, _dtype(shape)
    waves = _Waves(len(places), hidden)
    gate = silu(waves.embedding[0, 0, -1])
    layer = _idle_layer(shape, inputs=2 * hidden)
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
        "lm_head.weight": _lm_head(shape, following, waves, vocabulary),
    }
