"""
The seams of the CPU engine: where it enters SGLang, and why.

Handlers are in `attention`, `overlap` and `kv_figures`. Besides these hooks, `attention.install`
puts one entry into SGLang's registry of attention backends, an extension point.
"""

from sglang_dynspec_hooks.contract.seam import Hook, Kind, Seam

_KEEP_OVERLAP = Seam(
    target="sglang.srt.arg_groups.speculative_hook._disable_overlap_schedule_for_cpu",
    kind=Kind.REPLACE,
    parameters=("server_args",),
    reason="its only effect is to turn the overlap scheduler off; nothing is left to wrap",
    removal="SGLang speculates with overlap on a CPU",
)

_GATHER = Seam(
    target="sglang.kernels.ops.speculative.gather_spec_extras.gather_spec_extras",
    kind=Kind.REPLACE,
    parameters=(
        "indices",
        "topk_p_buf",
        "topk_index_buf",
        "output_tokens_buf",
        "hidden_states_buf",
    ),
    reason="launches a Triton kernel, which has no CPU form",
    removal="SGLang has a CPU form of the kernel",
)

_DRAFT_BACKEND = Seam(
    target="sglang.srt.speculative.draft_utils.DraftBackendFactory._create_backend",
    kind=Kind.AROUND,
    parameters=("self", "backend_name", "backend_map", "error_template", "stamps_children"),
    reason="the backends a draft model may have are a dict inside the calling method",
    removal="SGLang has a registry of draft attention backends",
)

_INTERNAL_STATE = Seam(
    target=(
        "sglang.srt.managers.scheduler_components.internal_state."
        "SchedulerInternalStateController.get_internal_state"
    ),
    kind=Kind.AFTER,
    parameters=("self", "recv_req"),
    reason="tests of KV leaks need the exact number of free slots",
    removal="SGLang reports it",
)


def launcher() -> tuple[Hook, ...]:
    """Return the hooks of the process that parses the arguments."""
    from sglang_dynspec_cpu import overlap

    return (Hook(seam=_KEEP_OVERLAP, handler=overlap.keep_overlap_schedule),)


def scheduler() -> tuple[Hook, ...]:
    """Return the hooks of a scheduler process; imports SGLang's attention backends."""
    from sglang_dynspec_cpu import attention, kv_figures, overlap

    return (
        Hook(seam=_GATHER, handler=overlap.gather_spec_extras),
        Hook(seam=_DRAFT_BACKEND, handler=attention.add_draft_backends),
        Hook(seam=_INTERNAL_STATE, handler=kv_figures.add_kv_figures),
    )
