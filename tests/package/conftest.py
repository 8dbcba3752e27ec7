"""
The wheel, built once, and an environment that has it but neither SGLang nor torch.
"""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What the core's tests need beyond what the wheel itself depends on.
TEST_TOOLS = ("hypothesis", "pytest", "pytest-benchmark")


@dataclass(frozen=True)
class LightEnvironment:
    """
    A virtual environment with the wheel and the test tools alone, and a directory to work in.
    """

    python: Path
    directory: Path

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """
        Run ``python ARGUMENTS`` in the directory, where nothing of the source tree is in reach.
        """
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYTEST", "SGLANG", "DYNSPEC", "VIRTUAL_ENV"))
        }
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=self.directory,
            env={**inherited, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "pytest", "-p", "tests.no_skips", "-q", *arguments)


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
    venv.create(home / "venv", with_pip=True, symlinks=True)
    environment = LightEnvironment(home / "venv" / "bin" / "python", home / "elsewhere")
    environment.directory.mkdir()
    _copy_tests(environment.directory)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    done = environment.run(*pip, str(wheel), *TEST_TOOLS)
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
    shutil.copy(ROOT / "pyproject.toml", directory)
