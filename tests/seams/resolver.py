"""
A child process that resolves server arguments with this plugin loaded, one request a line.

Importing SGLang takes seconds, so the tests share one such process. It reads JSON objects from
standard input and answers each with one line that begins with `ANSWER`.
"""

import contextlib
import io
import json
import logging
import os
import pickle
import sys
import warnings

#: What a plain answer reports of the resolved arguments.
FIELDS = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "max_running_requests",
    "attention_backend",
    "enable_mixed_chunk",
)
ANSWER = "ANSWER "


def main() -> None:
    warnings.simplefilter("ignore")
    from sglang.srt.plugins import load_plugins

    load_plugins()
    for line in sys.stdin:
        print(ANSWER + json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201


def answer(request: dict) -> dict:
    """Build and resolve the arguments of a request; report what came of it."""
    if not request.get("keep_environ"):
        os.environ.pop("SGLANG_DYNSPEC", None)
    os.environ.update(request.get("environ", {}))
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return resolve(request)
    except SystemExit as error:
        return {"exit": error.code, "stderr": stderr.getvalue()}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"error": str(error), "kinds": kinds, "stderr": stderr.getvalue()}
    finally:
        for name in request.get("environ", {}):
            os.environ.pop(name, None)


def resolve(request: dict) -> dict:
    if "finder" in request:
        return find_in_config(request)
    if "finder_of_rule" in request:
        return find_in_defaults(request)
    if "settings" in request:
        return change(request["settings"])
    if "body" in request:
        return read_body(request["body"])
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.server_args import ServerArgs, prepare_server_args

    import sglang_dynspec

    if "enable" in request:
        sglang_dynspec.enable(**request["enable"])
    if request.get("disable"):
        sglang_dynspec.disable()
    if "argv" in request:
        record = prepare_server_args(request["argv"])
    else:
        record = ServerArgs(**request["kwargs"])
    exported = os.environ.get("SGLANG_DYNSPEC")
    try:
        record.resolve_once()
    except Exception:
        if request.get("again"):
            record.resolve_once()
        raise
    record.resolve_once()
    view = resolving_view(pickle.loads(pickle.dumps(record)))  # noqa: S301 - as a child gets it
    graphs = view.cuda_graph_config
    return {
        "resolved": {name: getattr(view, name) for name in FIELDS},
        "graph_max_bs": None if graphs is None else graphs.decode.max_bs,
        "config": json.loads(getattr(view, "_dynspec", None) or "null"),
        "exported": json.loads(exported or "null"),
    }


def find_in_config(request: dict) -> dict:
    """Run a finder on a target of which only the configuration exists."""
    from types import SimpleNamespace

    from sglang_dynspec_hooks.launch import finders as _finders

    config = SimpleNamespace(architectures=["DeepseekV32ForCausalLM"], **request["config"])
    # SGLang takes a configuration that is on the record already.
    view = SimpleNamespace(_model_config=SimpleNamespace(hf_config=config))
    return {"found": getattr(_finders, request["finder"])(view)}


def find_in_defaults(request: dict) -> dict:
    """Run the finder of a rule on arguments nobody gave."""
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.server_args import ServerArgs

    from sglang_dynspec_hooks.launch.refusals import RULES

    rule = next(rule for rule in RULES if rule.name == request["finder_of_rule"])
    return {"found": rule.found(resolving_view(ServerArgs(model_path=request["model_path"])))}


def change(settings: dict) -> dict:
    """Change settings of a scheduler with our handlers; report the answer, its log, our state."""
    from types import SimpleNamespace

    from sglang.srt.managers.io_struct import SetInternalStateReq
    from sglang.srt.managers.scheduler_components.internal_state import (
        SchedulerInternalStateController as Controller,
    )

    from sglang_dynspec_hooks.seams import update_handlers

    rounds = SimpleNamespace(forced=None, warm_up=SimpleNamespace(on=False))
    rounds.force = lambda depth: setattr(rounds, "forced", depth)
    upkeep = SimpleNamespace(width=4, window=4)
    upkeep.set_window = lambda window: setattr(upkeep, "window", window)
    scheduler = SimpleNamespace(
        max_running_requests=8,
        spec_algorithm=SimpleNamespace(
            is_none=lambda: False, is_dflash=lambda: False, is_dspark=lambda: False
        ),
        metrics_reporter=SimpleNamespace(spec_total_num_forward_ct=0),
        draft_worker=SimpleNamespace(
            dynspec=SimpleNamespace(config=SimpleNamespace(depths=(0, 1, 3)), rounds=rounds),
            upkeep=upkeep,
        ),
    )

    class Ours(Controller):
        def _update_handlers(self) -> dict:
            return update_handlers.handler(super()._update_handlers(), self)

    log = io.StringIO()
    handler = logging.StreamHandler(log)
    loggers = [logging.getLogger(Controller.__module__), logging.getLogger("sglang_dynspec")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        controller = Ours(scheduler, record_step_time=False)
        keys = list(controller._update_handlers())
        done = controller.set_internal_state(SetInternalStateReq(server_args=settings))
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    state = [rounds.forced, upkeep.window, rounds.warm_up.on]
    return {"updated": done.updated, "log": log.getvalue(), "state": state, "keys": keys}


def read_body(body: str) -> dict:
    """Read the body of a request as SGLang's HTTP server does, once our launcher hooks are in."""
    from typing import Annotated

    from fastapi import Body, FastAPI
    from fastapi.testclient import TestClient
    from sglang.srt.managers.io_struct import SetInternalStateReq

    from sglang_dynspec_hooks.seams import activation

    activation.enable_launcher()
    app = FastAPI()

    @app.post("/")
    async def read(obj: Annotated[SetInternalStateReq, Body()]) -> dict:
        return obj.server_args

    json_type = {"content-type": "application/json"}
    answer = TestClient(app).post("/", content=body, headers=json_type)
    return {"status": answer.status_code, "answer": answer.json()}


if __name__ == "__main__":
    main()
