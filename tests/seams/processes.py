"""
A launcher and children of it, each of which reports the hooks that SGLang has in it.

Run as `python -m tests.seams.processes NAME ...`; a name is `launcher`, or one of the functions
below, which SGLang's own entry functions lend theirs. Prints one JSON object.
"""

import json
import multiprocessing
import os
import sys
import warnings
from multiprocessing.connection import Connection

#: Seconds a child may take; it imports SGLang's scheduler.
REPLY_S = 150


def report() -> dict:
    """Load SGLang's plugins and say which hooks are registered and which are in force."""
    warnings.simplefilter("ignore")
    from sglang.srt.arg_groups.resolution_hooks import _HOOKS
    from sglang.srt.plugins import load_plugins
    from sglang.srt.plugins.hook_registry import HookRegistry

    load_plugins()
    ours = [
        target
        for target, hooks in HookRegistry._hooks.items()
        if any(hook.__module__.startswith("sglang_dynspec_hooks.") for _, hook, _ in hooks)
    ]
    return {
        "registered": sorted(ours),
        "applied": sorted(HookRegistry._patched.intersection(ours)),
        "steps": sorted(_HOOKS),
        "scheduler_imported": "sglang.srt.managers.scheduler" in sys.modules,
    }


def run_scheduler_process(pipe: Connection) -> None:
    """What SGLang calls in a scheduler process."""
    answer = report()
    if answer["registered"]:
        answer["confirmed"] = confirm()
    send(pipe, answer)


def run_detokenizer_process(pipe: Connection) -> None:
    """What SGLang calls in the detokenizer."""
    send(pipe, report())


def wrapped_scheduler_process(pipe: Connection) -> None:
    """What a user may hand to SGLang instead of its own function."""
    run_scheduler_process(pipe)


def some_other_process(pipe: Connection) -> None:
    """What no version of SGLang calls."""
    send(pipe, report())


def send(pipe: Connection, answer: dict) -> None:
    """Answer and end at once: what SGLang imports takes its time to go."""
    pipe.send(answer)
    pipe.close()
    os._exit(0)


def confirm() -> list[str]:
    """Confirm the scheduler's seams; then take one away and confirm again."""
    from sglang.srt.managers.scheduler import Scheduler

    from sglang_dynspec import SeamError
    from sglang_dynspec_hooks import seams
    from sglang_dynspec_hooks.contract.seam import confirm_wrapped

    answers = []
    for _ in range(2):
        try:
            confirm_wrapped(seams.scheduler())
            answers.append("all")
        except SeamError as error:
            answers.append(str(error))
        Scheduler.run_batch = Scheduler.run_batch.__wrapped__
    return answers


def main(names: list[str]) -> None:
    context = multiprocessing.get_context("spawn")
    children = []
    for name in names:
        if name != "launcher":
            here, there = context.Pipe()
            child = context.Process(target=globals()[name], args=(there,))
            child.start()
            children.append((name, child, here))
    answers = {"launcher": report()} if "launcher" in names else {}
    for name, child, pipe in children:
        answers[name] = pipe.recv() if pipe.poll(REPLY_S) else None
        child.join()
    print("ANSWER " + json.dumps(answers), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
