"""
The plain round: one token per request by the target model runner alone.

A plain round is the target runner's own DECODE forward and its own sampler, as the server without
speculation runs them. No draft, verify, tree or speculative-sampling code takes part. Its result
has the shape of a speculative result of width one, so the scheduler goes on as if nothing had
changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def run_plain_round(
    worker: Any,
    batch: Any,
    *,
    on_publish: Callable[[torch.Tensor], None] | None,
    grammar_barrier: Callable[[], None] | None,
) -> tuple[Any, torch.Tensor]:
    """
    Decode one token per request and return the result in the speculative worker's form.

    On entry ``batch`` is in SGLang's speculative form: ``seq_lens`` (shape (batch size,)) counts
    the tokens in the KV cache; the newest token, ``spec_info.bonus_tokens``, comes after them and
    is not in it yet. Its slot was reserved by the scheduler, which keeps room for two rounds of the
    largest depth, so nothing is allocated here. The scheduler restores the fields that are
    reassigned on ``batch`` after the forward.

    Args:
        worker: The speculative worker.
        batch: The ``ScheduleBatch``.
        on_publish: Told the new sequence lengths as soon as they are known (overlap loop).
        grammar_barrier: Advances the grammars over the previous round's tokens (overlap loop).

    Returns:
        The ``GenerationBatchResult`` and the target's hidden states for the draft model, of shape
        (batch size, hidden size), or None when the draft does not read them.

    Side effects:
        Leaves ``batch`` describing the round that ran: ``seq_lens`` and its mirrors one longer.
    """
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch
    from sglang.srt.speculative.eagle_info import EagleDraftInput

    draft_input = batch.spec_info
    runner = worker.target_worker.model_runner
    committed = batch.seq_lens
    new_seq_lens = committed + 1
    if on_publish is not None:
        # Known before the round has run, unlike a speculative round's. Where the attention backend
        # plans on the host (flashinfer), the next launch waits for what is published here: told any
        # later, no round could be launched while the one before runs.
        on_publish(new_seq_lens)

    batch.spec_info = None
    batch.input_ids = draft_input.bonus_tokens.to(torch.int64)
    batch.out_cache_loc = worker.req_to_token_pool.req_to_token[
        batch.req_pool_indices.long(), committed.long()
    ].to(torch.int64)
    batch.seq_lens = new_seq_lens
    batch.seq_lens_cpu = None if batch.seq_lens_cpu is None else batch.seq_lens_cpu + 1
    batch.seq_lens_sum = None

    draft_reads_hidden = not worker.speculative_algorithm.is_standalone()
    forward_batch = ForwardBatch.init_new(
        batch,
        runner,
        capture_hidden_mode=CaptureHiddenMode.FULL
        if draft_reads_hidden
        else CaptureHiddenMode.NULL,
        return_hidden_states_before_norm=False,
    )
    # A verify round may have left its event here, and an eager round publishes none: the scheduler
    # must not take the old one for this round's.
    runner.shared_read_done_event = None
    out = runner.forward(forward_batch)
    logits = out.logits_output
    # The vocabulary mask is built inside `sample`, after the previous round's tokens moved the
    # grammars on. (`TpModelWorker.forward_batch_generation` would sample before the barrier.)
    if batch.has_grammar and grammar_barrier is not None:
        grammar_barrier()
    next_token_ids = runner.sample(logits, forward_batch)
    if batch.return_logprob and logits.next_token_logprobs is not None:
        # Speculative results carry one row of log-probabilities per request.
        logits.next_token_logprobs = logits.next_token_logprobs.view(-1, 1)

    # The overlap loop relays draft inputs by request slot, in its own dtypes, and keeps a slot's
    # row when it gets none; the synchronous loop hands this object on and slices its fields.
    relayed = batch.enable_overlap
    tokens = next_token_ids if relayed else next_token_ids.to(torch.int32)
    result = GenerationBatchResult(
        logits_output=logits,
        next_token_ids=tokens,
        can_run_cuda_graph=out.can_run_graph,
        speculative_num_draft_tokens=1,
        next_draft_input=EagleDraftInput(
            bonus_tokens=tokens,
            topk_p=None if relayed else draft_input.topk_p,
            topk_index=None if relayed else draft_input.topk_index,
            hidden_states=None if relayed else draft_input.hidden_states,
        ),
        # Known on the host, where it is read: it need not come down from the device.
        accept_lens=torch.ones(len(batch.reqs), dtype=torch.int32),
        new_seq_lens=new_seq_lens,
        routed_experts_output=out.routed_experts_output,
        indexer_topk_output=out.indexer_topk_output,
        expert_distribution_metrics=out.expert_distribution_metrics,
        # Pinned for two rounds by the scheduler: the forward stream may still read these tensors
        # after `batch` has moved on.
        extra_keep_alive_refs=[forward_batch, draft_input],
    )
    return result, logits.hidden_states if draft_reads_hidden else None
