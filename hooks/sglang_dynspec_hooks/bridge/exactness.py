"""
Which requests the speculative sampler cannot serve exactly.

SGLang's speculative sampler ignores min_p and custom logit processors and only approximates
penalties: it applies the penalties of a round's first position to all of them
(``eagle_utils.eagle_sample``, "a relaxed version of penalties").
"""

from __future__ import annotations

from typing import Any


def count_plain_requests(batch: Any) -> int:
    """
    Count the batch's requests whose output is exact only when they are decoded plainly.

    The batch-wide flags are looked at first, because hardly any batch has such a request; they can
    outlast the request that set them, so they only say whether to look.
    """
    info = batch.sampling_info
    if info is None or not (
        info.penalizer_orchestrator.is_required
        or info.need_min_p_sampling
        or info.has_custom_logit_processor
    ):
        return 0
    return sum(1 for req in batch.reqs if needs_plain(req))


def needs_plain(req: Any) -> bool:
    """Whether the speculative sampler would change the request's distribution."""
    params = req.sampling_params
    return bool(
        params.frequency_penalty
        or params.presence_penalty
        or params.repetition_penalty != 1.0
        or params.min_new_tokens > 0
        or params.min_p > 0
        or req.custom_logit_processor
    )
