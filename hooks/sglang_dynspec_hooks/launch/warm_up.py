"""
``--warmups dynspec``: every depth at every batch size, before the server serves.

SGLang compiles some kernels of speculative rounds when a depth or a batch size first needs them,
which stalls that round for hundreds of milliseconds. Their variants go by powers of two.
"""

from __future__ import annotations

import time
from typing import Any, Final

from sglang_dynspec.log import structured

logger = structured(None, "sglang_dynspec")

#: What to ask for: ``--warmups dynspec``.
NAME: Final = "dynspec"

#: Largest batch size that is warmed up where none has a CUDA graph.
_LARGEST: Final = 256

#: Prompt tokens of a request, and turns through all depths that it lasts for.
_PROMPT: Final = 4
_TURNS: Final = 2


def register(server_args: Any) -> None:
    """
    Let SGLang find the warm-up, where it is asked for.

    Args:
        server_args: The resolved arguments, or a view of them.
    """
    if NAME not in (server_args.warmups or "").split(","):
        return
    from sglang.srt.entrypoints.warmup import warmup

    warmup(NAME)(warm_up)


async def warm_up(_disaggregation_mode: str, tokenizer_manager: Any) -> bool:
    """
    Run batches of requests through every depth. A fault costs the warm-up, not the start-up.

    Args:
        tokenizer_manager: SGLang's, which requests go through.

    Returns:
        Whether all went well.
    """
    begin = time.perf_counter()
    try:
        state = (await tokenizer_manager.get_internal_state())[0]["dynspec"]
        depths = [int(depth) for depth in state["by_depth"]]
        cap = min(tokenizer_manager.server_args.max_running_requests or 1, _LARGEST)
        sizes = powers_of_two(max(state["graph_sizes"], default=cap))
        await _set(tokenizer_manager, on=1)
        try:
            from tqdm import tqdm  # type: ignore[import-untyped]

            for size in tqdm(sizes, desc="dynspec warm-up, batch sizes"):
                await _generate(tokenizer_manager, size, depths)
        finally:
            await _set(tokenizer_manager, on=0)
    except Exception:
        logger.exception("warm_up_failed", note="first rounds may stall while serving")
        return False
    logger.info(
        "warmed_up",
        depths=",".join(map(str, depths)),
        largest_batch_size=sizes[-1],
        seconds=f"{time.perf_counter() - begin:.1f}",
    )
    return True


def powers_of_two(largest: int) -> list[int]:
    """Return the powers of two from 1 up to a batch size."""
    return [2**power for power in range(largest.bit_length())]


async def _set(tokenizer_manager: Any, *, on: int) -> None:
    from sglang.srt.managers.io_struct import SetInternalStateReq

    request = SetInternalStateReq(server_args={"dynspec_warm_up": on})
    if not all(await tokenizer_manager.set_internal_state(request)):
        raise RuntimeError("expected the scheduler to take dynspec_warm_up; it refused")


async def _generate(tokenizer_manager: Any, size: int, depths: list[int]) -> None:
    from sglang.srt.managers.io_struct import GenerateReqInput

    # At most this many tokens in a turn: one a plain round, depth + 1 a speculative one.
    tokens = sum(1 + depth + 1 for depth in depths if depth)
    request = GenerateReqInput(
        input_ids=[
            [1 + (number + place) % 64 for place in range(_PROMPT)] for number in range(size)
        ],
        sampling_params={
            "temperature": 0.0,
            "max_new_tokens": _TURNS * tokens + 1,
            "ignore_eos": True,
        },
    )
    async for _ in tokenizer_manager.generate_request(request, None):
        pass
