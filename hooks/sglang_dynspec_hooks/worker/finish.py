"""
The last pass of requests that finished: their draft rows go to the radix cache with the target's.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

import torch

from sglang_dynspec_hooks.worker.draft_extend import extend_draft
from sglang_dynspec_hooks.worker.rows import upload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from sglang_dynspec_hooks.worker.ledger import Ledger


def extend_finished(
    worker: Any,
    ledger: Ledger,
    batch: Any,
    rows: Sequence[int],
    slots_cpu: npt.NDArray[np.int64],
) -> None:
    """
    Run one draft-extend pass over what finished requests lack.

    Args:
        worker: The speculative worker.
        ledger: Where the rows are; the slots are struck off.
        batch: The processed batch; left as it is.
        rows: Its rows that finished and whose draft KV cache lacks tokens.
        slots_cpu: Their request slots, int64, shape (n,), on the host.
    """
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    finished = copy.copy(batch)
    finished.reqs = [batch.reqs[row] for row in rows]
    finished.req_pool_indices_cpu = torch.from_numpy(slots_cpu)
    finished.req_pool_indices = upload(slots_cpu, worker.device)
    finished.sampling_info = None
    finished.return_logprob = False
    finished.has_grammar = False
    finished.forward_mode = ForwardMode.DECODE
    lengths, lengths_cpu = ledger.lengths(finished.req_pool_indices, slots_cpu)
    # Under overlap the next round is launched already and may have put another tier in force.
    with worker.adaptive_controller.borrowed(0):
        extend_draft(
            worker,
            ledger,
            finished,
            slots_cpu,
            ledger.unwritten(slots_cpu),
            lengths=lengths,
            lengths_cpu=lengths_cpu,
        )
    ledger.mark_written(slots_cpu)


@contextlib.contextmanager
def on_forward_stream(scheduler: Any) -> Iterator[None]:
    """
    Run on the stream of the forwards, in order with what the scheduler's own stream does.

    Without overlap both are one stream. With it, the scheduler's later writes to the request table
    wait for the work inside, on the device; the host does not wait.
    """
    if not scheduler.enable_overlap:
        yield
        return
    with scheduler.forward_stream_ctx:
        scheduler.forward_stream.wait_stream(scheduler.schedule_stream)
        yield
    scheduler.schedule_stream.wait_stream(scheduler.forward_stream)
