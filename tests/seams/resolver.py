"""
A child process that resolves server arguments with this plugin loaded, one request a line.

Importing SGLang takes seconds, so the tests share one such process. It reads JSON objects from
standard input and answers each with one line that begins with `ANSWER`.
"""

import contextlib
import io
import json
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


if __name__ == "__main__":
    main()
