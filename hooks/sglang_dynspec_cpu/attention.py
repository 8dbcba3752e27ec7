# ruff: noqa: PLR0917 - the signatures are SGLang's
"""
SGLang's ``torch_native`` attention, extended by the modes of speculative decoding.

Stock ``torch_native`` knows prefill (EXTEND) and plain decode (DECODE). Prefill stays as it is.
This module adds TARGET_VERIFY, DRAFT_EXTEND_V2 and the draft model's decode steps, all by `chain`,
and replaces DECODE: stock's loop over the requests would make a plain round of many requests dearer
than their verification, and a policy that measures would find speculation to pay for no better
reason. A server without speculation keeps stock's.

Side effects: `install` replaces an entry of SGLang's registry of attention backends.
"""

from collections.abc import Callable
from typing import Any

from sglang.srt.layers.attention import attention_registry
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch import Tensor

from sglang_dynspec_cpu.chain import ChainPlan

#: The backend that this module extends, by its name in ``--attention-backend``.
BACKEND = "torch_native"


class ChainAttnBackend(TorchNativeAttnBackend):
    """``torch_native`` for a target or a draft's extend pass: stock, plus the chain modes."""

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        self._plan: ChainPlan | None = None

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """
        Prepare a forward pass.

        Raises:
            NotImplementedError: For a tree of drafts, or a draft-extend pass whose requests
                differ in width.
        """
        super().init_forward_metadata(forward_batch)
        mode = forward_batch.forward_mode
        if mode.is_target_verify():
            topk = forward_batch.spec_info.tree_topk
            if topk != 1:
                raise NotImplementedError(
                    f"expected a chain of drafts (topk = 1) on the CPU engine; found topk = "
                    f"{topk}; set --speculative-eagle-topk 1"
                )
            width = forward_batch.spec_info.draft_token_num
            # SGLang gives the length before the drafts here, and after them when extending.
            self._set_plan(forward_batch, forward_batch.seq_lens, width)
        elif mode.is_draft_extend_v2():
            widths = forward_batch.extend_seq_lens
            width = int(widths[0])
            if bool((widths != width).any()):
                raise NotImplementedError(
                    f"expected one width in a draft-extend batch on the CPU engine; found "
                    f"{widths.tolist()}; pad the rows to one width"
                )
            self._set_plan(forward_batch, forward_batch.seq_lens - width, width)
        elif mode.is_decode():
            # Here the length counts the token that the pass computes.
            self._set_plan(forward_batch, forward_batch.seq_lens - 1, width=1)
        else:
            self._plan = None

    def forward_extend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
    ) -> Tensor:
        """Run one layer of an EXTEND, TARGET_VERIFY or DRAFT_EXTEND_V2 pass."""
        if self._plan is None:
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)
        return self._attend(self._plan, q, k, v, layer, forward_batch, save_kv_cache)

    def forward_decode(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
    ) -> Tensor:
        """Run one layer of a DECODE pass, or of a decode step of the draft model."""
        if self._plan is None:
            raise RuntimeError("expected the metadata of a decode pass; found none; prepare it")
        return self._attend(self._plan, q, k, v, layer, forward_batch, save_kv_cache)

    def _set_plan(self, forward_batch: Any, start: Tensor, width: int) -> None:
        self._plan = ChainPlan.build(
            self.req_to_token_pool.req_to_token,
            forward_batch.req_pool_indices,
            start,
            width,
        )

    def _attend(
        self,
        plan: ChainPlan,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool,
    ) -> Tensor:
        """Write the pass's keys and values, then compute attention by ``plan``."""
        window = layer.sliding_window_size
        if layer.is_cross_attention or (window is not None and window > -1):
            raise NotImplementedError(
                f"expected full self-attention when speculating on the CPU engine; found layer "
                f"{layer.layer_id} with cross attention or a sliding window; use another model"
            )
        pool = self.token_to_kv_pool
        if save_kv_cache and k is not None and v is not None:
            location = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            pool.set_kv_buffer(layer, location, k, v)
        return plan.attend(
            q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim),
            pool.get_key_buffer(layer.layer_id),
            pool.get_value_buffer(layer.layer_id),
            layer.scaling,
        )


class DraftStepAttnBackend(ChainAttnBackend):
    """Attention of one decode step of the draft model."""

    def init_draft_step(self, forward_batch: Any, step: int) -> None:
        """
        Prepare draft step ``step``, counted from 0.

        The step's query is at position ``seq_lens[b] + step``: ``seq_lens`` stays the committed
        length through all the steps of a round.
        """
        self.swa_out_cache_loc = None
        self._set_plan(forward_batch, forward_batch.seq_lens + step, width=1)


class DraftChainAttnBackend:
    """
    The draft model's decode steps of one depth: one backend per step, as SGLang expects it.

    A round of depth k runs the draft model k - 1 times; its first draft comes from the
    draft-extend pass before.
    """

    def __init__(self, model_runner: Any, topk: int, speculative_num_steps: int) -> None:
        """
        Create the steps' backends.

        Raises:
            NotImplementedError: When ``topk`` is not 1.
        """
        if topk != 1:
            raise NotImplementedError(
                f"expected topk = 1 on the CPU engine; found topk = {topk}; "
                f"set --speculative-eagle-topk 1"
            )
        self.attn_backends = [
            DraftStepAttnBackend(model_runner) for _ in range(speculative_num_steps - 1)
        ]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare all the steps of a round; ``seq_lens`` is the committed length."""
        for step, backend in enumerate(self.attn_backends):
            backend.init_draft_step(forward_batch, step)


def install() -> None:
    """Let SGLang create `ChainAttnBackend` when a speculative server asks for ``torch_native``."""
    stock = attention_registry.ATTENTION_BACKENDS[BACKEND]

    def create(runner: Any) -> Any:
        # A server without speculation is the reference of the tests: leave it to SGLang.
        return stock(runner) if runner.spec_algorithm.is_none() else ChainAttnBackend(runner)

    attention_registry.register_attention_backend(BACKEND)(create)


def add_draft_backends(
    create_backend: Callable[..., Any],
    factory: Any,
    backend_name: str,
    backend_map: dict[str, Callable[[], tuple[str, Any]]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """
    Offer ``torch_native`` as a draft backend; AROUND ``DraftBackendFactory._create_backend``.

    Args:
        create_backend: The hooked method.
        factory: The ``DraftBackendFactory``.
        backend_name: ``decode_attention_backend`` for the draft's decode steps, else for its
            extend pass.
        backend_map: SGLang's constructors by backend name. Each returns the name to stamp and the
            backend.
        *args: Passed on.
        **kwargs: Passed on.

    Returns:
        What the hooked method returns: the backend.
    """
    runner = factory.draft_model_runner

    def create() -> tuple[str, Any]:
        # create_draft_extend_backend passes the decode name too, when
        # --speculative-attention-mode is decode; only the decode map has multi-step stamps.
        if kwargs.get("stamps_children", False):
            steps = factory.speculative_num_steps
            return BACKEND, DraftChainAttnBackend(runner, factory.topk, steps)
        return BACKEND, ChainAttnBackend(runner)

    return create_backend(factory, backend_name, {**backend_map, BACKEND: create}, *args, **kwargs)
