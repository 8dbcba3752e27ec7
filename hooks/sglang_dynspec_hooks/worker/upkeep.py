"""
Lazy upkeep: the draft model's KV cache kept warm at a fraction of the passes.

N plain rounds are, to the draft model, one speculative round of N tokens that were all accepted: a
single draft-extend pass over them writes the same KV rows and yields the same next draft input as
N passes of one token. So plain rounds only note what the draft is owed (`Ledger`), and a pass runs

- at the end of a plain round in which some request owes a full window,
- at the start of a speculative round, whose decision comes after the previous launch,
- when a request finishes, while its slots are still its own, for the radix cache's sake.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sglang_dynspec_hooks.worker.ledger import Ledger, Rows, upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


class Upkeep:
    """
    Decides when an upkeep pass runs, and runs it.

    Attributes:
        window: Tokens a request may owe before a pass runs; 1 runs one every plain round, 0 none
            at all, which leaves the draft cold.
        passes: Passes run, by occasion.
    """

    def __init__(self, worker: Any, *, window: int, depth: int) -> None:
        """
        Create it before the request slots exist.

        Args:
            worker: The speculative worker.
            window: See the class; at most ``depth + 1``.
            depth: Depth of the tier whose draft-extend resources the passes use; a pass covers
                ``depth + 1`` tokens per request.
        """
        self._worker = worker
        self.width = depth + 1
        self.window = window
        self._ledger: Ledger | None = None
        self.passes = {"window": 0, "reentry": 0, "finish": 0}

    @property
    def ledger(self) -> Ledger:
        """The ledger, made at first use: request slots are allocated after the worker."""
        if self._ledger is None:
            table = self._worker.req_to_token_pool.req_to_token
            self._ledger = Ledger(
                width=self.width, slots=table.shape[0], device=self._worker.device
            )
        return self._ledger

    def set_window(self, window: int) -> None:
        """
        Change the window while serving.

        With 0, what is owed is written off: rounds that are not noted leave a hole behind it.

        Raises:
            ValueError: The window is not within 0 .. ``width``.
        """
        if not 0 <= window <= self.width:
            raise ValueError(f"expected an upkeep window within 0..{self.width}; found {window}")
        self.window = window
        if window == 0 and self._ledger is not None:
            self._ledger.clear()

    def forget(self, slots_cpu: npt.NDArray[np.int64] | Sequence[int]) -> None:
        """Drop what the slots owe: they are prefilled anew, or nothing will read their rows."""
        if self._ledger is not None:
            self._ledger.settle(slots_cpu)

    def after_plain_round(self, batch: Any, result: Any, hidden: torch.Tensor | None) -> bool:
        """
        Note one plain round and run a pass when a request owes a full window.

        Args:
            batch: The batch as the plain round left it.
            result: Its result; a pass fills in ``next_draft_input``.
            hidden: The target's hidden rows, shape (batch size, hidden size), or None.

        Returns:
            Whether a pass ran.
        """
        if self.window == 0:
            return False
        slots_cpu = batch.req_pool_indices_cpu.numpy()
        most = self.ledger.record(
            batch.req_pool_indices.long(),
            slots_cpu,
            tokens=result.next_token_ids,
            hidden=hidden,
            lengths=result.new_seq_lens,
            lengths_cpu=batch.seq_lens_cpu,
        )
        if most < self.window:
            return False
        self._pass(batch, slots_cpu, batch.seq_lens, batch.seq_lens_cpu, result.next_draft_input)
        self.passes["window"] += 1
        self.ledger.prune()
        return True

    def before_speculative_round(self, batch: Any) -> None:
        """
        Pay what the batch owes and put the fresh draft input on it.

        The plain tier must still be in force. Requests fresh from prefill owe nothing; they pad the
        pass and keep their draft input.
        """
        if self._ledger is None:
            return
        slots_cpu = batch.req_pool_indices_cpu.numpy()
        if self._ledger.owed(slots_cpu).any():
            self._pass(batch, slots_cpu, batch.seq_lens, batch.seq_lens_cpu, batch.spec_info)
            self.passes["reentry"] += 1

    def owing(self, batch: Any, rows: Sequence[int]) -> list[int]:
        """Those of the batch's rows whose requests owe tokens."""
        if self._ledger is None:
            return []
        owed = self._ledger.owed(batch.req_pool_indices_cpu.numpy()[np.asarray(rows)])
        return [row for row, tokens in zip(rows, owed.tolist(), strict=True) if tokens]

    def after_finish(self, batch: Any, rows: Sequence[int]) -> None:
        """
        Pay for requests that just finished, so that the radix cache inherits whole draft rows.

        Called once the round's result is processed: the requests' slots are the cache's or free by
        then, but nothing has reused them, and the pass comes before anything that will.

        Args:
            batch: The processed batch.
            rows: Its rows that finished and owe tokens.
        """
        slots_cpu = batch.req_pool_indices_cpu.numpy()[np.asarray(rows)]
        finished = copy.copy(batch)
        finished.reqs = [batch.reqs[row] for row in rows]
        finished.req_pool_indices_cpu = torch.from_numpy(slots_cpu)
        finished.req_pool_indices = upload(slots_cpu, self._worker.device)
        finished.sampling_info = None
        finished.return_logprob = False
        finished.has_grammar = False
        finished.forward_mode = _decode_mode()
        lengths, lengths_cpu = self.ledger.lengths(finished.req_pool_indices, slots_cpu)
        # Under overlap the next round is launched already and may have put another tier in force.
        with self._worker.adaptive_controller.borrowed(0):
            self._pass(finished, slots_cpu, lengths, lengths_cpu, None)
        self.passes["finish"] += 1

    def _pass(
        self,
        batch: Any,
        slots_cpu: npt.NDArray[np.int64],
        lengths: torch.Tensor,
        lengths_cpu: torch.Tensor | None,
        draft_input: Any | None,
    ) -> None:
        """
        Run one draft-extend pass over what the batch owes, and settle it.

        Args:
            batch: The batch; left as it is.
            slots_cpu: Its request slots, int64, shape (n,).
            lengths: Sequence lengths, shape (n,); the tokens owed are the last before them.
            lengths_cpu: Their host mirror, or None.
            draft_input: Takes the next draft input of the requests that owed; may be None.
        """
        from sglang.srt.layers.logits_processor import LogitsProcessorOutput
        from sglang.srt.layers.moe.utils import (
            speculative_moe_a2a_backend_context,
            speculative_moe_backend_context,
        )
        from sglang.srt.managers.utils import GenerationBatchResult
        from sglang.srt.speculative.eagle_info import EagleDraftInput
        from sglang.srt.speculative.spec_utils import draft_tp_context

        owed = self.ledger.owed(slots_cpu)
        rows = self.ledger.rows(slots_cpu, owed)
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
        scratch.out_cache_loc = self._write_slots(batch.req_pool_indices.long(), start, rows)
        fresh = EagleDraftInput(bonus_tokens=rows.tokens)
        accepted = GenerationBatchResult(
            logits_output=LogitsProcessorOutput(next_token_logits=None, hidden_states=rows.hidden),
            next_token_ids=rows.tokens,
            accept_lens=rows.taken.to(torch.int32),
            new_seq_lens=lengths,
            next_draft_input=fresh,
        )
        draft = self._worker.draft_worker
        with (
            draft_tp_context(draft.parallel_layout),
            speculative_moe_backend_context(),
            speculative_moe_a2a_backend_context(),
        ):
            draft._draft_extend_for_decode(scratch, accepted)
        if draft_input is not None:
            _merge(draft_input, fresh, rows.owing, whole=bool((owed > 0).all()))
        self.ledger.settle(slots_cpu)

    def _write_slots(self, slots: torch.Tensor, start: torch.Tensor, rows: Rows) -> torch.Tensor:
        """
        KV slots that the pass writes, int64, shape (n * width,).

        Padding rows write to slot 0, which SGLang keeps for that.
        """
        table = self._worker.req_to_token_pool.req_to_token
        offset = torch.arange(self.width, device=start.device)
        positions = (start[:, None] + offset).clamp_(max=table.shape[1] - 1)
        real = (offset < rows.taken[:, None]) & rows.owing[:, None]
        return torch.where(real, table[slots[:, None], positions].to(torch.int64), 0).view(-1)


def _merge(draft_input: Any, fresh: Any, owing: torch.Tensor, *, whole: bool) -> None:
    """
    Copy the fresh rows of the requests that owed into ``draft_input``, keeping the others.

    A draft that reads no hidden states (STANDALONE) has none in its input, although its CUDA
    graphs output them.
    """
    for name in ("topk_p", "topk_index", "hidden_states"):
        new, old = getattr(fresh, name), getattr(draft_input, name)
        if new is None or (old is None and not whole):
            continue
        if not whole:
            new = torch.where(owing[:, None], new.to(old.dtype), old)
        setattr(draft_input, name, new)


def _decode_mode() -> Any:
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    return ForwardMode.DECODE
