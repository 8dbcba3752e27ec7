"""
Lazy upkeep: the draft model kept warm at a fraction of the passes.

Plain rounds only note what the draft is owed (`Ledger`). Its KV cache is brought up to date

- at the start of a plain round, once some request lacks a full window of tokens,
- when a request finishes, while its slots are still its own, for the radix cache's sake,

by writing keys and values alone where the draft model allows it (`KvWriter`), and by SGLang's
draft-extend where it does not. Its input for the next speculative round is brought up to date by a
draft-extend

- at the start of that round, whose decision comes after the launch of the one before.

All of it precedes the round's own work on the stream, so that what the scheduler waits for is what
it waits for without upkeep. Some of the window's passes are draft-extends in any case: they yield
the draft's guess of the token that the plain round is about to produce, a sample of first-position
acceptance that costs next to nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from sglang_dynspec.log import describe, structured
from sglang_dynspec_hooks.worker.draft_extend import extend_draft, merge_draft_input
from sglang_dynspec_hooks.worker.finish import extend_finished, on_forward_stream
from sglang_dynspec_hooks.worker.guesses import Guesses, acceptance_is_simulated
from sglang_dynspec_hooks.worker.kv_write import KvWriter
from sglang_dynspec_hooks.worker.ledger import Ledger
from sglang_dynspec_hooks.worker.rows import hidden_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import torch

logger = structured(None, "sglang_dynspec")

Method = TypeVar("Method", bound="Callable[..., Any]")

#: Every so many window passes one is a draft-extend, for its guesses. At window 4 that is one in 64
#: plain rounds, which adds about 0.1 % to them.
_GUESS_EVERY = 16


def _gives_up(method: Method) -> Method:
    """Let a method give upkeep up where it fails: a cold draft costs speed, never an output."""

    @functools.wraps(method)
    def call(self: Upkeep, *args: Any) -> Any:
        try:
            return method(self, *args)
        except Exception as error:  # noqa: BLE001
            self.give_up(error)
            # Whatever ran of a pass is in the round's time.
            return True

    return cast("Method", call)


class Upkeep:
    """
    Decides when an upkeep pass runs, and runs it. A pass that fails ends upkeep, nothing else.

    Attributes:
        window: Tokens a request's draft KV cache may lack before a pass runs; 1 runs one every
            plain round, 0 none at all, which leaves the draft cold.
        width: Most tokens per request that a draft-extend covers.
        ledger: What the draft is owed.
        guesses: The draft's guesses of what plain rounds produce.
        writer: Writes keys and values alone; None where the draft has to run whole passes.
        passes: Passes run, by occasion.
        writes: How many of them wrote keys and values alone.
        faults: Passes that failed. After the first there are no more, unless a window is set again.
    """

    ledger: Ledger

    def __init__(self, worker: Any, *, window: int, depth: int) -> None:
        """
        Create it before the request slots exist; `build` comes after.

        Args:
            worker: The speculative worker.
            window: See the class; at most ``depth + 1``.
            depth: Depth of the tier whose draft-extend resources the passes use; a pass covers
                ``depth + 1`` tokens per request.
        """
        self._worker = worker
        self.width = depth + 1
        self.window = window
        self.guesses = Guesses()
        self.writer: KvWriter | None = None
        self._guesses_count = not acceptance_is_simulated()
        self.passes = {"window": 0, "reentry": 0, "finish": 0}
        self.writes = 0
        self.faults = 0

    def build(self, batch_sizes: Sequence[int]) -> None:
        """
        Allocate the ledger and, where the draft model allows writing KV alone, capture that.

        Args:
            batch_sizes: Batch sizes that the server captures CUDA graphs for; empty without.
        """
        worker = self._worker
        table = worker.req_to_token_pool.req_to_token
        self.ledger = Ledger(
            width=self.width,
            slots=table.shape[0],
            device=worker.device,
            hidden=hidden_rows(worker),
        )
        self.writer = KvWriter.where_it_fits(
            worker, self.ledger, batch_sizes=batch_sizes, window=self.window or self.width
        )

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
        if window == 0:
            self.ledger.clear()

    def forget(self, slots_cpu: npt.NDArray[np.int64] | Sequence[int]) -> None:
        """Drop what the slots owe: they are prefilled anew, or nothing will read their rows."""
        self.ledger.settle(slots_cpu)

    def forget_gone(self, slots_cpu: npt.NDArray[np.int64], prefills: int) -> None:
        """
        Drop what a round noted of requests that were gone when it ran.

        Args:
            slots_cpu: Their request slots, int64, shape (n,), on the host.
            prefills: `prefills` when it ran: what was prefilled since is somebody else's.
        """
        self.forget(slots_cpu[~self.ledger.prefilled_since(slots_cpu, prefills)])

    @property
    def prefills(self) -> int:
        """Prefills whose keys and values alone were written, so far."""
        return self.ledger.prefills

    @_gives_up
    def before_plain_round(self, batch: Any) -> bool:
        """
        Bring the draft's KV cache up to date when a request of the batch lacks a full window.

        The plain tier must be in force.

        Args:
            batch: The batch, as the scheduler launched it.

        Returns:
            Whether a pass ran.
        """
        if self.window == 0:
            return False
        slots_cpu = batch.req_pool_indices_cpu.numpy()
        unwritten = self.ledger.unwritten(slots_cpu)
        if unwritten.max() < self.window:
            return False
        guess = self._guesses_count and self.passes["window"] % _GUESS_EVERY == 0
        if self.writer is None or guess:
            fresh, rows = extend_draft(
                self._worker,
                self.ledger,
                batch,
                slots_cpu,
                unwritten,
                lengths=batch.seq_lens,
                lengths_cpu=batch.seq_lens_cpu,
            )
            self.ledger.mark_written(slots_cpu)
            if self._guesses_count:
                self.guesses.note(
                    self._worker, fresh.topk_index, rows.owing, int(np.count_nonzero(unwritten))
                )
        else:
            self.writer.write(slots_cpu)
            self.writes += 1
        self.passes["window"] += 1
        return True

    @_gives_up
    def after_plain_round(self, batch: Any, result: Any, hidden: torch.Tensor | None) -> None:
        """
        Note one plain round.

        Args:
            batch: The batch as the plain round left it.
            result: Its result; takes the guesses made for it.
            hidden: The target's hidden rows, shape (batch size, hidden size), or None.
        """
        if self.window == 0:
            return
        self.guesses.compare(result)
        self.ledger.enter(
            batch.req_pool_indices.long(),
            batch.req_pool_indices_cpu.numpy(),
            tokens=result.next_token_ids,
            hidden=hidden,
            lengths=result.new_seq_lens,
            lengths_cpu=batch.seq_lens_cpu,
        )

    @_gives_up
    def before_speculative_round(self, batch: Any) -> bool:
        """
        Pay what the batch owes and put the fresh draft input on it.

        The plain tier must still be in force. Requests fresh from prefill owe nothing; they pad the
        pass and keep their draft input.

        Returns:
            Whether a pass ran.
        """
        slots_cpu = batch.req_pool_indices_cpu.numpy()
        owed = self.ledger.owed(slots_cpu)
        if not owed.any():
            return False
        fresh, rows = extend_draft(
            self._worker,
            self.ledger,
            batch,
            slots_cpu,
            owed,
            lengths=batch.seq_lens,
            lengths_cpu=batch.seq_lens_cpu,
        )
        merge_draft_input(batch.spec_info, fresh, rows.owing, whole=bool((owed > 0).all()))
        self.passes["reentry"] += 1
        return True

    @_gives_up
    def release(self, scheduler: Any, batch: Any, rows: Sequence[int]) -> None:
        """
        Let go of requests that just finished, their draft rows whole for the radix cache.

        Called once the round's result is processed: the requests' slots are the cache's or free by
        then, but nothing has reused them, and the pass comes before anything that will.

        Args:
            scheduler: The scheduler.
            batch: The processed batch.
            rows: Its rows that finished.
        """
        finished = batch.req_pool_indices_cpu.numpy()[np.asarray(rows)]
        lacking = self.ledger.unwritten(finished) > 0
        try:
            if lacking.any() and not scheduler.disable_radix_cache:
                slots_cpu = finished[lacking]
                with on_forward_stream(scheduler):
                    if self.writer is not None:
                        self.writer.write(slots_cpu)
                        self.writes += 1
                    else:
                        left = [row for row, lacks in zip(rows, lacking, strict=True) if lacks]
                        extend_finished(self._worker, self.ledger, batch, left, slots_cpu)
                self.passes["finish"] += 1
        finally:
            self.forget(finished)

    def give_up(self, error: Exception) -> None:
        """Go on without upkeep after a fault, and say so: the draft is cold from now on."""
        self.set_window(0)
        self.faults += 1
        logger.error(
            "upkeep_given_up",
            error=describe(error),
            exc_info=error,
            note="outputs stay right; drafts after plain rounds will be poor; please report this",
        )

    def summary(self) -> dict[str, Any]:
        """Give its state as plain JSON types."""
        return {
            "window": self.window,
            "passes": dict(self.passes),
            "writes": self.writes,
            "prefills": self.prefills,
            "pending": self.ledger.pending(),
            "gaps": self.ledger.gaps,
            "faults": self.faults,
        }
