# ruff: noqa: ARG001, PLR0917 - the signatures are SGLang's
"""
Kernels that lay out a round's drafts as a tree and verify it.

With ``topk = 1`` the tree is a chain: node 0 is the bonus token, node ``i`` is draft ``i``, and
every node's only child is the next one. All kernels here require that. ``width`` below is depth
+ 1, the number of nodes per request. Output tensors are written in place, as SGLang's kernels do.
The argument names that lack an "e" (``retrive_*``) are SGLang's.
"""

import torch
from torch import Tensor

#: ``TreeMaskMode.QLEN_ONLY`` of SGLang, the layout that its CPU path asks for.
_QLEN_ONLY = 1


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """
    Lay out a chain of drafts per request.

    Args:
        parent_list: Parents of the drafts; unused.
        selected_index: ``[batch, width - 1]``, the drafts that were kept.
        verified_seq_len: ``[batch]``, committed length of each request.
        tree_mask: ``[>= batch * width * width]`` bool, written: node ``i`` sees nodes ``0..i``.
        positions: ``[batch * width]`` int64, written: ``verified_seq_len[b] + i``.
        retrive_index: ``[batch, width]`` int64, written: ``b * width + i``.
        retrive_next_token: ``[batch, width]`` int64, written: ``i + 1``, and -1 for the last node.
        retrive_next_sibling: ``[batch, width]`` int64, written: -1.
        topk: Drafts per step; only 1.
        depth: Number of draft steps; unused.
        draft_token_num: The width.
        tree_mask_mode: Layout of ``tree_mask``; only ``QLEN_ONLY``.

    Raises:
        NotImplementedError: For a tree that is not a chain, or another mask layout.
    """
    width = draft_token_num
    if topk != 1 or selected_index.shape[1] != width - 1:
        raise NotImplementedError(
            f"expected a chain of drafts (topk = 1) on the CPU engine; found topk = {topk} with "
            f"{selected_index.shape[1]} drafts for width {width}; set --speculative-eagle-topk 1"
        )
    if int(tree_mask_mode) != _QLEN_ONLY:
        raise NotImplementedError(
            f"expected tree mask mode QLEN_ONLY on the CPU engine; found {tree_mask_mode}; "
            f"use --attention-backend torch_native"
        )
    batch = verified_seq_len.shape[0]
    node = torch.arange(width)
    causal = node.unsqueeze(0) <= node.unsqueeze(1)
    tree_mask[: batch * width * width].view(batch, width, width).copy_(causal)
    positions.view(batch, width).copy_(verified_seq_len.unsqueeze(1) + node)
    retrive_index.copy_(torch.arange(batch * width).view(batch, width))
    retrive_next_token.copy_(node + 1)
    retrive_next_token[:, -1] = -1
    retrive_next_sibling.fill_(-1)


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """
    Accept drafts as long as each equals what the target predicts after the node before it.

    Args:
        predicts: ``[batch * width]`` int32, written at accepted nodes: the target's prediction.
        accept_index: ``[batch, width]`` int32, written at its first ``accepted + 1`` columns: the
            accepted nodes' index, node 0 first. The rest keeps its value (-1 in SGLang).
        accept_token_num: ``[batch]`` int32, written: accepted drafts, without the bonus token.
        candidates: ``[batch, width]``, bonus token and drafts.
        retrive_index: ``[batch, width]``, index of each node.
        retrive_next_token: ``[batch, width]``, child of each node; unused.
        retrive_next_sibling: ``[batch, width]``, all -1 in a chain.
        target_predict: ``[batch, width]``, the target's token after each node.

    Raises:
        NotImplementedError: For a tree that is not a chain.
    """
    if bool((retrive_next_sibling != -1).any()):
        raise NotImplementedError(
            "expected a chain of drafts (topk = 1) on the CPU engine; found drafts with siblings; "
            "set --speculative-eagle-topk 1"
        )
    batch, width = candidates.shape
    right = candidates[:, 1:] == target_predict[:, :-1]
    accepted = right.long().cumprod(dim=1).sum(dim=1)
    accept_token_num.copy_(accepted)
    on_path = torch.arange(width) <= accepted.unsqueeze(1)
    nodes = predicts.view(batch, width)
    nodes.copy_(torch.where(on_path, target_predict.to(predicts.dtype), nodes))
    accept_index.copy_(
        torch.where(on_path, retrive_index.to(accept_index.dtype), accept_index),
    )


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor,
    accept_lens: Tensor,
    bonus_tokens: Tensor,
    accept_stride: int,
) -> None:
    """
    Pick each request's newest token.

    Args:
        accept_tokens: ``[batch * accept_stride]``, accepted tokens per request, left-aligned.
        accept_lens: ``[batch]``, how many of them are accepted, at least 1.
        bonus_tokens: ``[batch]``, written: the last accepted token.
        accept_stride: Width of a request's block.
    """
    last = torch.arange(accept_lens.shape[0]) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.flatten()[last])
