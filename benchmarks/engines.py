"""The engines that `serve_modes.py` compares, each in a process of its own."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loads
import pairs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

#: Prompt tokens of requests whose decoding is measured, and of those whose prefill is.
PROMPT, LONG_PROMPT = 128, 1024
#: Requests of the batch whose prefill is measured.
PREFILL_BATCH = 16

#: Engines with this plugin that decide for themselves, and all that have a name of their own.
DECIDING = {"auto", "auto_warm"}
NAMED = {"plain", "plain_again", "ours", *DECIDING, "stock", "stock_off", "stock_off_cold"}

#: SGLang's adaptive option as its documentation shows it, and one that never speculates.
STOCK = {
    "1": {"candidate_steps": [1, 3]},
    "8": {"candidate_steps": [1, 3]},
    "32": {"candidate_steps": [0, 1, 3]},
    "64": {"candidate_steps": [0, 1]},
    "128": {"candidate_steps": [0]},
}
STOCK_OFF = {"1": {"candidate_steps": [0]}, "100000": {"candidate_steps": [3]}}


def unknown_engines(names: Iterable[str]) -> Iterator[str]:
    """What is wrong with names of engines, before anything has been started."""
    for name in names:
        if name not in NAMED and not re.fullmatch(r"fixed_[1-9]\d*", name):
            known = ", ".join(sorted(NAMED))
            yield f"expected engines among {known} and fixed_<depth>; found {name}"


def engine_arguments(name: str, options: argparse.Namespace, pair: pairs.Pair) -> dict[str, Any]:
    """
    Arguments of one engine.

    Args:
        name: ``plain``, ``plain_again``, ``ours``, ``auto``, ``auto_warm``, ``fixed_<depth>``,
            ``stock``, ``stock_off`` or ``stock_off_cold``.
        options: The options of the benchmark.
        pair: What it serves.
    """
    arguments: dict[str, Any] = {
        "model_path": str(pair.target),
        "skip_tokenizer_init": True,
        "attention_backend": options.backend,
        "sampling_backend": "pytorch",
        # All engines share the GPU: sized by tokens, not by what is free.
        "mem_fraction_static": 0.9,
        "max_total_tokens": options.max_batch * 440 + 4096,
        "max_running_requests": options.max_batch,
        "cuda_graph_max_bs_decode": options.max_batch,
        "context_length": 8192,
        "disable_radix_cache": True,
        "log_level": "info",
        "random_seed": 1,
        "grammar_backend": "none",
        **pair.arguments,
    }
    if not name.startswith("plain"):
        steps = max(options.depths) if name in {"ours", *DECIDING} else 3
        if name.startswith("fixed_"):
            steps = int(name.removeprefix("fixed_"))
        arguments |= {
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": str(pair.draft),
            "speculative_num_steps": steps,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": steps + 1,
            **pair.draft_arguments,
        }
    if name.startswith("stock"):
        schedule = STOCK_OFF if name.startswith("stock_off") else STOCK
        path = Path(tempfile.mkdtemp()) / "adaptive.json"
        path.write_text(json.dumps(schedule))
        arguments |= {"speculative_adaptive": True, "speculative_adaptive_config": str(path)}
    if options.tiny:
        arguments = tiny(arguments, pair)
    return arguments


def tiny(arguments: dict[str, Any], pair: pairs.Pair) -> dict[str, Any]:
    """The same engine on the CPU with a tiny model, to rehearse the benchmark."""
    from sglang_dynspec_cpu.environment import engine_args

    speculates = "speculative_algorithm" in arguments
    ours = {
        key: value
        for key, value in arguments.items()
        if key.startswith("speculative_") and "model" not in key and "load" not in key
    }
    base = engine_args(
        pair.target,
        algorithm="EAGLE3" if speculates else None,
        draft_path=pair.draft if speculates else None,
    )
    return {**base, **ours, "max_running_requests": arguments["max_running_requests"]}


# --- in the engine's process: a JSON line in, a JSON line out


def serve(name: str, options: argparse.Namespace) -> None:
    """Answer requests on stdin until it ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # SGLang may print
    if options.tiny:
        from sglang_dynspec_cpu.environment import prepare_environment

        prepare_environment()
    if name == "stock_off_cold":
        os.environ["SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"] = "1"
    if name == "auto":
        # As the first server on a machine: what another engine compiled is not found.
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    if name in DECIDING:
        import sglang_dynspec

        sglang_dynspec.enable(depths=options.depths, trace=f"{options.logs}/{name}.jsonl")
    if name == "ours":
        import sglang_dynspec
        from sglang_dynspec_cpu.scripted import UNBOUNDED

        sglang_dynspec.enable(
            policy="switching:Timed",
            options={"path": f"{options.logs}/script.json", "report": f"{options.logs}/timed.json"},
            depths=options.depths,
            upkeep_window=max(options.depths) + 1,
            **UNBOUNDED,
        )
    import sglang

    begin = time.time()
    pair = pairs.chosen(options)
    engine = sglang.Engine(**engine_arguments(name, options, pair))
    loop = asyncio.get_event_loop()
    if name == "auto_warm":
        from sglang_dynspec_hooks.launch.warm_up import warm_up

        # An HTTP server runs it for `--warmups dynspec`.
        if not loop.run_until_complete(warm_up("null", engine.tokenizer_manager)):
            raise RuntimeError("the warm-up failed; read this engine's log")
    print(json.dumps({"up": time.time() - begin}), file=out)
    for line in sys.stdin:
        request = json.loads(line)
        handler = {
            "set": set_state,
            "state": get_state,
            "prefill": functools.partial(prefill, pair=pair),
            "decode": functools.partial(decode, pair=pair),
            "load": functools.partial(load, pair=pair),
        }
        answer = loop.run_until_complete(handler[request.pop("do")](engine, **request))
        print(json.dumps(answer), file=out)
    engine.shutdown()


async def set_state(engine: Any, **settings: float) -> dict[str, Any]:
    from sglang.srt.managers.io_struct import SetInternalStateReq

    done = await engine.tokenizer_manager.set_internal_state(
        SetInternalStateReq(server_args=settings)
    )
    if not all(done):
        raise RuntimeError(f"expected the engine to accept {settings}; found it refused")
    return {"updated": True}


async def get_state(engine: Any) -> dict[str, Any]:
    state = (await engine.tokenizer_manager.get_internal_state())[0]
    return {"dynspec": state.get("dynspec"), "memory": state.get("memory_usage")}


async def prefill(engine: Any, *, pair: pairs.Pair) -> dict[str, float]:
    """Seconds to the first token: of one long prompt alone, and of a batch of them."""
    params = {"temperature": 0, "max_new_tokens": 1}

    async def seconds(count: int) -> float:
        prompts = pair.prompts([LONG_PROMPT] * count, count)
        begin = time.perf_counter()
        await engine.async_generate(input_ids=prompts, sampling_params=params)
        return time.perf_counter() - begin

    alone = await seconds(1)
    return {
        "ttft_ms": 1e3 * alone,
        "prefill_tok_s": PREFILL_BATCH * LONG_PROMPT / await seconds(PREFILL_BATCH),
    }


async def decode(
    engine: Any, concurrency: int, first: int, last: int, *, pair: pairs.Pair
) -> dict[str, Any]:
    """Seconds per token of a streamed request while ``concurrency`` requests decode."""
    prompts = pair.prompts([PROMPT] * concurrency, concurrency)
    params = {"temperature": 0, "max_new_tokens": last + 16, "ignore_eos": True}
    begin = time.perf_counter()

    async def crowd() -> list[list[int]]:
        if concurrency == 1:
            return []
        done = await engine.async_generate(input_ids=prompts[1:], sampling_params=params)
        return [answer["output_ids"] for answer in done]

    async def probe() -> tuple[float, float, int, int, list[int]]:
        # After the crowd, so that the whole crowd is prefilled before the probe decodes.
        await asyncio.sleep(0.002)
        stream = await engine.async_generate(
            input_ids=prompts[0], sampling_params=params, stream=True
        )
        start = end = 0.0
        at_start = at_end = 0
        async for part in stream:
            now, tokens = time.perf_counter(), part["meta_info"]["completion_tokens"]
            if tokens >= first and not at_start:
                start, at_start = now, tokens
            if tokens <= last:
                end, at_end = now, tokens
        return start, end, at_start, at_end, part["output_ids"]

    answers, (start, end, at_start, at_end, own) = await asyncio.gather(crowd(), probe())
    period = (end - start) / (at_end - at_start)
    return {
        "tok_s": concurrency / period,
        "period_ms": 1e3 * period,
        "wall_s": time.perf_counter() - begin,
        "differing": pair.differing(prompts, [own, *answers], last + 16),
    }


async def load(
    engine: Any, *, pair: pairs.Pair, name: str, seconds: float, start: float, **drawn: Any
) -> dict[str, Any]:
    """Figures of a load; see `loads`."""
    wanted = loads.parse(name, seconds)
    served = await loads.drive(wanted, loads.requests(pair, **drawn), engine.async_generate)
    # A load of its own shape counts whole, to its last answer.
    end = seconds if start else max(whole for _, whole, _ in served.done)
    return served.summary(start, end)


# --- in the benchmark's process


class Child:
    """An engine's process."""

    def __init__(
        self, name: str, options: argparse.Namespace, arguments: list[str], pair: pairs.Pair
    ) -> None:
        self.name = name
        here = str(Path(__file__).parent)
        environment = {
            **os.environ,
            **pair.environment,
            "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        log = Path(options.logs, f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, sys.argv[0], *arguments, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        print(json.dumps({"do": do, **request}), file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"engine {self.name} died; read its log")
        return json.loads(line)

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.terminate()
