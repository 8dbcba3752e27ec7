"""
The upkeep pass in full: SGLang's draft-extend over what a batch owes.

N plain rounds are, to the draft model, one speculative round of N tokens that were all accepted: a
single draft-extend pass over them writes the same KV rows and yields the same next draft input as
N passes of one token.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from sglang_dynspec_hooks.worker.ledger import Ledger
    from sglang_dynspec_hooks.worker.rows import Rows


def extend_draft(
    worker: Any,
    ledger: Ledger,
    batch: Any,
    slots_cpu: npt.NDArray[np.int64],
    owed: npt.NDArray[np.int64],
    *,
    lengths: torch.Tensor,
    lengths_cpu: torch.Tensor | None,
) -> tuple[Any, Rows]:
    """
    Run one draft-extend pass over the newest tokens of a batch.

    The tier in force must be one whose draft side is ``ledger.width`` tokens wide.

    Args:
        worker: The speculative worker.
        ledger: Where the rows are.
        batch: The batch; left as it is.
        slots_cpu: Its request slots, int64, shape (n,).
        owed: Tokens to cover per request, int64, shape (n,). Requests with 0 only pad the pass.
        lengths: Sequence lengths, shape (n,); the tokens owed are the last before them.
        lengths_cpu: Their host mirror, or None.

    Returns:
        The draft input that the pass yields (SGLang's ``EagleDraftInput``; only the rows of
        requests that owed anything mean something), and the rows it was run over.
    """
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.layers.moe.utils import (
        speculative_moe_a2a_backend_context,
        speculative_moe_backend_context,
    )
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.speculative.eagle_info import EagleDraftInput
    from sglang.srt.speculative.spec_utils import draft_tp_context

    rows = ledger.rows(slots_cpu, owed)
    start = lengths.to(torch.int64) - rows.taken
    # SGLang's draft-extend mutates its batch; the round still needs this one.
    scratch = copy.copy(batch)
    scratch.spec_info = None
    scratch.seq_lens = start
    scratch.seq_lens_cpu = None
    scratch.seq_lens_sum = None
    if lengths_cpu is not None:
        scratch.seq_lens_cpu = lengths_cpu - torch.from_numpy(rows.taken_cpu)
        scratch.seq_lens_sum = int(scratch.seq_lens_cpu.sum())
    # Padding is slot 0 at position 0, which SGLang's table sends to KV slot 0, kept for that.
    table = worker.req_to_token_pool.req_to_token
    entries = torch.add(rows.positions, rows.slots, alpha=table.shape[1])
    # A wrong entry would cost a warm draft; one outside the table would end the server.
    entries.clamp_(0, table.numel() - 1)
    scratch.out_cache_loc = table.view(-1).index_select(0, entries).to(torch.int64)
    fresh = EagleDraftInput(bonus_tokens=rows.tokens)
    accepted = GenerationBatchResult(
        logits_output=LogitsProcessorOutput(next_token_logits=None, hidden_states=rows.hidden),
        next_token_ids=rows.tokens,
        accept_lens=rows.taken.to(torch.int32),
        new_seq_lens=lengths,
        next_draft_input=fresh,
    )
    draft = worker.draft_worker
    with (
        draft_tp_context(draft.parallel_layout),
        speculative_moe_backend_context(),
        speculative_moe_a2a_backend_context(),
    ):
        draft._draft_extend_for_decode(scratch, accepted)
    return fresh, rows


def merge_draft_input(draft_input: Any, fresh: Any, owing: torch.Tensor, *, whole: bool) -> None:
    """
    Copy the fresh rows of the requests that owed into ``draft_input``, keeping the others.

    A draft that reads no hidden states (STANDALONE) has none in its input, although its CUDA
    graphs output them.

    Args:
        draft_input: SGLang's ``EagleDraftInput`` of the batch; changed.
        fresh: What `extend_draft` returned.
        owing: 1 for requests that owed, else 0; int64, shape (n,).
        whole: Whether all of them did.
    """
    for name in ("topk_p", "topk_index", "hidden_states"):
        new, old = getattr(fresh, name), getattr(draft_input, name)
        if old is None:
            continue
        if not whole:
            new = torch.where(owing[:, None] > 0, new.to(old.dtype), old)
        setattr(draft_input, name, new)
