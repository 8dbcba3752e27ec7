"""
The plugin that keeps lanes from shrinking.
"""

import subprocess
import sys
from pathlib import Path

from tests.package.conftest import ROOT

_CASES = """
import pytest

@pytest.mark.skip(reason="not today")
def test_marked(): ...

def test_import(): pytest.importorskip("no_such_module")

@pytest.mark.xfail(reason="known")
def test_known(): assert False

def test_good(): ...
"""


def _run(directory: Path, *, module_level: str = "") -> subprocess.CompletedProcess[str]:
    path = directory / "test_cases.py"
    path.write_text(_CASES + module_level)
    command = [sys.executable, "-m", "pytest", "-p", "tests.no_skips", "-c", "/dev/null", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_skip_fails_and_gives_its_reason(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == 1
    # A mark skips in the setup phase, whose failures pytest calls errors.
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in done.stdout
    assert "nothing may be skipped here" in done.stdout
    assert "not today" in done.stdout
    assert "no_such_module" in done.stdout


def test_a_module_that_skips_itself_fails(tmp_path: Path) -> None:
    done = _run(tmp_path, module_level="\npytest.importorskip('no_such_module')\n")
    assert done.returncode != 0
    assert "no_such_module" in done.stdout
