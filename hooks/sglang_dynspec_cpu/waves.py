"""
The vectors that constructed models compute with, and matrices that do something to them.

Place ``n`` of a cycle is a vector of cosines and sines of ``n`` times some frequencies, from phases
of its kind's own, beside a constant. So one rotation moves every vector a place on.
"""

import math

import torch
from torch import Generator, Tensor

from sglang_dynspec_cpu.checkpoint import Shape, Weights
from sglang_dynspec_cpu.rule import PERIOD

# More would repeat these: the odd multiples of one turn in `PERIOD` places, up to half a turn.
_MOST_FREQUENCIES = PERIOD // 4
# Logit of the right id; others are several times smaller. So far apart that sampling at a
# temperature of 1 is greedy, too, and that nothing hangs on bf16's last bits.
_LOGIT = 64.0
# Attention scores of the place that is looked for, above all others.
_MARGIN = 32.0


class Waves:
    """
    The vectors of places.

    Attributes:
        embedding: Of each place, ``[kinds, PERIOD, hidden]`` fp64, all of length sqrt(hidden),
            which RMSNorm keeps.
        constant: The last component of all of them.
        step: The angle of each frequency from a place to the next, ``[frequencies]`` fp64.
        rotation: Moves one place on, ``[hidden, hidden]`` fp64: ``embedding @ rotation.T``.
    """

    def __init__(self, kinds: int, hidden: int) -> None:
        generator = Generator().manual_seed(0)
        self._count = min(hidden // 2 - 1, _MOST_FREQUENCIES)
        # Odd frequencies: each pair of places differs in all of them.
        odd = torch.randperm(_MOST_FREQUENCIES, generator=generator)[: self._count] * 2 + 1
        self.step = 2 * math.pi * odd.double() / PERIOD
        start = 2 * math.pi * torch.rand(kinds, 1, self._count, generator=generator).double()
        angles = start + torch.arange(PERIOD).double().unsqueeze(1) * self.step
        ones = torch.ones(kinds, PERIOD, hidden - 2 * self._count)
        embedding = torch.cat([angles.cos(), angles.sin(), ones], dim=2)
        self.embedding = embedding * hidden**0.5 / embedding[0, 0].norm()
        self.constant = self.embedding[0, 0, -1]
        cosine, sine = torch.diag(self.step.cos()), torch.diag(self.step.sin())
        self.rotation = torch.eye(hidden, dtype=torch.float64)
        self.rotation[: 2 * self._count, : 2 * self._count] = torch.cat(
            [torch.cat([cosine, -sine], dim=1), torch.cat([sine, cosine], dim=1)]
        )

    def embeddings(self, places: Tensor, vocabulary: int, dtype: torch.dtype) -> Tensor:
        """Return the vector of each id, ``[vocabulary, hidden]``; ``places`` are places' ids."""
        embedding = self.embedding.to(dtype)
        # Ids of no cycle are followed by the first one's beginning.
        embeddings = embedding[0, -1].repeat(vocabulary, 1)
        embeddings[places] = embedding
        return embeddings

    def lm_head(self, following: Tensor, vocabulary: int, dtype: torch.dtype) -> Tensor:
        """Return the matrix that turns each place's vector into its following id."""
        # The constant would raise all logits alike, and cost bf16 bits.
        rows = self.embedding.clone()
        rows[..., 2 * self._count :] = 0
        rows *= _LOGIT / rows[0, 0].dot(self.embedding[0, 0])
        head = torch.zeros(vocabulary, self.embedding.shape[-1], dtype=dtype)
        head[following] = rows.to(dtype)
        return head

    def look_back(self, layer: Weights, shape: Shape, distance: int) -> None:
        """
        Let a layer's attention notice keys and values that are not what they should be.

        Of each group of heads the first one finds the token that stands ``distance`` before, by the
        rotary angles alone, and the second one finds the token itself. What the first one finds,
        moved on by ``distance`` places, less what the second one finds, is added to the hidden
        state: nothing, where the text is a walk and the cache is right; else so much that the
        model says something else.

        Args:
            layer: The matrices of a layer, as `layer_shapes` names them; changed in place. The
                hidden state is the last part of the attention's input.
            shape: Its sizes.
            distance: In tokens, 1 or more.
        """
        hidden, size, half = shape.hidden, shape.head_dim, shape.head_dim // 2
        query, key, value, output = (
            layer[f"self_attn.{name}_proj.weight"] for name in ("q", "k", "v", "o")
        )
        rotary = shape.rope_theta ** (-torch.arange(half).double() / half)
        # A score falls with the distance from the one that is looked for, as these cosines say.
        off = torch.arange(1, shape.context).double().unsqueeze(1) * rotary
        margin = (half - off.cos().sum(dim=1)).min()
        strength = _MARGIN / margin * size**0.5
        group = shape.heads // shape.kv_heads
        carried = min(shape.kv_heads * half, self._count)
        # What is wrong leaves nothing of the right vector, whatever share of the waves the values
        # hold. More would make a head's own errors grow from step to step.
        gain = self._count / carried
        for number in range(shape.kv_heads):
            first = number * group * size
            waves = torch.arange(number * half, min((number + 1) * half, self._count))
            places = torch.arange(len(waves))
            rows = slice(number * size, (number + 1) * size)
            key[rows], value[rows] = 0, 0
            key[number * size : number * size + half, -1] = 1 / self.constant
            inputs = value.shape[1] - hidden
            value[number * size + places, inputs + waves] = 1
            value[number * size + half + places, inputs + self._count + waves] = 1
            query[first : first + 2 * size] = 0
            for head, back in enumerate((distance, 0)):
                start = first + head * size
                query[start : start + half, -1] = strength * (back * rotary).cos() / self.constant
                query[start + half : start + size, -1] = (
                    -strength * (back * rotary).sin() / self.constant
                )
                sign = gain if head == 0 else -gain
                cosine = sign * (back * self.step[waves]).cos()
                sine = sign * (back * self.step[waves]).sin()
                for row, left, right in (
                    (waves, cosine, -sine),
                    (self._count + waves, sine, cosine),
                ):
                    output[row, start + places] = left.to(output.dtype)
                    output[row, start + half + places] = right.to(output.dtype)
