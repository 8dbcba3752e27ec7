"""
The two functions that keep SGLang's overlap scheduler from speculating on a CPU, replaced.

Both are replacements, not wrappers, for a reason each: one launches a Triton kernel, which has no
CPU form; the other's only effect is to turn the overlap scheduler off.
"""

from typing import Any

from torch import Tensor


def keep_overlap_schedule(server_args: Any) -> None:
    """
    Leave ``--disable-overlap-schedule`` as the user set it.

    REPLACE of ``sglang.srt.arg_groups.speculative_hook._disable_overlap_schedule_for_cpu``, which
    sets it on every CPU server with speculation. Nothing but the kernel below needs that.
    """


def gather_spec_extras(
    indices: Tensor,
    topk_p_buf: Tensor,
    topk_index_buf: Tensor,
    output_tokens_buf: Tensor,
    hidden_states_buf: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """
    Read the draft state that the previous round left for the requests of a batch.

    REPLACE of ``sglang.kernels.ops.speculative.gather_spec_extras.gather_spec_extras``, a Triton
    kernel.

    Args:
        indices: ``[batch]``, the requests' rows in the buffers.
        topk_p_buf: ``[rows, topk]``, probabilities of the next drafts.
        topk_index_buf: ``[rows, topk]``, the next drafts.
        output_tokens_buf: ``[rows]``, newest tokens.
        hidden_states_buf: ``[rows, hidden]``, or None when the algorithm has none.

    Returns:
        The rows of the four buffers, in the order of the arguments; None for None.
    """
    rows = indices.long()
    return (
        topk_p_buf[rows],
        topk_index_buf[rows],
        output_tokens_buf[rows],
        None if hidden_states_buf is None else hidden_states_buf[rows],
    )
