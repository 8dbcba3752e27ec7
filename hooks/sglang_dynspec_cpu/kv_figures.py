"""Figures of the KV pool, which SGLang does not report exactly, for tests of leaks."""

from typing import Any

#: Key of the figures in the scheduler's internal state.
KEY = "dynspec_cpu_kv"


def add_kv_figures(result: Any, controller: Any, recv_req: Any) -> None:  # noqa: ARG001
    """
    Add the pool's figures to the internal state; AFTER ``get_internal_state``.

    Args:
        result: ``GetInternalStateReqOutput``; its dict ``internal_state`` gets `KEY`: a dict of
            ``capacity``, ``free`` and ``evictable`` (held by the radix cache alone), in slots.
        controller: ``SchedulerInternalStateController``.
        recv_req: The request; unused.
    """
    scheduler = controller.scheduler
    result.internal_state[KEY] = {
        "capacity": int(scheduler.max_total_num_tokens),
        "free": int(scheduler.token_to_kv_pool_allocator.available_size()),
        "evictable": int(scheduler.tree_cache.evictable_size()),
    }
