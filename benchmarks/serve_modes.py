"""
Throughput of serving modes on one GPU, at equal real batch, interleaved.

    python benchmarks/serve_modes.py --json results.json

Every mode is an engine of its own process, all of them alive at once so that repeats interleave:
``plain`` and ``plain_again`` are SGLang without speculation, twice, which gives the noise floor;
``ours`` is one engine with this plugin, whose depth is forced and whose upkeep window is set while
it runs. ``--engines`` adds this plugin deciding for itself (``auto``; ``auto_warm`` after its
warm-up), and SGLang's own speculation at fixed depths (``fixed_1``) or with its adaptive option
(``stock``; ``stock_off`` holds it at zero steps, ``stock_off_cold`` also skips its draft-extend).
``--pair`` has the shapes of Llama-3.1-8B and an EAGLE3 head: ``random`` weights, whose accepted
length ``SGLANG_SIMULATE_ACC_LEN`` fixes, or the ``known`` pair, whose drafts and answers are known.

Decoding: the cadence of one request's tokens while C requests decode, from its token ``--first`` to
its token ``--last``, once all C are in the batch. Prefill is measured apart: the time to the first
token of one long prompt, and prompt tokens per second of a batch of them. ``--switching`` measures
what a round costs that switches between plain and speculative, against its neighbours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pairs
from engines import DECIDING, PROMPT, Child, serve, unknown_engines
from switching import STRETCH, switch_costs

from sglang_dynspec.files import write_whole
from sglang_dynspec_cpu import scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

Samples = dict[str, dict[int, list[float]]]

#: Switches wanted per concurrency.
_SWITCHES = 200


def modes(options: argparse.Namespace) -> dict[str, tuple[str, int | None, int | None]]:
    """Mode -> engine, forced depth, upkeep window (None: as it is)."""
    window = max(options.depths) + 1
    found: dict[str, tuple[str, int | None, int | None]] = {}
    for engine in options.engines:
        if engine != "ours":
            found[engine] = (engine, None, None)
            continue
        found["forced_plain_cold"] = (engine, 0, 0)
        found["forced_plain"] = (engine, 0, window)
        for depth in options.depths:
            if depth and not options.off_tax_only:
                found[f"depth_{depth}"] = (engine, depth, window)
    return found


def compare(options: argparse.Namespace) -> dict[str, Any]:
    Path(options.logs).mkdir(parents=True, exist_ok=True)
    pair = pairs.chosen(options)
    children = {name: Child(name, options, sys.argv[1:], pair) for name in options.engines}
    for name, child in children.items():
        print(f"{name} up in {child.answer()['up']:.0f} s", flush=True)
    while options.wait_for and not Path(options.wait_for).exists():
        time.sleep(0.5)
    prefill = prefill_figures(children, options)
    samples: Samples = {mode: {} for mode in modes(options)}
    differing = dict.fromkeys(samples, 0)
    chosen: dict[int, dict[str, dict[str, int]]] = {}
    before = depths_run(children)
    for concurrency in options.concurrency:
        for repeat in range(options.repeats + 1):
            for mode, (name, depth, window) in modes(options).items():
                child = children[name]
                if depth is not None:
                    child.ask("set", dynspec_force_depth=depth, dynspec_upkeep_window=window)
                done = child.ask(
                    "decode", concurrency=concurrency, first=options.first, last=options.last
                )
                differing[mode] += done["differing"]
                if repeat:  # the first is a warm-up
                    samples[mode].setdefault(concurrency, []).append(done["tok_s"])
        after = depths_run(children)
        chosen[concurrency] = {
            name: {depth: rounds - before[name].get(depth, 0) for depth, rounds in depths.items()}
            for name, depths in after.items()
        }
        before = after
        print(row(concurrency, samples), chosen[concurrency] or "", flush=True)
        found = {**results(options, pair, samples, prefill), "auto_rounds": chosen}
        found["differing_tokens"] = differing if pair.answer else None
        save(found, options)
    switching: list[dict[str, Any]] = []
    for concurrency in options.switching:
        switching.append(switching_figures(children["ours"], concurrency, options))
        print(f"switching: {switching[-1]}", flush=True)
        save({**found, "switching": switching}, options)
    states = {name: child.ask("state") for name, child in children.items()}
    for child in children.values():
        child.stop()
    return {**found, "switching": switching, "states": states}


def depths_run(children: dict[str, Child]) -> dict[str, dict[str, int]]:
    """Rounds that each engine which decides for itself has run, by depth."""
    found = {}
    for name in children.keys() & DECIDING:
        by_depth = children[name].ask("state")["dynspec"]["by_depth"]
        found[name] = {depth: figures["rounds"] for depth, figures in by_depth.items()}
    return found


def results(
    options: argparse.Namespace, pair: pairs.Pair, samples: Samples, prefill: dict[str, Any]
) -> dict[str, Any]:
    """What is known so far: a run that is cut short keeps what it has measured."""
    return {
        "what": __doc__.strip().splitlines()[0],
        "weights": pair.weights,
        "acceptance": pair.acceptance,
        "backend": options.backend,
        "prompt_tokens": PROMPT,
        "cadence_tokens": [options.first, options.last],
        "depths": options.depths,
        "off_tax": off_tax(samples, max(options.depths) + 1),
        "prefill": prefill,
        "tok_s": samples,
    }


def save(found: dict[str, Any], options: argparse.Namespace) -> None:
    write_whole(Path(options.json), json.dumps(found, indent=1))


def prefill_figures(
    children: dict[str, Child], options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Medians over interleaved repeats, with the spread of each."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in children}
    for repeat in range(options.repeats + 1):
        for name, child in children.items():
            done = child.ask("prefill")
            if repeat:
                taken[name].append(done)
    figures = {}
    for name, done in taken.items():
        figures[name] = {
            **{key: statistics.median(each[key] for each in done) for key in done[0]},
            **{f"{key}_spread": spread([each[key] for each in done]) for key in done[0]},
        }
        print(
            f"{name}: ttft {figures[name]['ttft_ms']:.2f} ms, "
            f"prefill {figures[name]['prefill_tok_s']:.0f} tok/s",
            flush=True,
        )
    return figures


def switching_figures(ours: Child, concurrency: int, options: argparse.Namespace) -> dict[str, Any]:
    """Excess of the rounds around switches over steady rounds, and what upkeep passes take."""
    deepest = max(options.depths)
    ours.ask("set", dynspec_force_depth=-1, dynspec_upkeep_window=deepest + 1)
    # A script that is written anew starts the report's rounds in its first phase.
    play(options, {"mode": "cycle", "runs": [[deepest, STRETCH], [0, STRETCH]]})
    costs: dict[str, Any] = {"switches": 0}
    for _ in range(16):
        ours.ask("decode", concurrency=concurrency, first=options.first, last=270)
        report = json.loads(Path(options.logs, "timed.json").read_text())
        costs = switch_costs(report, concurrency)
        if costs["switches"] >= _SWITCHES:
            break
    play(options, {"mode": "fixed", "depth": 0})
    ours.ask("decode", concurrency=concurrency, first=options.first, last=270)
    report = json.loads(Path(options.logs, "timed.json").read_text())
    Path(options.logs, f"timed_{concurrency}.json").write_text(json.dumps(report))
    medians = {
        key: {
            name: round(statistics.median(times[-_SWITCHES:]), 4)
            for name, times in report[key].items()
            if times
        }
        for key in ("pass_ms", "launch_ms")
    }
    return {"concurrency": concurrency, **costs, **medians}


def play(options: argparse.Namespace, script: dict[str, Any]) -> None:
    """Let the policy of ``ours`` play a script from its next round on."""
    scripted.write(Path(options.logs, "script.json"), script)


def off_tax(samples: Samples, upkeep_window: int) -> list[dict[str, Any]]:
    """Rows of forced plain against the plain server, with the noise floor beside each."""
    if "plain" not in samples or "forced_plain" not in samples:
        return []
    rows = []
    for concurrency, plain in samples["plain"].items():
        again = samples.get("plain_again", {}).get(concurrency, plain)
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


def row(concurrency: int, samples: Samples) -> str:
    medians = {mode: statistics.median(by[concurrency]) for mode, by in samples.items()}
    plain = medians.get("plain", float("nan"))
    cells = "  ".join(
        f"{mode} {value:.0f} ({value / plain:.3f})" for mode, value in medians.items()
    )
    return f"C={concurrency}: {cells}"


def faults(options: argparse.Namespace) -> Iterator[str]:
    """What is wrong with the options, before anything has been started."""
    if options.repeats < 2:
        yield f"expected 2 repeats or more, for their spread; found {options.repeats}"
    yield from unknown_engines(options.engines)
    largest = max(options.concurrency + options.switching)
    if largest > options.max_batch:
        yield f"expected no concurrency above --max-batch {options.max_batch}; found {largest}"
    if options.switching and "ours" not in options.engines:
        yield "expected the engine ours with --switching; found it missing from --engines"
    if not options.first < options.last:
        yield f"expected --first below --last; found {options.first} and {options.last}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", metavar="ENGINE", help=argparse.SUPPRESS)
    parser.add_argument("--engines", nargs="+", default=["plain", "plain_again", "ours"])
    parser.add_argument("--backend", default="fa3")
    parser.add_argument("--max-batch", type=int, default=256)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 1, 3])
    parser.add_argument("--repeats", type=int, default=5, help="at least 2")
    parser.add_argument("--pair", choices=pairs.PAIRS, default="random")
    parser.add_argument("--accepted", type=float, default=2.6, help="of the random pair")
    parser.add_argument("--kinds", nargs="+", help="of requests; all by default")
    parser.add_argument("--head", type=Path, help="the real pair's head, where it is not its own")
    parser.add_argument("--first", type=int, default=40)
    parser.add_argument("--last", type=int, default=160)
    parser.add_argument("--off-tax-only", action="store_true", help="leave our other depths out")
    parser.add_argument(
        "--switching", type=int, nargs="*", default=[], help="concurrencies for switching rounds"
    )
    parser.add_argument("--wait-for", metavar="FILE", help="measure once this file exists")
    parser.add_argument("--tiny", action="store_true", help="rehearse on the CPU, tiny models")
    parser.add_argument("--logs", default=".", help="directory for the engines' logs")
    parser.add_argument("--json", default="serve_modes.json")
    options = parser.parse_args()
    for fault in faults(options):
        parser.error(fault)
    options.logs = str(Path(options.logs).resolve())
    if options.serve:
        serve(options.serve, options)
        return
    found = compare(options)
    save(found, options)
    print(f"{'C':>4} {'plain':>9} {'forced':>9} {'ratio':>7} {'noise':>7} window")
    for each in found["off_tax"]:
        print(
            f"{each['concurrency']:>4} {each['plain_tok_s']:>9} {each['forced_plain_tok_s']:>9} "
            f"{each['ratio']:>7} {each['noise']:>7} {each['upkeep_window']}"
        )


if __name__ == "__main__":
    main()
