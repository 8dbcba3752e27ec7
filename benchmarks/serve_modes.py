"""
Decode throughput of serving modes on one GPU, at equal real batch, interleaved.

    python benchmarks/serve_modes.py --json results.json

Every mode is an engine of its own process, all of them alive at once so that repeats interleave:
``plain`` and ``plain_again`` are SGLang without speculation, twice, which gives the noise floor;
``ours`` is one engine with this plugin, whose depth is forced and whose upkeep window is set while
it runs. Weights are random with the shapes of Llama-3.1-8B and an EAGLE3 head, which is fine for
speed; ``SGLANG_SIMULATE_ACC_LEN`` fixes the mean accepted length of speculative rounds.

A figure is the cadence of one request's tokens while C requests decode: the time from its token
``--first`` to its token ``--last``, once all C are in the batch. Prefill is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shapes import HEAD, TARGET

#: Engines by name.
ENGINES = ("plain", "plain_again", "ours")
PROMPT = 128


def engine_arguments(name: str, backend: str, max_batch: int, deepest: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model_path": model_directory("target", TARGET),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "attention_backend": backend,
        "sampling_backend": "pytorch",
        # All engines share the GPU: sized by tokens, not by what is free.
        "mem_fraction_static": 0.9,
        "max_total_tokens": max_batch * 400 + 4096,
        "max_running_requests": max_batch,
        "cuda_graph_max_bs_decode": max_batch,
        "context_length": 8192,
        "disable_radix_cache": True,
        "log_level": "info",
        "random_seed": 1,
        "grammar_backend": "none",
    }
    if name == "ours":
        arguments |= {
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": model_directory("draft", HEAD),
            "speculative_draft_load_format": "dummy",
            "speculative_num_steps": deepest,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": deepest + 1,
        }
    return arguments


def model_directory(name: str, config: dict[str, Any]) -> str:
    path = Path(tempfile.gettempdir()) / f"serve_modes_{name}"
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


# --- one engine, in its own process: a JSON line in, a JSON line out


def serve(name: str, backend: str, max_batch: int, depths: list[int]) -> None:
    """Answer measuring requests on stdin until it ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # SGLang may print
    if name == "ours":
        import sglang_dynspec

        sglang_dynspec.enable(policy="never", depths=depths, upkeep_window=max(depths) + 1)
    import sglang

    begin = time.time()
    engine = sglang.Engine(**engine_arguments(name, backend, max_batch, max(depths)))
    loop = asyncio.get_event_loop()
    print(json.dumps({"up": time.time() - begin}), file=out)
    for line in sys.stdin:
        request = json.loads(line)
        if settings := request.get("set"):
            answer = loop.run_until_complete(set_state(engine, settings))
        elif request.get("state"):
            answer = loop.run_until_complete(get_state(engine))
        else:
            answer = loop.run_until_complete(measure(engine, **request))
        print(json.dumps(answer), file=out)
    engine.shutdown()


async def set_state(engine: Any, settings: dict[str, float]) -> dict[str, Any]:
    from sglang.srt.managers.io_struct import SetInternalStateReq

    done = await engine.tokenizer_manager.set_internal_state(
        SetInternalStateReq(server_args=settings)
    )
    return {"updated": all(done)}


async def get_state(engine: Any) -> dict[str, Any]:
    state = (await engine.tokenizer_manager.get_internal_state())[0]
    return {"dynspec": state.get("dynspec"), "memory": state.get("memory_usage")}


async def measure(engine: Any, concurrency: int, first: int, last: int) -> dict[str, float]:
    """Seconds per token of a streamed request while ``concurrency`` requests decode."""
    draw = random.Random(concurrency)
    prompts = [[draw.randrange(1000, 100000) for _ in range(PROMPT)] for _ in range(concurrency)]
    params = {"temperature": 0, "max_new_tokens": last + 16, "ignore_eos": True}
    begin = time.perf_counter()

    async def crowd() -> None:
        if concurrency > 1:
            await engine.async_generate(input_ids=prompts[1:], sampling_params=params)

    async def probe() -> tuple[float, float, int, int]:
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
        return start, end, at_start, at_end

    _, (start, end, at_start, at_end) = await asyncio.gather(crowd(), probe())
    period = (end - start) / (at_end - at_start)
    return {
        "tok_s": concurrency / period,
        "period_ms": 1e3 * period,
        "wall_s": time.perf_counter() - begin,
    }


# --- the comparison


class Child:
    """An engine's process."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name = name
        environment = dict(os.environ, SGLANG_SIMULATE_ACC_LEN=str(options.accepted))
        log = Path(options.logs, f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, *forwarded(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"engine {self.name} died; read its log")
        return json.loads(line)


def forwarded(options: argparse.Namespace) -> list[str]:
    depths = [str(depth) for depth in options.depths]
    return [
        "--backend",
        options.backend,
        "--max-batch",
        str(options.max_batch),
        "--depths",
        *depths,
    ]


def modes(depths: list[int]) -> dict[str, tuple[str, int | None, int | None]]:
    """Mode -> engine, forced depth, upkeep window (None: as it is)."""
    window = max(depths) + 1
    return {
        "plain": ("plain", None, None),
        "plain_again": ("plain_again", None, None),
        "forced_plain_cold": ("ours", 0, 0),
        "forced_plain": ("ours", 0, window),
        **{f"depth_{depth}": ("ours", depth, window) for depth in depths if depth},
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    children = {name: Child(name, options) for name in ENGINES}
    for name, child in children.items():
        print(f"{name} up in {child.answer()['up']:.0f} s", flush=True)
    samples: dict[str, dict[int, list[float]]] = {mode: {} for mode in modes(options.depths)}
    for concurrency in options.concurrency:
        for repeat in range(options.repeats + 1):
            for mode, (name, depth, window) in modes(options.depths).items():
                child = children[name]
                if depth is not None:
                    child.ask(set={"dynspec_force_depth": depth, "dynspec_upkeep_window": window})
                done = child.ask(concurrency=concurrency, first=options.first, last=options.last)
                if repeat:  # the first is a warm-up
                    samples[mode].setdefault(concurrency, []).append(done["tok_s"])
        print(row(concurrency, samples), flush=True)
    states = {name: child.ask(state=True) for name, child in children.items()}
    for child in children.values():
        child.process.stdin.close()
        child.process.terminate()
    return {
        "what": __doc__.strip().splitlines()[0],
        "weights": "random; shapes of Llama-3.1-8B and an EAGLE3 head",
        "simulated_accepted_length": options.accepted,
        "backend": options.backend,
        "prompt_tokens": PROMPT,
        "cadence_tokens": [options.first, options.last],
        "depths": options.depths,
        "off_tax": off_tax(samples, max(options.depths) + 1),
        "tok_s": samples,
        "states": states,
    }


def off_tax(samples: dict[str, dict[int, list[float]]], upkeep_window: int) -> list[dict[str, Any]]:
    """Rows of forced plain against the plain server, with the noise floor beside each."""
    rows = []
    for concurrency, plain in samples["plain"].items():
        again = samples["plain_again"][concurrency]
        noise = max(
            abs(statistics.median(again) / statistics.median(plain) - 1),
            spread(plain),
            spread(again),
        )
        base = statistics.median(plain + again)
        for mode, window in (("forced_plain_cold", 0), ("forced_plain", upkeep_window)):
            figure = statistics.median(samples[mode][concurrency])
            rows.append(
                {
                    "concurrency": concurrency,
                    "plain_tok_s": round(base, 1),
                    "forced_plain_tok_s": round(figure, 1),
                    "ratio": round(figure / base, 4),
                    "noise": round(noise, 4),
                    "upkeep_window": window,
                }
            )
    return rows


def spread(values: list[float]) -> float:
    """Half the distance between the quartiles, relative to the median."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)


def row(concurrency: int, samples: dict[str, dict[int, list[float]]]) -> str:
    medians = {mode: statistics.median(by[concurrency]) for mode, by in samples.items()}
    cells = "  ".join(f"{mode} {value:.0f}" for mode, value in medians.items())
    base = statistics.median(samples["plain"][concurrency] + samples["plain_again"][concurrency])
    return (
        f"C={concurrency}: {cells}  | again {medians['plain_again'] / medians['plain']:.4f} "
        f"cold/plain {medians['forced_plain_cold'] / base:.4f} "
        f"warm/plain {medians['forced_plain'] / base:.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="ENGINE", help=argparse.SUPPRESS)
    parser.add_argument("--backend", default="fa3")
    parser.add_argument("--max-batch", type=int, default=256)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 1, 3])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--accepted", type=float, default=2.6)
    parser.add_argument("--first", type=int, default=40)
    parser.add_argument("--last", type=int, default=160)
    parser.add_argument("--logs", default=".")
    parser.add_argument("--json", default="serve_modes.json")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.backend, options.max_batch, options.depths)
        return
    results = compare(options)
    Path(options.json).write_text(json.dumps(results, indent=1))
    print(f"{'C':>4} {'plain':>9} {'forced':>9} {'ratio':>7} {'noise':>7} window")
    for each in results["off_tax"]:
        print(
            f"{each['concurrency']:>4} {each['plain_tok_s']:>9} {each['forced_plain_tok_s']:>9} "
            f"{each['ratio']:>7} {each['noise']:>7} {each['upkeep_window']}"
        )


if __name__ == "__main__":
    main()
