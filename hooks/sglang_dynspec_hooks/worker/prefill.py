"""
The draft's part of a prefill while rounds are plain: keys and values alone.

SGLang runs the draft model over every prompt, head and all, for the drafts of the round that
follows. No plain round reads those; what it needs is in the prompt's keys and values. So those are
written, and the ledger keeps the last row of each prompt, from which a later speculative round's
re-entry makes the draft input that was not made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sglang_dynspec_hooks.worker.rows import upload

if TYPE_CHECKING:
    from sglang_dynspec_hooks.worker.kv_write import KvWriter
    from sglang_dynspec_hooks.worker.upkeep import Upkeep


class PlainPrefill:
    """Runs the draft's part of prefills, as long as upkeep is on and the draft allows it."""

    def __init__(self, worker: Any, upkeep: Upkeep) -> None:
        """
        Prepare it.

        Args:
            worker: The speculative worker, whose pools exist.
            upkeep: Its upkeep, built.
        """
        self._worker = worker
        self._upkeep = upkeep
        self._placeholder: Any = None

    def run(self, batch: Any, hidden: torch.Tensor, next_token_ids: torch.Tensor) -> Any | None:
        """
        Write a prefill's keys and values, and note what re-entry needs.

        Args:
            batch: The prefill batch, as SGLang's draft prefill gets it; left as it is.
            hidden: Target hidden rows, shape (prompt tokens, hidden size).
            next_token_ids: What the target sampled, shape (batch size,).

        Returns:
            SGLang's ``EagleDraftInput``, whose draft part is a placeholder; or None where the draft
            has to run whole, and nothing was done.
        """
        upkeep, mode = self._upkeep, batch.forward_mode
        writer = upkeep.writer
        if writer is None or upkeep.window == 0 or not mode.is_extend() or mode.is_mixed():
            return None
        try:
            last = _write(writer, batch, hidden, next_token_ids, self._worker.device)
            # A prompt that goes on is noted, too: its next part strikes that off.
            upkeep.ledger.enter_prompts(
                batch.req_pool_indices.long(),
                batch.req_pool_indices_cpu.numpy(),
                tokens=next_token_ids,
                hidden=last,
                lengths=batch.seq_lens,
                lengths_cpu=batch.seq_lens_cpu,
            )
            return self._draft_input(next_token_ids)
        except Exception as error:  # noqa: BLE001 - SGLang's own prefill does without it
            upkeep.give_up(error)
            return None

    def _draft_input(self, next_token_ids: torch.Tensor) -> Any:
        """Make a draft input of zeros, which are valid ids: SGLang relays and merges its rows."""
        from sglang.srt.speculative.eagle_info import EagleDraftInput
        from sglang.srt.speculative.eagle_utils import get_draft_recurrent_hidden_state_spec

        worker, count = self._worker, len(next_token_ids)
        if self._placeholder is None:
            slots = worker.req_to_token_pool.req_to_token.shape[0]
            size, dtype = get_draft_recurrent_hidden_state_spec(worker.draft_worker.draft_runner)
            make = {"device": worker.device}
            self._placeholder = (
                torch.zeros((slots, worker.topk), dtype=torch.float32, **make),
                torch.zeros((slots, worker.topk), dtype=torch.int64, **make),
                torch.zeros((slots, size), dtype=dtype, **make),
            )
        probabilities, ids, hidden = (each[:count] for each in self._placeholder)
        return EagleDraftInput(
            topk_p=probabilities,
            topk_index=ids,
            hidden_states=hidden,
            bonus_tokens=next_token_ids,
            num_tokens_per_req=1,
            num_tokens_for_logprob_per_req=1,
        )


def _write(
    writer: KvWriter,
    batch: Any,
    hidden: torch.Tensor,
    next_token_ids: torch.Tensor,
    device: str,
) -> torch.Tensor:
    """
    Write keys and values of the prompt tokens that a prefill covered.

    Returns:
        The target's hidden row of the last one of each request, shape (batch size, hidden size).
    """
    from sglang.srt.speculative.eagle_utils import _eagle_prefill_tail_tokens

    lengths = np.asarray(batch.extend_lens, dtype=np.int64)
    prefixes = np.asarray(batch.prefix_lens, dtype=np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    # One upload: the position of every token, then where each request's rows end.
    host = np.empty(total + len(lengths), dtype=np.int64)
    np.add(np.arange(total), np.repeat(prefixes - (ends - lengths), lengths), out=host[:total])
    np.subtract(ends, 1, out=host[total:])
    up = upload(host, device)
    positions, last = up[:total], up[total:]
    # The draft reads each position's hidden row beside the token that comes after it.
    ids = torch.roll(batch.input_ids, -1).to(torch.int64)
    ids.index_copy_(0, last, _eagle_prefill_tail_tokens(batch, next_token_ids).to(torch.int64))
    writer.write_rows(ids, hidden, positions, batch.out_cache_loc.to(torch.int64))
    return hidden.index_select(0, last)
