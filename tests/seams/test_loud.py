"""
Failures of the plugin in a server that asks for it: a status, one line, nothing silent.

SGLang logs what a plugin raises and starts without it; each fault here is put in place by a
`sitecustomize` or a broken module on PYTHONPATH, so that the shipped code needs no switch for it.
"""

import os
import textwrap
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.seams.harness import ERROR, Run, clean_environment, run

pytestmark = pytest.mark.slow

#: Fault -> modules that cause it.
FAULTS = {
    "import failure": {"pluggy": 'raise ImportError("broken on purpose")'},
    "exception in load": {
        "sitecustomize": """
            from sglang_dynspec_hooks.seams import activation
            def activate(role, *, is_enabled):
                raise RuntimeError("broken on purpose")
            activation.activate = activate
        """
    },
    "missing seam": {
        "sitecustomize": """
            import dataclasses
            from sglang_dynspec_hooks.seams import run_batch
            target = run_batch.SEAM.target.replace("run_batch", "run_round")
            run_batch.SEAM = dataclasses.replace(run_batch.SEAM, target=target)
        """
    },
    "changed signature": {
        "sitecustomize": """
            import dataclasses
            from sglang_dynspec_hooks.seams import result
            result.SEAM = dataclasses.replace(result.SEAM, parameters=("self", "batch"))
        """
    },
    "unsupported version": {
        "sitecustomize": """
            from importlib import metadata
            installed = metadata.version
            metadata.version = lambda name: "0.5.24" if name == "sglang" else installed(name)
        """
    },
    "none": {},
}

#: Fault -> how the one line begins, and what it tells to do.
MESSAGES = {
    "import failure": (
        "expected sglang-dynspec to load and run; found ImportError: broken on purpose; ",
        "run `dynspec doctor`, reinstall it, or start without --enable-plugin dynspec",
    ),
    "exception in load": (
        "expected sglang-dynspec to load and run; found RuntimeError: broken on purpose; ",
        "run `dynspec doctor`, reinstall it, or start without --enable-plugin dynspec",
    ),
    "missing seam": (
        (
            "expected sglang.srt.managers.scheduler.Scheduler.run_round(self, batch, "
            "pp_proxy_tensors); found no function run_round in sglang/srt/managers/scheduler.py "
            "in sglang 0.5.23; "
        ),
        "install a supported SGLang version; `dynspec doctor` lists every seam",
    ),
    "changed signature": (
        (
            "expected sglang.srt.managers.scheduler_components.batch_result_processor."
            "SchedulerBatchResultProcessor.process_batch_result_decode(self, batch); found "
            "sglang.srt.managers.scheduler_components.batch_result_processor."
            "SchedulerBatchResultProcessor.process_batch_result_decode(self, batch, result) "
            "in sglang 0.5.23; "
        ),
        "install a supported SGLang version; `dynspec doctor` lists every seam",
    ),
    "unsupported version": (
        "expected sglang==0.5.23; found sglang 0.5.24; ",
        "install a supported version, or set SGLANG_DYNSPEC_ALLOW_VERSION=1 to try this one",
    ),
}

#: What the `sglang` command runs.
SERVE = "from sglang.cli.main import main; main()"

#: An engine in a user's own program, which must survive what the engine refuses.
PROGRAM = """
import sglang_dynspec, sys, warnings
warnings.simplefilter("ignore")
if __name__ == "__main__":
    try:
        sglang_dynspec.enable(policy="no_such_policy")
        import sglang
        sglang.Engine(
            model_path=sys.argv[1], device="cpu", attention_backend="torch_native",
            speculative_algorithm="STANDALONE", speculative_draft_model_path=sys.argv[1],
        )
    except ValueError as error:
        print(type(error).__name__, error)
"""

#: A server that does not ask for us, as far as the parsed command line.
BYSTANDER = """
import sys, warnings
warnings.simplefilter("ignore")
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args
print("parsed", prepare_server_args(sys.argv[1:]).model_path)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, checkpoints: Path) -> dict[str, Future[Run]]:
    """Every process of this module, two at a time: each takes seconds to import SGLang."""
    environs = {}
    for fault, modules in FAULTS.items():
        folder = tmp_path_factory.mktemp("fault")
        for name, source in modules.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        environs[fault] = clean_environment(PYTHONPATH=f"{folder}{os.pathsep}{Path.cwd()}")
    model = str(checkpoints / "llama")
    server = ["-m", "sglang.launch_server", "--model-path", model, "--device", "cpu"]
    with ThreadPoolExecutor(2) as pool:
        futures = {
            fault: pool.submit(run, *server, "--enable-plugin", "dynspec", environ=environs[fault])
            for fault in MESSAGES
        }
        futures["unknown policy"] = pool.submit(
            run,
            *("-c", SERVE, "serve", *server[2:], "--speculative-algorithm", "STANDALONE"),
            *("--speculative-draft-model-path", model, "--attention-backend", "torch_native"),
            *("--enable-plugin", "dynspec", "--dynspec-policy", "no_such_policy"),
            environ=environs["none"],
        )
        futures["engine"] = pool.submit(run, "-c", PROGRAM, model, environ=environs["none"])
        futures["bystander"] = pool.submit(
            run, "-c", BYSTANDER, "--model-path", model, environ=environs["import failure"]
        )
    return futures


@pytest.mark.parametrize("fault", MESSAGES)
def test_a_server_stops(runs: dict[str, Future[Run]], fault: str) -> None:
    done = runs[fault].result()
    assert done.status == 78
    assert done.errors == ["".join(MESSAGES[fault])]
    assert "Traceback" not in done.stderr


def test_an_unknown_policy_stops_sglang_serve(runs: dict[str, Future[Run]]) -> None:
    done = runs["unknown policy"].result()
    assert done.status == 78
    (error,) = done.errors
    assert error.startswith(
        "expected a policy's name, or package.module:Class; found 'no_such_policy'; "
    )
    assert "Traceback" not in done.stderr


def test_a_program_survives_its_engine(runs: dict[str, Future[Run]]) -> None:
    done = runs["engine"].result()
    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(
        "ConfigError expected a policy's name, or package.module:Class; found 'no_such_policy'; "
    )
    assert ERROR not in done.stderr


def test_a_server_that_does_not_ask_is_not_harmed(
    runs: dict[str, Future[Run]], checkpoints: Path
) -> None:
    done = runs["bystander"].result()
    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"parsed {checkpoints / 'llama'}"
    assert "flags_not_added error=ImportError('broken on purpose')" in done.stderr
    assert ERROR not in done.stderr
