"""
The worker: SGLang's speculative worker with a plain round beside the speculative one.

`dynspec_worker` derives from the worker class that SGLang chose. The plan of the batch decides what
a decode round runs; prefill is SGLang's own, but for the draft's part of it while rounds are plain.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sglang_dynspec_hooks.bridge.bridge import Bridge
from sglang_dynspec_hooks.worker.plain import run_plain_round
from sglang_dynspec_hooks.worker.prefill import PlainPrefill
from sglang_dynspec_hooks.worker.tiers import Tiers
from sglang_dynspec_hooks.worker.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class DynspecWorkerMixin:
    """
    What a dynspec worker adds to ``EAGLEWorkerV2`` and to what derives from it.

    Attributes:
        dynspec: The bridge between this worker, its scheduler and the core.
        upkeep: Keeps the draft model's KV cache warm through plain rounds.
        graph_sizes: Batch sizes that plain rounds have CUDA graphs for, ascending; empty without.
    """

    dynspec: Bridge
    upkeep: Upkeep
    graph_sizes: tuple[int, ...]

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__(  # type: ignore[call-arg]
            server_args=server_args,
            gpu_id=gpu_id,
            nccl_port=nccl_port,
            target_worker=target_worker,
        )
        self.dynspec = Bridge.from_server_args(server_args, worker=self)
        config = self.dynspec.config
        # Without upkeep a pass never runs, but the plain tier still borrows a draft side.
        upkeep_depth = max(config.upkeep_window - 1, 0) or max(config.depths)
        self.adaptive_controller = Tiers(
            self,
            depths=config.depths,
            upkeep_depth=upkeep_depth,
            plain_graphs=config.plain_graphs,
        )
        self.upkeep = Upkeep(self, window=config.upkeep_window, depth=upkeep_depth)
        self.graph_sizes = ()
        self._draft_did_not_run = False

    def init_cuda_graphs(self) -> None:
        """Capture SGLang's graphs and build the tiers: SGLang asks for the speculative ones."""
        self.adaptive_controller.begin()
        super().init_cuda_graphs()  # type: ignore[misc]
        self.adaptive_controller.build_plain()
        self.adaptive_controller.build_upkeep(self.upkeep)
        self.adaptive_controller.keep_graphs()
        self.graph_sizes = self.adaptive_controller.plain_graph_sizes
        self._plain_prefill = PlainPrefill(self, self.upkeep)
        draft = self.draft_worker  # type: ignore[attr-defined]
        draft._draft_extend_for_prefill = functools.partial(
            self._draft_prefill, draft._draft_extend_for_prefill
        )

    def build_costs(self) -> dict[str, Any]:
        """Give what the tiers took to build, as plain JSON types."""
        return self.adaptive_controller.costs.as_json()

    @property
    def last_shared_read_runner(self) -> Any:
        """The runner that was the last to read shared buffers in the newest round."""
        # Upkeep precedes a plain round's own forward on the stream, and a prompt's keys and values
        # are written to slots that the batch names.
        if self._draft_did_not_run:
            return self.target_worker.model_runner  # type: ignore[attr-defined]
        return super().last_shared_read_runner  # type: ignore[misc]

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Callable[[torch.Tensor], None] | None = None,
        grammar_barrier: Callable[[], None] | None = None,
        pp_proxy_tensors: Any | None = None,
    ) -> Any:
        """Run one round of the batch: prefill as SGLang does, decode as the plan on it says."""
        self._draft_did_not_run = False
        forward = super().forward_batch_generation  # type: ignore[misc]
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            self.upkeep.forget(batch.req_pool_indices_cpu.numpy())
            return forward(batch, on_publish, grammar_barrier, pp_proxy_tensors)
        if batch.forward_mode.is_idle():
            return forward(batch, on_publish, grammar_barrier, pp_proxy_tensors)

        depth = self.dynspec.planned_depth(batch)
        if depth == 0:
            result = self._plain_round(batch, on_publish, grammar_barrier)
        else:
            kept_up = self.upkeep.before_speculative_round(batch)
            # The speculative round covers its own tokens, and extends over nothing older.
            self.upkeep.forget(batch.req_pool_indices_cpu.numpy())
            self.adaptive_controller.activate(depth)
            result = forward(batch, on_publish, grammar_barrier, pp_proxy_tensors)
            result.dynspec_upkeep = kept_up
        self.dynspec.stamp(batch, result)
        return result

    def _draft_prefill(
        self,
        original: Callable[..., Any],
        batch: Any,
        hidden: torch.Tensor,
        next_token_ids: torch.Tensor,
        embeds: torch.Tensor | None = None,
        **more: Any,
    ) -> Any:
        """Run the draft's part of a prefill: SGLang's own unless rounds are plain."""
        if self.adaptive_controller.active == 0 and embeds is None:
            draft_input = self._plain_prefill.run(batch, hidden, next_token_ids)
            if draft_input is not None:
                self._draft_did_not_run = True
                return draft_input
        return original(batch, hidden, next_token_ids, embeds, **more)

    def _plain_round(
        self,
        batch: Any,
        on_publish: Callable[[torch.Tensor], None] | None,
        grammar_barrier: Callable[[], None] | None,
    ) -> Any:
        self.adaptive_controller.activate(0)
        kept_up = self.upkeep.before_plain_round(batch)
        result, hidden = run_plain_round(
            self, batch, on_publish=on_publish, grammar_barrier=grammar_barrier
        )
        self._draft_did_not_run = True
        self.upkeep.after_plain_round(batch, result, hidden)
        result.dynspec_upkeep = kept_up
        return result


@functools.cache
def dynspec_worker(base: type) -> type:
    """
    Return the dynspec worker class derived from ``base``.

    Args:
        base: ``EAGLEWorkerV2`` or ``StandaloneWorkerV2``, as SGLang chose it.
    """
    return type(f"Dynspec{base.__name__}", (DynspecWorkerMixin, base), {})
