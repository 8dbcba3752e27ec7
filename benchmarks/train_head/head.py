"""
An EAGLE3 head in plain torch, as SGLang computes it, and what it is trained to do.

EAGLE-3 (arXiv:2503.01840): a decoder layer that reads the embedding of the newest token beside a
hidden state, which is the target's at first (three of its layers, made one by ``fc``) and the
head's own at each further draft. So it is trained the way it is used: row ``t`` of a text begins a
chain of drafts, and draft ``k`` of the chain attends to the text up to ``t`` and to the drafts of
its own chain.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax, rms_norm, silu

if TYPE_CHECKING:
    from pathlib import Path


class Head(nn.Module):
    """
    The head.

    Args:
        target: The target's configuration, as in its ``config.json``.

        vocabulary: Ids that it may draft, ascending, ``[draft_vocab]`` int64.
    """

    def __init__(self, target: dict[str, Any], vocabulary: Tensor) -> None:
        super().__init__()
        hidden, heads = target["hidden_size"], target["num_attention_heads"]
        self.target = target
        self.heads, self.kv_heads = heads, target["num_key_value_heads"]
        self.size = target.get("head_dim") or hidden // heads
        self.eps = target["rms_norm_eps"]
        rope = target.get("rope_parameters") or target
        self.theta = rope["rope_theta"]
        self.register_buffer("vocabulary", vocabulary)

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns) * 0.02)

        inner = target["intermediate_size"]
        self.fc = matrix(hidden, 3 * hidden)
        self.q = matrix(heads * self.size, 2 * hidden)
        self.k = matrix(self.kv_heads * self.size, 2 * hidden)
        self.v = matrix(self.kv_heads * self.size, 2 * hidden)
        self.o = matrix(hidden, heads * self.size)
        self.gate, self.up = matrix(inner, hidden), matrix(inner, hidden)
        self.down = matrix(hidden, inner)
        self.lm_head = matrix(len(vocabulary), hidden)
        names = ("input_layernorm", "hidden_norm", "post_attention_layernorm", "norm")
        self.norms = nn.ParameterDict({name: nn.Parameter(torch.ones(hidden)) for name in names})

    def start(self, features: Tensor) -> Tensor:
        """Make one hidden state of three: ``[..., 3 * hidden]`` to ``[..., hidden]``."""
        return linear(features, self.fc)

    def step(self, embedded: Tensor, hidden: Tensor, chain: Chain) -> tuple[Tensor, Tensor]:
        """
        Draft once at every row.

        Args:
            embedded: Embeddings of the newest tokens, ``[batch, rows, hidden]``.

            hidden: Hidden states before it, ``[batch, rows, hidden]``.

            chain: Keys and values so far; gets this step's.

        Returns:
            Logits over the draft vocabulary, and the hidden states for the next step.
        """
        before = self._norm("input_layernorm", embedded), self._norm("hidden_norm", hidden)
        read = torch.cat(before, dim=-1)
        position = len(chain.keys)
        query = self._rotate(self._split(linear(read, self.q), self.heads), position)
        key = self._rotate(self._split(linear(read, self.k), self.kv_heads), position)
        value = self._split(linear(read, self.v), self.kv_heads)
        chain.keys.append(key)
        chain.values.append(value)
        residual = hidden + linear(chain.attend(query), self.o)
        inner = self._norm("post_attention_layernorm", residual)
        out = residual + linear(silu(linear(inner, self.gate)) * linear(inner, self.up), self.down)
        return linear(self._norm("norm", out), self.lm_head), out

    def write(self, directory: Path) -> None:
        """Write a checkpoint that SGLang loads."""
        from safetensors.torch import save_file

        tensors = {
            name: weight.detach().to("cpu", torch.bfloat16).contiguous()
            for name, weight in self._weights().items()
        }
        vocabulary = self.vocabulary.cpu()
        drafted = torch.zeros(self.target["vocab_size"], dtype=torch.bool)
        drafted[vocabulary] = True
        tensors["t2d"] = drafted
        # SGLang adds the draft's own id: the difference to the target's.
        tensors["d2t"] = vocabulary - torch.arange(len(vocabulary))
        directory.mkdir(parents=True, exist_ok=True)
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        config = {
            **{key: value for key, value in self.target.items() if not key.startswith("_")},
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "draft_vocab_size": len(vocabulary),
            "tie_word_embeddings": False,
        }
        (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Head:
        """Read a checkpoint that `write` wrote."""
        from safetensors.torch import load_file

        tensors = load_file(directory / "model.safetensors")
        vocabulary = tensors["d2t"] + torch.arange(len(tensors["d2t"]))
        head = cls(json.loads((directory / "config.json").read_text()), vocabulary)
        with torch.no_grad():
            for name, weight in head._weights().items():
                weight.copy_(tensors[name])
        return head

    def _weights(self) -> dict[str, nn.Parameter]:
        """Name the weights as a checkpoint does."""
        layer = {
            "self_attn.q_proj": self.q,
            "self_attn.k_proj": self.k,
            "self_attn.v_proj": self.v,
            "self_attn.o_proj": self.o,
            "mlp.gate_proj": self.gate,
            "mlp.up_proj": self.up,
            "mlp.down_proj": self.down,
        }
        weights = {f"midlayer.{name}.weight": weight for name, weight in layer.items()}
        for name, weight in self.norms.items():
            weights["norm.weight" if name == "norm" else f"midlayer.{name}.weight"] = weight
        return weights | {"fc.weight": self.fc, "lm_head.weight": self.lm_head}

    def _norm(self, name: str, value: Tensor) -> Tensor:
        return rms_norm(value, value.shape[-1:], self.norms[name].to(value.dtype), self.eps)

    def _split(self, value: Tensor, heads: int) -> Tensor:
        """``[batch, rows, heads * size]`` to ``[batch, heads, rows, size]``."""
        return value.view(*value.shape[:2], heads, self.size).transpose(1, 2)

    def _rotate(self, value: Tensor, first: int) -> Tensor:
        """Rotary embedding of halves; row ``t`` of a chain's step ``k`` stands at ``t + k``."""
        half = self.size // 2
        powers = torch.arange(half, device=value.device) / half
        rows = torch.arange(value.shape[2], device=value.device) + first
        angles = rows[:, None] * self.theta**-powers
        cosine, sine = angles.cos().to(value.dtype), angles.sin().to(value.dtype)
        left, right = value[..., :half], value[..., half:]
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)


class Chain:
    """
    Keys and values of one forward pass: the text's own, step 0, and those of each draft after it.

    Attributes:
        keys: Of each step, ``[batch, kv_heads, rows, size]``.

        values: The same.
    """

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def attend(self, query: Tensor) -> Tensor:
        """
        Attend to the text up to each row, and to the drafts of the row's own chain.

        Args:
            query: ``[batch, heads, rows, size]``.

        Returns:
            ``[batch, rows, heads * size]``.
        """
        batch, heads, rows, size = query.shape
        groups = query.view(batch, self.keys[0].shape[1], -1, rows, size)
        text = groups @ self.keys[0].unsqueeze(2).transpose(-1, -2)
        later = torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu(1)
        scores = [text.masked_fill(later, float("-inf"))]
        scores += [(groups * key.unsqueeze(2)).sum(-1, keepdim=True) for key in self.keys[1:]]
        share = (torch.cat(scores, dim=-1).float() * size**-0.5).softmax(-1).to(query.dtype)
        out = share[..., :rows] @ self.values[0].unsqueeze(2)
        for step, value in enumerate(self.values[1:]):
            out = out + share[..., rows + step, None] * value.unsqueeze(2)
        return out.view(batch, heads, rows, size).transpose(1, 2).reshape(batch, rows, -1)


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a chain of drafts did at each row of a batch."""

    #: Loss of all steps, a scalar.
    loss: Tensor
    #: Whether each draft was the target's own choice, ``[steps, batch, rows]`` bool.
    right: Tensor


def draft(
    head: Head,
    ids: Tensor,
    *,
    features: Tensor,
    logits: Tensor,
    embedding: Tensor,
    counted: Tensor,
    steps: int,
) -> Drafted:
    """
    Draft from every row of a text, and compare with the target.

    Row ``t`` reads the target's hidden state of token ``t`` and the embedding of token ``t + 1``;
    its draft ``k`` stands for what the target says after token ``t + k + 1``.

    Args:
        head: The head.

        ids: The text, ``[batch, length]``.

        features: The target's three hidden states, ``[batch, length, 3 * hidden]``.

        logits: What the target says after each token, over the draft vocabulary,
            ``[batch, length, draft_vocab]``.

        embedding: The target's embedding matrix.

        counted: Where a draft counts, by the token it follows, ``[batch, length]`` bool.

        steps: Drafts of a chain.
    """
    rows = ids.shape[1] - steps - 1
    hidden, chain = head.start(features[:, :rows]), Chain()
    loss, right = ids.new_zeros((), dtype=torch.float), []
    for step in range(steps):
        at = slice(step + 1, step + 1 + rows)
        drafted, hidden = head.step(embedding[ids[:, at]], hidden, chain)
        wanted, mask = logits[:, at].float(), counted[:, at]
        each = -(wanted.softmax(-1) * log_softmax(drafted.float(), -1)).sum(-1)
        loss = loss + _WEIGHT**step * (each * mask).sum() / mask.sum().clamp(min=1)
        right.append(head.vocabulary[drafted.argmax(-1)] == ids[:, step + 2 : step + 2 + rows])
    return Drafted(loss, torch.stack(right))


#: Weight of each draft's loss, relative to that of the draft before it.
_WEIGHT = 0.8
