"""
The kernels that SGLang's CPU path of speculative decoding calls, in plain torch.

This package shadows the CUDA-only ``sgl_kernel`` wheel: its parent directory stands first on
``PYTHONPATH``, so every process of the engine imports it instead. It holds the kernels of chain
drafts (``topk = 1``) for EAGLE, EAGLE3 and STANDALONE and nothing else. SGLang imports many other
names at module level without calling them on a CPU; those resolve to stubs that raise
`NotImplementedError` with their name when called.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from .slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
)
from .tree import build_tree_kernel_efficient_cpu, fill_bonus_tokens_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]

#: Tells `sglang_dynspec_cpu` that this is the shadow and not the wheel.
DYNSPEC_SHADOW = True


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """
    Return a stub for a kernel that the CPU engine does not have.

    Raises:
        AttributeError: For dunder names, which the import system and `inspect` probe for.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def stub(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"expected a kernel of chain drafts (topk = 1) on the CPU engine; found a call of "
            f"sgl_kernel.{name}; use a server with a GPU for this feature"
        )

    stub.__name__ = stub.__qualname__ = name
    return stub
