"""
The wheel where it is used without an engine: the core works, and its tests pass against it.
"""

import json

import pytest

from tests.package.conftest import LightEnvironment

pytestmark = pytest.mark.package

_WHERE = """
import importlib.util, json, sglang_dynspec, sglang_dynspec_hooks
names = ("sglang", "torch", "hooks", "sgl_kernel")
print(json.dumps({
    "files": [sglang_dynspec.__file__, sglang_dynspec_hooks.__file__],
    "present": [name for name in names if importlib.util.find_spec(name)],
}))
"""


def test_it_is_the_wheel_that_is_tested(light: LightEnvironment) -> None:
    done = light.run("-c", _WHERE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    home = str(light.python.parents[1])
    assert all(path.startswith(home) and "site-packages" in path for path in found["files"])
    assert found["present"] == []


def test_the_cores_tests_pass_against_the_wheel(light: LightEnvironment) -> None:
    done = light.pytest("tests/core", "-m", "not gpu and not slow", "--benchmark-disable")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("command", ["policies", "flags"])
def test_commands_of_the_core_run(light: LightEnvironment, command: str) -> None:
    done = light.run("-m", "sglang_dynspec.cli", command)
    assert done.returncode == 0, done.stderr
    assert "goodput" in done.stdout


def test_calibrate_needs_no_engine(light: LightEnvironment) -> None:
    done = light.run("-m", "sglang_dynspec.cli", "calibrate", "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr.startswith("dynspec: expected an SGLang server at http://127.0.0.1:9; found")


@pytest.mark.parametrize("command", [["demo"], ["demo", "--model", "smollm2"], ["build-model"]])
def test_what_serves_a_model_says_what_it_needs(
    light: LightEnvironment, command: list[str]
) -> None:
    done = light.run("-m", "sglang_dynspec.cli", *command)
    assert done.returncode == 1
    assert done.stderr == (
        "dynspec: expected what this command imports to load; found No module named 'torch'; "
        "install what is missing: pip install 'sglang-dynspec[sglang,testing]'\n"
    )
    assert not (light.directory / "out").exists()


def test_doctor_says_that_sglang_is_missing(light: LightEnvironment) -> None:
    done = light.run("-m", "sglang_dynspec.cli", "doctor")
    assert done.returncode not in (0, None)
    assert "pip install" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
