"""The core needs no engine: not installed, not importable, not even looked for."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import sglang_dynspec
from tests.core.conftest import ENGINE

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sglang_dynspec.__path__, f"{sglang_dynspec.__name__}.")
)

IMPORT_ALL = """
import importlib, importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
for name in {modules!r}:
    importlib.import_module(name)
print(len({modules!r}))
"""


@pytest.mark.parametrize("blocked", [ENGINE, ("matplotlib",)])
def test_every_module_imports_without(blocked):
    code = IMPORT_ALL.format(blocked=blocked, modules=MODULES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(MODULES) > 30


def test_no_source_names_the_engine_in_an_import():
    root = Path(sglang_dynspec.__path__[0])
    imports = [
        f"{path.name}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.strip().startswith(("import ", "from "))
    ]
    assert imports
    assert not [
        line for line in imports if line.split(": ")[1].split()[1].partition(".")[0] in ENGINE
    ]


def test_the_public_names_are_sorted_and_exist():
    assert sglang_dynspec.__all__ == sorted(sglang_dynspec.__all__)
    assert all(hasattr(sglang_dynspec, name) for name in sglang_dynspec.__all__)


def test_importing_the_package_brings_no_heavy_library():
    code = "import sglang_dynspec, sys; print([m for m in ('matplotlib', 'rich', 'typer', 'numpy') "
    code += "if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
