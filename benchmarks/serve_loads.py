"""
Serving loads on one GPU, by the clock: requests that come and go, in several serving modes.

    python benchmarks/serve_loads.py --loads closed:32 ramp:1-200 --json results.json

Every mode is an engine of its own process, all of them alive at once so that repeats interleave;
``plain_again`` is a second plain server and gives the noise floor. ``ours`` is one engine with this
plugin whose depth is forced: to plain, and to each candidate. ``auto`` decides for itself from
cold, ``auto_warm`` after its warm-up; ``fixed_<depth>`` and ``stock`` are SGLang's own speculation.

A row per load: tokens per second of each mode over its measured part, the median of the repeats.
An answer's tokens count evenly over the time that it took. What is there already is not measured
again, so that a run that was cut can be told to go on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pairs
from engines import DECIDING, Child, serve, unknown_engines
from loads import parse

from sglang_dynspec.files import write_whole

#: Share of a closed loop's time that is left out at its beginning, while it fills up.
_FILLING = 0.2


def modes(options: argparse.Namespace) -> dict[str, tuple[str, int | None]]:
    """Mode -> engine and forced depth."""
    found: dict[str, tuple[str, int | None]] = {}
    for engine in options.engines:
        if engine != "ours":
            found[engine] = (engine, None)
            continue
        for depth in options.depths:
            found[f"forced_{depth}" if depth else "forced_plain"] = (engine, depth)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what is missing in the results."""
    results = read(options)
    Path(options.logs).mkdir(parents=True, exist_ok=True)
    pair = pairs.chosen(options)
    children = {name: Child(name, options, sys.argv[1:], pair) for name in options.engines}
    for name, child in children.items():
        print(f"{name} up in {child.answer()['up']:.0f} s", flush=True)
    for repeat in range(options.repeats):
        for load in options.loads:
            samples = results["samples"].setdefault(load, {})
            for mode, (engine, depth) in modes(options).items():
                if len(samples.setdefault(mode, [])) > repeat:
                    continue
                child = children[engine]
                if depth is not None:
                    child.ask("set", dynspec_force_depth=depth)
                seconds = options.seconds
                start = _FILLING * seconds if load.startswith("closed") else 0.0
                done = child.ask(
                    "load",
                    name=load,
                    seconds=seconds,
                    start=start,
                    seed=repeat,
                    prompt=options.prompt,
                    tokens=options.tokens,
                )
                samples[mode].append(done)
                print(f"{load} {mode}: {done['tok_s']} tokens/s", flush=True)
                results["rows"] = [row(each, results) for each in results["samples"]]
                write_whole(Path(options.json), json.dumps(results, indent=1))
    for child in children.values():
        child.stop()
    return results


def read(options: argparse.Namespace) -> dict[str, Any]:
    """Read results of the same conditions, or begin new ones."""
    conditions = {
        name: getattr(options, name)
        for name in ("pair", "accepted", "prompt", "tokens", "seconds", "backend", "depths")
    }
    path = Path(options.json)
    if path.exists():
        results = json.loads(path.read_text())
        if results["conditions"] == json.loads(json.dumps(conditions)):
            return dict(results)
        sys.exit(
            f"expected results of {conditions} in {path}; found others; name another file (--json)"
        )
    return {"conditions": conditions, "samples": {}, "rows": []}


def row(load: str, results: dict[str, Any]) -> dict[str, Any]:
    """Sum up a load: medians of its repeats, and how the modes compare."""
    medians = {
        mode: statistics.median(each["tok_s"] for each in done)
        for mode, done in results["samples"][load].items()
        if done
    }
    found: dict[str, Any] = {"load": load, **results["conditions"]}
    found |= {f"{mode}_tok_s": rate for mode, rate in medians.items()}
    plain = [medians[name] for name in ("plain", "plain_again") if name in medians]
    fixed = [rate for mode, rate in medians.items() if mode.startswith(("forced_", "fixed_"))]
    if len(plain) == 2 and all(plain):
        found["noise"] = round(abs(plain[0] - plain[1]) / min(plain), 4)
    base = sum(plain) / len(plain) if plain else None
    deciding = [name for name in sorted(DECIDING) if name in medians]
    if base and "forced_plain" in medians:
        found["forced_plain_over_plain"] = round(medians["forced_plain"] / base, 4)
    for name in deciding:
        kind = name.replace("auto", "goodput")
        if base:
            found[f"{kind}_over_plain"] = round(medians[name] / base, 4)
        best = max([*fixed, *([base] if base else [])], default=None)
        if best:
            found[f"{kind}_over_best"] = round(medians[name] / best, 4)
        if "stock" in medians:
            found[f"{kind}_over_stock"] = round(medians[name] / medians["stock"], 4)
    return found


def faults(options: argparse.Namespace) -> list[str]:
    """List what is wrong with the options."""
    found = [*unknown_engines(options.engines)]
    for load in options.loads:
        try:
            parse(load, options.seconds)
        except ValueError as error:
            found.append(str(error))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", metavar="ENGINE", help=argparse.SUPPRESS)
    parser.add_argument("--engines", nargs="+", default=["plain", "plain_again", "ours", "auto"])
    parser.add_argument("--loads", nargs="+", default=["closed:32", "closed:96", "closed:200"])
    parser.add_argument("--seconds", type=float, default=20.0, help="of a load")
    parser.add_argument("--pair", choices=pairs.PAIRS, default="random")
    parser.add_argument("--head", type=Path, help="the real pair's head, where it is not its own")
    parser.add_argument("--kinds", nargs="+", help="of requests; all by default")
    parser.add_argument("--prompt", type=int, nargs=2, default=[48, 208], help="shortest, longest")
    parser.add_argument(
        "--tokens", type=int, nargs=3, default=[24, 122, 384], help="fewest, median, most"
    )
    parser.add_argument("--backend", default="fa3")
    parser.add_argument("--max-batch", type=int, default=256)
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 1, 3])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--accepted", type=float, default=1.6)
    parser.add_argument("--tiny", action="store_true", help="rehearse on the CPU, tiny models")
    parser.add_argument("--logs", default=".", help="directory for the engines' logs")
    parser.add_argument("--json", default="serve_loads.json")
    options = parser.parse_args()
    for fault in faults(options):
        parser.error(fault)
    options.logs = str(Path(options.logs).resolve())
    if options.serve:
        serve(options.serve, options)
        return
    results = measure(options)
    print(json.dumps(results["rows"], indent=1))


if __name__ == "__main__":
    main()
