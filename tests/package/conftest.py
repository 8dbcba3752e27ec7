"""
The wheel, built once, and an environment that has it but neither SGLang nor torch.
"""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What the core's tests need beyond what the wheel itself depends on.
TEST_TOOLS = ("hypothesis", "pytest", "pytest-benchmark")


@dataclass(frozen=True)
class LightEnvironment:
    """
    A virtual environment with the wheel, pictures and the test tools alone, and a directory to
    work in.
    """

    python: Path
    directory: Path

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """
        Run ``python ARGUMENTS``, by default in the directory of the environment.
        """
        return run([str(self.python), *arguments], cwd=cwd or self.directory, env=env)

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "pytest", "-p", "tests.no_skips", "-q", *arguments)


def run(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """
    Run a command with nothing of the source tree, and none of this run's settings, in reach.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST", "SGLANG", "DYNSPEC", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    The directory with the sdist and the wheel. The wheel is built from the sdist, so a file
    that the sdist lacks is missing from the wheel too.
    """
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


@pytest.fixture(scope="session")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> LightEnvironment:
    home = tmp_path_factory.mktemp("light")
    venv.create(home / "venv", symlinks=True)
    environment = LightEnvironment(home / "venv" / "bin" / "python", home / "elsewhere")
    environment.directory.mkdir()
    _copy_tests(environment.directory)
    # The pip of this environment, pointed at that one: it needs none of its own.
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python)]
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    done = run([*pip, *install, f"{wheel}[report]", *TEST_TOOLS], cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


def _copy_tests(directory: Path) -> None:
    """
    Copy the core's tests and pytest's configuration, and nothing that could be imported instead.
    """
    tests = directory / "tests"
    tests.mkdir()
    for path in (ROOT / "tests").glob("*.py"):
        shutil.copy(path, tests)
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
    shutil.copytree(ROOT / "tests" / "core", tests / "core", ignore=ignored)
    # The figures that the core's tests hold it to.
    shutil.copytree(ROOT / "benchmarks" / "results", directory / "benchmarks" / "results")
    shutil.copy(ROOT / "pyproject.toml", directory)
