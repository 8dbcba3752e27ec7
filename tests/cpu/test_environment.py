"""What a process needs before it may import SGLang, and what it gets without."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sglang_dynspec_cpu import environment
from sglang_dynspec_cpu.entry import SWITCH


def run_python(code, env=None):
    """Run a script in a process of its own; return its status and the last line it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, SWITCH: "0", "PYTHONPATH": "", **(env or {})},
    )
    written = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, written[-1] if written else ""


def test_another_process_gets_the_shadow_first_and_keeps_its_own_settings():
    env = {"PYTHONPATH": os.pathsep.join(["/one", "/two"]), "OMP_NUM_THREADS": "7"}
    assert environment.prepare_environment(env) is env
    assert env["PYTHONPATH"].split(os.pathsep) == [str(environment.SHADOW), "/one", "/two"]
    assert env["OMP_NUM_THREADS"] == "7"
    assert env[SWITCH] == env["SGLANG_USE_CPU_ENGINE"] == env["TORCHDYNAMO_DISABLE"] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    again = dict(env)
    assert environment.prepare_environment(again) == env


def test_this_process_imports_the_shadow():
    status, said = run_python("""
        from sglang_dynspec_cpu.environment import prepare_environment
        prepare_environment()
        prepare_environment()
        import sys, sgl_kernel
        print(sgl_kernel.DYNSPEC_SHADOW, sys.path[0], sys.path.count(sys.path[0]))
    """)
    assert (status, said) == (0, f"True {environment.SHADOW} 1")


@pytest.mark.parametrize("name", ["sgl_kernel", "flashinfer"])
def test_a_process_that_is_not_prepared_never_finds_the_shadow(name):
    assert (environment.SHADOW / name / "__init__.py").is_file()
    status, said = run_python(f"""
        import importlib.util
        from sglang_dynspec_cpu.environment import SHADOW
        inside = (SHADOW / "{name}").relative_to(SHADOW.parents[1])
        found = []
        for dotted in ("{name}", ".".join(inside.parts)):
            try:
                spec = importlib.util.find_spec(dotted)
            except ModuleNotFoundError:
                continue
            if spec is not None and spec.origin.startswith(str(SHADOW)):
                found.append(dotted)
        print(found)
    """)
    assert (status, said) == (0, "[]")


def test_an_engine_gives_the_environment_back(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    # This process may run engines in other tests: do not look at what it has imported.
    monkeypatch.setattr(sys, "path", [str(environment.SHADOW), *sys.path])
    before = dict(os.environ)
    with environment.cpu_environment():
        assert os.environ[SWITCH] == os.environ["TORCHDYNAMO_DISABLE"] == "1"
    assert dict(os.environ) == before


@pytest.mark.parametrize("module", ["sglang", "sgl_kernel"])
def test_a_late_call_is_refused(module):
    status, said = run_python(f"""
        import sys, types
        sys.modules["{module}"] = types.ModuleType("{module}")
        sys.modules["{module}"].__file__ = "/wheel/{module}.py"
        from sglang_dynspec_cpu.environment import prepare_environment
        prepare_environment()
    """)
    assert status == 1
    assert said.startswith("RuntimeError: expected prepare_environment() before")
    assert f"found {module}" in said


def test_arguments_without_speculation_say_nothing_of_it():
    arguments = environment.engine_args(Path("/m"), overlap=False, radix_cache=False, page_size=16)
    assert not [name for name in arguments if name.startswith("speculative")]
    assert arguments["device"] == "cpu"
    assert arguments["dtype"] == "float32"
    assert arguments["attention_backend"] == "torch_native"
    assert arguments["disable_overlap_schedule"] is True
    assert arguments["disable_radix_cache"] is True
    assert arguments["page_size"] == 16
    assert "chunked_prefill_size" not in arguments


def test_a_depth_of_k_verifies_k_plus_1_tokens():
    arguments = environment.engine_args(
        Path("/m"), algorithm="EAGLE3", draft_path=Path("/d"), depth=5, chunked_prefill_size=64
    )
    assert arguments["speculative_num_steps"] == 5
    assert arguments["speculative_num_draft_tokens"] == 6
    assert arguments["speculative_eagle_topk"] == 1
    assert arguments["speculative_draft_model_path"] == "/d"
    assert arguments["chunked_prefill_size"] == 64


def test_an_algorithm_needs_a_draft():
    with pytest.raises(ValueError, match="expected draft_path with algorithm EAGLE3"):
        environment.engine_args(Path("/m"), algorithm="EAGLE3")


def test_the_command_line_says_the_same():
    arguments = {"model_path": "/m", "page_size": 4, "trust": True, "no": False, "unset": None}
    assert environment.command_line(arguments) == [
        "--model-path",
        "/m",
        "--page-size",
        "4",
        "--trust",
    ]
