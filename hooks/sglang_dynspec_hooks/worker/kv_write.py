"""
The K/V write: what the draft model's KV cache lacks, at the price of projections alone.

While rounds are plain nobody reads the draft model's output, only its KV cache is kept current. In
a draft with one attention layer (EAGLE, EAGLE3, NEXTN) the keys and values of a token depend on
that token and its target hidden row alone. So the forward pass is run up to its attention, whose
backend here writes keys and values and ends the pass: no attention, no MLP, no head, and no batch
structure either, just rows. On a GPU it is replayed from CUDA graphs, one for each number of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sglang_dynspec.log import structured
from sglang_dynspec_hooks.worker.rows import upload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from sglang_dynspec_hooks.worker.ledger import Ledger

logger = structured(None, "sglang_dynspec")


class _KeysAndValuesWritten(Exception):  # noqa: N818 - it ends the pass, it is no error
    """The attention layer's keys and values are in the KV cache."""


class _WriteOnly:
    """An attention backend that writes keys and values, and ends the forward pass there."""

    def __init__(self, runner: Any) -> None:
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.req_to_token_pool = runner.req_to_token_pool

    def forward(
        self,
        _q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        _save_kv_cache: bool,
        **more: Any,
    ) -> None:
        from sglang.srt.mem_cache.memory_pool import KVWriteLoc

        if more:
            raise NotImplementedError(f"attention with {', '.join(more)}")
        self.token_to_kv_pool.set_kv_buffer(
            layer, KVWriteLoc.for_layer(forward_batch, layer), k, v, layer.k_scale, layer.v_scale
        )
        raise _KeysAndValuesWritten


class KvWriter:
    """
    Writes the draft model's keys and values for the tokens that a ledger says it lacks.

    Attributes:
        row_counts: Numbers of rows with a CUDA graph, ascending. Others are padded to the next one;
            more than the largest run eagerly.
    """

    def __init__(self, worker: Any, ledger: Ledger, *, row_counts: Sequence[int]) -> None:
        """
        Prepare the writer and, where ``row_counts`` asks for it, capture its CUDA graphs.

        Args:
            worker: The speculative worker, whose pools exist.
            ledger: Where rows come from.
            row_counts: Numbers of rows to capture, ascending; empty to run eagerly.

        Raises:
            NotImplementedError: The draft model's attention is not one that keys and values can be
                taken from.
        """
        self._draft = worker.draft_worker
        self._runner = worker.draft_worker.draft_runner
        self._table = worker.req_to_token_pool.req_to_token
        self._ledger = ledger
        self._backend = _WriteOnly(self._runner)
        self.row_counts = tuple(row_counts)
        self._index: torch.Tensor | None = None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        # Tried on a row of padding before anything depends on it.
        with self._contexts():
            self._run(torch.zeros((3, 1), dtype=torch.int64, device=self._table.device))
        if self.row_counts:
            self._capture()

    @classmethod
    def where_it_fits(
        cls, worker: Any, ledger: Ledger, *, batch_sizes: Sequence[int], window: int
    ) -> KvWriter | None:
        """
        Make a writer, or return None where the draft model has to run whole passes.

        Args:
            worker: The speculative worker, whose pools exist.
            ledger: Where rows come from.
            batch_sizes: Batch sizes that the server captures CUDA graphs for; empty without.
            window: Tokens of a request that a pass covers once a whole batch is in step.
        """
        if not cls.fits(worker):
            return None
        row_counts = {size * window for size in batch_sizes}
        if row_counts:
            # For any window that is set while serving.
            row_counts.add(max(batch_sizes) * ledger.width)
        try:
            return cls(worker, ledger, row_counts=sorted(row_counts))
        except NotImplementedError as error:
            logger.warning(
                "kv_write_unavailable",
                found=str(error),
                note="upkeep extends the draft over whole windows, which costs more",
            )
            return None

    @staticmethod
    def fits(worker: Any) -> bool:
        """Whether keys and values of the draft model can be written without running the rest."""
        from sglang.srt.layers.radix_attention import RadixAttention
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

        runner = worker.draft_worker.draft_runner
        layers = [each for each in runner.model.modules() if isinstance(each, RadixAttention)]
        pool = runner.token_to_kv_pool
        return (
            not worker.speculative_algorithm.is_standalone()
            and len(layers) == 1
            # Its subclasses quantize or page in ways of their own.
            and type(pool) is MHATokenToKVPool
            and pool.dtype == runner.model_config.dtype
        )

    def write(self, slots_cpu: npt.NDArray[np.int64]) -> None:
        """
        Write what the slots lack and strike it off.

        Args:
            slots_cpu: Request slots, int64, shape (n,), on the host; some lack something.
        """
        rows = self._ledger.lacking(slots_cpu)
        count = rows.shape[1]
        place = bisect_left(self.row_counts, count)
        if place < len(self.row_counts):
            self._replay(rows, self.row_counts[place])
        else:
            with self._contexts():
                self._run(upload(rows, self._table.device))
        self._ledger.mark_written(slots_cpu)

    def write_rows(
        self,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        locations: torch.Tensor,
    ) -> None:
        """
        Write rows that no ledger holds; they run eagerly, however many.

        Args:
            ids: Token ids, int64, shape (rows,).
            hidden: Target hidden rows, shape (rows, hidden size).
            positions: In their sequences, int64, shape (rows,).
            locations: KV slots to write to, int64, shape (rows,).
        """
        with self._contexts():
            self._forward(ids, hidden, positions, locations)

    def _replay(self, rows: npt.NDArray[np.int64], count: int) -> None:
        from sglang.srt.model_executor.runner_utils.pool import graph_pool_replay_scope

        assert self._index is not None  # noqa: S101 - allocated before the first capture
        padded = np.zeros((3, count), dtype=np.int64)
        padded[:, : rows.shape[1]] = rows
        self._index[:, :count].copy_(upload(padded, self._table.device))
        with graph_pool_replay_scope():
            self._graphs[count].replay()

    def _run(self, index: torch.Tensor) -> None:
        """
        Run the draft model up to its attention.

        Args:
            index: For each row, its place in the ledger's ring, its request slot, and how far it is
                from the end of the sequence; int64, shape (3, rows). Zeros pad: they write to the
                padding slot 0.
        """
        place, slots, back = index.unbind(0)
        tokens, hidden = self._ledger.gather(place)
        positions = (self._ledger.length_of(slots) - back).clamp_(min=0)
        locations = self._table[slots, positions].to(torch.int64)
        self._forward(tokens.to(torch.int64), hidden, positions, locations)

    def _forward(
        self,
        ids: torch.Tensor,
        hidden: torch.Tensor | None,
        positions: torch.Tensor,
        locations: torch.Tensor,
    ) -> None:
        from sglang.srt.model_executor.forward_batch_info import (
            CaptureHiddenMode,
            ForwardBatch,
            ForwardMode,
        )
        from sglang.srt.speculative.eagle_info import EagleDraftInput

        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.DECODE,
            batch_size=len(ids),
            input_ids=ids,
            # What the rows belong to matters to attention alone, which does not run.
            req_pool_indices=locations,
            seq_lens=positions,
            out_cache_loc=locations,
            seq_lens_sum=0,
            positions=positions,
            spec_algorithm=self._runner.spec_algorithm,
            spec_info=EagleDraftInput(hidden_states=hidden),
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        try:
            self._runner.model.forward(
                forward_batch.input_ids, forward_batch.positions, forward_batch
            )
        except _KeysAndValuesWritten:
            return
        raise NotImplementedError("the draft model's forward pass did not reach its attention")

    @contextmanager
    def _contexts(self) -> Iterator[None]:
        """Enter what SGLang's own draft passes run in."""
        from sglang.srt.layers.moe.utils import (
            speculative_moe_a2a_backend_context,
            speculative_moe_backend_context,
        )
        from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
        from sglang.srt.speculative.spec_utils import draft_tp_context

        with (
            torch.no_grad(),
            draft_tp_context(self._draft.parallel_layout),
            speculative_moe_backend_context(),
            speculative_moe_a2a_backend_context(),
            forward_context(ForwardContext(attn_backend=self._backend)),
        ):
            yield

    def _capture(self) -> None:
        """Capture a graph for each number of rows, largest first: smaller ones reuse its memory."""
        from sglang.srt.model_executor.runner import model_capture_mode
        from sglang.srt.model_executor.runner_utils.pool import (
            get_or_create_global_graph_capture_stream,
            get_or_create_global_graph_memory_pool,
            graph_pool_capture_scope,
        )

        self._index = torch.zeros(
            (3, self.row_counts[-1]), dtype=torch.int64, device=self._table.device
        )
        pool = get_or_create_global_graph_memory_pool(torch.cuda)
        stream = get_or_create_global_graph_capture_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with self._contexts(), model_capture_mode(), graph_pool_capture_scope():
            for count in reversed(self.row_counts):
                index = self._index[:, :count]
                with torch.cuda.stream(stream):
                    # Kernels are loaded and tuned outside the capture.
                    for _ in range(2):
                        self._run(index)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    self._run(index)
                self._graphs[count] = graph
        torch.cuda.current_stream().wait_stream(stream)
