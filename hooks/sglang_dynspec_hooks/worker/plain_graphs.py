"""
CUDA graphs for plain rounds.

A speculative server captures its target model at verify width only. Plain rounds need what the
server without speculation captures: width-one DECODE graphs. They are built by SGLang's own runner,
which takes their shape from the model runner's speculative algorithm: while it is constructed, that
algorithm reads as NONE.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def capture_plain_graphs(
    model_runner: Any, attn_backend: Any, *, draft_reads_hidden: bool
) -> Any | None:
    """
    Capture the plain graphs at every batch size that the server captures.

    Args:
        model_runner: The target's model runner.
        attn_backend: The plain tier's own attention backend; the graphs keep it.
        draft_reads_hidden: Whether the graphs have to output the hidden states that the draft
            model will be fed.

    Returns:
        The graph runner, or None where SGLang runs decode rounds without CUDA graphs.
    """
    from sglang.srt.model_executor.cuda_graph_config import (
        Backend,
        Phase,
        check_cuda_graph_backend,
    )

    if model_runner.device != "cuda" or check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
        return None
    with _without_speculation(model_runner):
        return _runner_class()(
            model_runner, attn_backend=attn_backend, draft_reads_hidden=draft_reads_hidden
        )


@contextmanager
def _without_speculation(model_runner: Any) -> Iterator[None]:
    """Let the model runner's speculative algorithm read as NONE."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    algorithm = model_runner.spec_algorithm
    model_runner.spec_algorithm = SpeculativeAlgorithm.NONE
    try:
        yield
    finally:
        model_runner.spec_algorithm = algorithm


@functools.cache
def _runner_class() -> type:
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
    from sglang.srt.model_executor.runner import DecodeCudaGraphRunner

    class PlainDecodeCudaGraphRunner(DecodeCudaGraphRunner):
        """SGLang's decode graphs, with the hidden states among their outputs."""

        def __init__(
            self, model_runner: Any, *, attn_backend: Any, draft_reads_hidden: bool
        ) -> None:
            self._draft_reads_hidden = draft_reads_hidden
            super().__init__(
                model_runner,
                attn_backend=attn_backend,
                speculative_num_steps=0,
                speculative_num_draft_tokens=1,
            )

        def capture(self) -> None:
            if self._draft_reads_hidden:
                self.capture_hidden_mode = CaptureHiddenMode.FULL
            super().capture()

    return PlainDecodeCudaGraphRunner
