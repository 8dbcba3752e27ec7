"""
Attention over chains of tokens: the one computation behind all speculative forward modes.

Request ``b`` of a batch has ``width`` queries at positions ``start[b] .. start[b] + width - 1``,
each of which sees the keys up to its own position. Requests are padded to one length and computed
at once: a Python loop over requests would dominate a round of several forward passes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Where the queries find their keys; built once per forward pass, used by each layer."""

    #: ``[batch, longest]`` int64, KV slot of each position; the padding slot 0 past the end.
    slots: Tensor
    #: ``[batch, 1, width, longest]`` bool, True where a query sees a key.
    visible: Tensor

    @classmethod
    def build(cls, req_to_token: Tensor, rows: Tensor, start: Tensor, width: int) -> "ChainPlan":
        """
        Plan ``width`` queries per request.

        Args:
            req_to_token: ``[max_requests, max_context]`` int32, slot of each request's position.
            rows: ``[batch]``, the requests' rows of ``req_to_token``.
            start: ``[batch]``, position of each request's first query.
            width: Queries per request.

        Returns:
            The plan for the batch.
        """
        query = start.long().unsqueeze(1) + torch.arange(width)
        key = torch.arange(int(query[:, -1].max()) + 1)
        visible = key <= query.unsqueeze(2)
        slots = req_to_token[rows.long(), : key.numel()].long()
        # Masked keys get weight 0, but 0 * NaN is NaN: read only slots that hold numbers.
        slots = torch.where(visible[:, -1], slots, 0)
        return cls(slots=slots, visible=visible.unsqueeze(1))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        """
        Compute attention.

        Args:
            query: ``[batch * width, query_heads, head_dim]``.
            keys: ``[slots, kv_heads, head_dim]``, the layer's key buffer.
            values: ``[slots, kv_heads, value_dim]``, the layer's value buffer.
            scaling: Factor of the scores.

        Returns:
            ``[batch * width, query_heads * value_dim]``.
        """
        batch, _, width, _ = self.visible.shape
        output = scaled_dot_product_attention(
            query.view(batch, width, *query.shape[1:]).transpose(1, 2),
            self._gather(keys),
            self._gather(values),
            attn_mask=self.visible,
            scale=scaling,
            enable_gqa=query.shape[1] != keys.shape[1],
        )
        return output.transpose(1, 2).reshape(batch * width, -1)

    def _gather(self, buffer: Tensor) -> Tensor:
        """Return ``[batch, kv_heads, longest, size]`` of a buffer ``[slots, kv_heads, size]``."""
        # Several times faster than indexing by a matrix.
        rows = buffer.index_select(0, self.slots.flatten())
        return rows.view(*self.slots.shape, *buffer.shape[1:]).transpose(1, 2)
