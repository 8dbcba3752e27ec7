# ruff: noqa: ARG001, PLR0917 - the signatures are SGLang's
"""
Kernels that read and write ``req_to_token``, the table from request and position to KV slot.

``req_to_token`` is ``[max_requests, max_context]`` int32; row ``req_pool_indices[b]`` belongs to
request ``b`` of the batch. All index arguments are int32 or int64 tensors of shape ``[batch]``.
Output tensors are written in place, as SGLang's kernels do.
"""

import torch
from torch import Tensor


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_cols: int,
) -> None:
    """
    Look up the slots that the draft steps of a round write.

    Args:
        req_pool_indices: ``[batch]``, row of each request.
        req_to_token: ``[max_requests, max_context]``.
        seq_lens: ``[batch]``, committed length of each request.
        out_cache_loc: ``[batch * num_cols]`` int64, written: the slots at positions
            ``seq_lens[b] .. seq_lens[b] + num_cols - 1``, request after request.
        pool_len: Row length of ``req_to_token``; unused.
        topk: Drafts per step; only 1.
        num_cols: Slots per request.

    Raises:
        NotImplementedError: When ``topk`` is not 1.
    """
    if topk != 1:
        raise NotImplementedError(
            f"expected topk = 1 on the CPU engine; found topk = {topk}; "
            f"set --speculative-eagle-topk 1"
        )
    positions = seq_lens.long().unsqueeze(1) + torch.arange(num_cols)
    slots = req_to_token[req_pool_indices.long().unsqueeze(1), positions]
    out_cache_loc.copy_(slots.flatten())


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """
    Look up the slots of one span of positions per request.

    Args:
        req_pool_indices: ``[batch]``, row of each request.
        req_to_token: ``[max_requests, max_context]``.
        start_offset: ``[batch]``, first position of the span.
        end_offset: ``[batch]``, one past its last position.
        out_cache_loc: ``[>= sum(end - start)]``, written from its start: the spans' slots, packed
            request after request.
        pool_len: Row length of ``req_to_token``; unused.
    """
    rows, positions = _spans(req_pool_indices, start_offset, end_offset)
    out_cache_loc[: rows.numel()] = req_to_token[rows, positions].to(out_cache_loc.dtype)


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """
    Write newly allocated slots into one span of positions per request.

    Args:
        req_pool_indices: ``[batch]``, row of each request.
        req_to_token: ``[max_requests, max_context]``, written.
        start_offset: ``[batch]``, first position of the span.
        end_offset: ``[batch]``, one past its last position.
        out_cache_loc: ``[sum(end - start)]``, the slots, packed request after request.
        pool_len: Row length of ``req_to_token``; unused.
    """
    rows, positions = _spans(req_pool_indices, start_offset, end_offset)
    req_to_token[rows, positions] = out_cache_loc[: rows.numel()].to(req_to_token.dtype)


def copy_all_layer_kv_cache_cpu(
    data_ptrs: Tensor,
    strides: Tensor,
    tgt_loc: Tensor,
    src_loc: Tensor,
) -> None:
    """
    Copy the KV rows of accepted drafts; a chain never needs it, its rows are in place.

    SGLang calls it once at start, to warm up, with one slot copied onto itself.

    Args:
        data_ptrs: ``[buffers]`` uint64, addresses of the KV buffers; unused.
        strides: ``[buffers]``, bytes per slot; unused.
        tgt_loc: ``[slots]``, where to.
        src_loc: ``[slots]``, where from.

    Raises:
        NotImplementedError: When there is anything to copy.
    """
    if not torch.equal(tgt_loc, src_loc):
        raise NotImplementedError(
            "expected a chain of drafts (topk = 1) on the CPU engine; found KV rows to move; "
            "set --speculative-eagle-topk 1"
        )


def _spans(req_pool_indices: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Return row and position, both ``[sum(end - start)]`` int64, of every element of the spans."""
    start = start.long()
    lengths = end.long() - start
    request = torch.repeat_interleave(lengths)
    packed_start = lengths.cumsum(0) - lengths
    positions = torch.arange(request.numel()) + (start - packed_start)[request]
    return req_pool_indices.long()[request], positions
