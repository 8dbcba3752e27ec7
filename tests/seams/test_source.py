"""Reading functions from source files without importing them."""

import hashlib
import sys
from pathlib import Path

import pytest

from sglang_dynspec_hooks.contract.source import MissingError, find_function, package_root

MODULE = """
import functools


def alone(first, /, second, *, third=1, **rest): ...


class Outer:
    @functools.cache
    def cached(self, *values): ...

    def twice(self, old): ...

    def twice(self, new): ...

    class Inner:
        async def deep(self): ...


constant = 1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "lib"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text("def top(): ...\n", encoding="utf-8")
    (package / "sub" / "__init__.py").write_text("def inside(): ...\n", encoding="utf-8")
    (package / "sub" / "module.py").write_text(MODULE, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    ("target", "parameters"),
    [
        ("lib.top", ()),
        ("lib.sub.inside", ()),
        ("lib.sub.module.alone", ("first", "second", "*", "third", "**rest")),
        ("lib.sub.module.Outer.cached", ("self", "*values")),
        ("lib.sub.module.Outer.twice", ("self", "new")),
        ("lib.sub.module.Outer.Inner.deep", ("self",)),
    ],
)
def test_found(root: Path, target: str, parameters: tuple[str, ...]) -> None:
    assert find_function(target, root).parameters == parameters


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("lib.other", "no function other in lib/__init__.py"),
        ("lib.other.function", "no class other in lib/__init__.py"),
        ("lib.sub.module.Outer.gone", "no function gone in lib/sub/module.py"),
        ("lib.sub.module.Gone.method", "no class Gone in lib/sub/module.py"),
        ("lib.sub.module.constant", "no function constant in lib/sub/module.py"),
        ("lib.sub.module.Outer", "no function Outer in lib/sub/module.py"),
        ("lib.sub.module.alone.more", "no class alone in lib/sub/module.py"),
        ("lib.sub.module", "lib.sub.module names a module"),
    ],
)
def test_missing(root: Path, target: str, message: str) -> None:
    with pytest.raises(MissingError, match=f"^{message}$"):
        find_function(target, root)


def test_no_module(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    with pytest.raises(MissingError, match=r"^no module for lib.a.b under "):
        find_function("lib.a.b", tmp_path / "lib")


def digest_of(folder: Path, text: str) -> str:
    folder.mkdir()
    (folder / "__init__.py").write_text(text, encoding="utf-8")
    target = "lib.C.f" if "class" in text else "lib.f"
    return find_function(target, folder).digest


def test_the_digest_is_of_the_text_alone(tmp_path: Path) -> None:
    plain = digest_of(tmp_path / "a", "def f(x):\n    return x\n")
    moved = digest_of(tmp_path / "b", "# moved\nclass C:\n    def f(x):\n        return x\n")
    changed = digest_of(tmp_path / "c", "def f(x):\n    return x + 1\n")
    decorated = digest_of(tmp_path / "d", "@g\ndef f(x):\n    return x\n")
    assert plain == moved
    assert len({plain, changed, decorated}) == 3
    assert plain == hashlib.sha256(b"def f(x):\n    return x").hexdigest()


def test_the_package_is_not_imported() -> None:
    root = package_root()
    assert root.name == "sglang"
    assert (root / "srt" / "server_args.py").is_file()
    assert "sglang" not in sys.modules or sys.modules["sglang"].__file__ == str(
        root / "__init__.py"
    )


def test_an_absent_package() -> None:
    with pytest.raises(MissingError, match=r"^package no_such_package is not installed$"):
        package_root("no_such_package")
