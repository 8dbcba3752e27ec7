"""Which hooks each of SGLang's processes gets, enabled and not. Real processes, real SGLang."""

import json
from typing import Any

import pytest

from sglang_dynspec import Config
from sglang_dynspec_hooks import process, seams
from sglang_dynspec_hooks.contract.seam import Kind
from tests.seams.harness import clean_environment, run

IDLE = [
    "sglang.srt.server_args.ServerArgs.add_cli_args",
    "sglang.srt.server_args.ServerArgs.from_cli_args",
]
LAUNCHER = [
    "sglang.srt.managers.io_struct.BaseReq.__get_pydantic_core_schema__",
    *IDLE,
    "sglang.srt.server_args.ServerArgs.resolve_once",
]
SCHEDULER = sorted(hook.seam.target for hook in seams.scheduler())
STEPS = ["handle_speculative_decoding"]
NONE = {"registered": [], "applied": [], "steps": [], "scheduler_imported": False}


def answers(*names: str, **environ: str) -> dict[str, dict[str, object]]:
    done = run(
        "-m", "tests.seams.processes", *names, environ=clean_environment(**environ), timeout=200
    )
    assert done.status == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER "))
    result: dict[str, dict[str, object]] = json.loads(line.removeprefix("ANSWER "))
    return result


@pytest.mark.slow
def test_not_enabled() -> None:
    got = answers("launcher", "run_scheduler_process", "run_detokenizer_process")
    assert got["launcher"] == {**NONE, "registered": IDLE, "applied": IDLE}
    assert got["run_scheduler_process"] == NONE
    assert got["run_detokenizer_process"] == NONE


@pytest.mark.slow
def test_enabled() -> None:
    got = answers(
        "launcher",
        "wrapped_scheduler_process",
        "run_detokenizer_process",
        "some_other_process",
        SGLANG_DYNSPEC=Config().to_json(),
    )
    assert got["launcher"] == {
        **NONE,
        "registered": LAUNCHER,
        "applied": LAUNCHER,
        "steps": STEPS,
    }
    assert got["run_detokenizer_process"] == NONE
    scheduler = got["wrapped_scheduler_process"]
    assert scheduler["registered"] == scheduler["applied"] == SCHEDULER
    assert scheduler["steps"] == []
    assert scheduler["confirmed"] == [
        "all",
        (
            "expected sglang.srt.managers.scheduler.Scheduler.run_batch to be hooked (BEFORE); "
            "found the function without our handler; "
            "look for `Failed to apply hooks` in SGLang's log, and run `dynspec doctor`"
        ),
    ]
    # It may be a scheduler under a name of its own, or a launcher; it gets what both need.
    unknown = got["some_other_process"]
    assert unknown["registered"] == unknown["applied"] == sorted([*LAUNCHER, *SCHEDULER])
    assert unknown["steps"] == STEPS


@pytest.mark.parametrize(
    ("function", "role"),
    [
        ("run_scheduler_process", process.Role.SCHEDULER),
        ("run_detokenizer_process", process.Role.BYSTANDER),
        ("run_data_parallel_controller_process", process.Role.BYSTANDER),
        ("serve", process.Role.LAUNCHER),
    ],
)
def test_a_process_is_known_by_sglangs_function(function: str, role: process.Role) -> None:
    names: dict[str, Any] = {"present_role": process.present_role}
    source = f"def {function}(): return load()\ndef load(): return present_role()"
    exec(source, names)  # noqa: S102
    assert names[function]() is role


def test_the_two_hooks_are_those_of_the_seams() -> None:
    assert [hook.seam.target for hook in seams.idle()] == IDLE
    assert [hook.seam.kind for hook in seams.idle()] == [Kind.AFTER, Kind.AFTER]
