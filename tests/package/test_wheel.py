"""
What the wheel and the sdist hold, and what their metadata say.
"""

import configparser
import re
import tarfile
import tomllib
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sglang_dynspec import __version__
from tests.package.conftest import ROOT

#: The real model's head: too large for the wheel.
HEAD = Path("sglang_dynspec_cpu", "smollm2", "head")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist_info(unpacked: Path) -> Path:
    (path,) = unpacked.glob("*.dist-info")
    return path


@pytest.fixture(scope="module")
def metadata(dist_info: Path) -> Message:
    return message_from_string((dist_info / "METADATA").read_text())


def test_the_top_level_is_our_two_packages(unpacked: Path, dist_info: Path) -> None:
    # Above all no top-level package called `hooks`, the directory one of them lives in.
    top = {path.name for path in unpacked.iterdir()} - {dist_info.name}
    assert top == {"sglang_dynspec", "sglang_dynspec_hooks", "sglang_dynspec_cpu"}


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("sglang_dynspec", ROOT / "sglang_dynspec"),
        ("sglang_dynspec_hooks", ROOT / "hooks" / "sglang_dynspec_hooks"),
        ("sglang_dynspec_cpu", ROOT / "hooks" / "sglang_dynspec_cpu"),
    ],
)
def test_every_source_file_but_the_head_is_inside(
    unpacked: Path, package: str, source: Path
) -> None:
    def files(root: Path) -> set[str]:
        return {
            str(path.relative_to(root))
            for path in root.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    head = files(ROOT / "hooks" / HEAD)
    left_out = {str(HEAD / name) for name in head}
    expected = {name for name in files(source) if str(Path(package, name)) not in left_out}
    assert files(unpacked / package) == expected
    assert not (unpacked / HEAD).exists()


@pytest.mark.parametrize(
    "name",
    [
        "sglang_dynspec/py.typed",
        "sglang_dynspec_hooks/py.typed",
        "sglang_dynspec_hooks/contract/baseline.json",
        "sglang_dynspec_cpu/py.typed",
        "sglang_dynspec_cpu/shadow.packages/sgl_kernel/__init__.py",
        "sglang_dynspec_cpu/smollm2/prompts.json",
    ],
)
def test_data_files_are_inside(unpacked: Path, name: str) -> None:
    assert (unpacked / name).is_file()


def test_the_licence_is_inside(dist_info: Path, metadata: Message) -> None:
    (path,) = dist_info.rglob("LICENSE")
    assert path.read_text() == (ROOT / "LICENSE").read_text()
    assert metadata["License-Expression"] == "Apache-2.0"


def test_name_version_and_python(metadata: Message, wheel: Path) -> None:
    assert metadata["Name"] == "sglang-dynspec"
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    assert wheel.name == f"sglang_dynspec-{__version__}-py3-none-any.whl"


def test_the_description_stands_alone(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / "docs" / "package.md").read_text().strip()
    # On the page of an index a relative link leads nowhere, and a diagram is its source.
    assert re.findall(r"\]\((?!https://)|```mermaid", metadata.get_payload()) == []


def test_the_engine_and_pictures_come_with_extras_alone(metadata: Message) -> None:
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    always = {r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})}
    assert always == {Requirement(text).name for text in PROJECT["dependencies"]}
    assert not always & {"sglang", "torch", "matplotlib"}
    extras = {"report", "sglang", "testing", "dev"}
    assert set(metadata.get_all("Provides-Extra", [])) == extras
    for extra in ("sglang", "testing"):
        (pinned,) = {
            str(r.specifier)
            for r in requirements
            if r.name == "sglang" and r.marker is not None and r.marker.evaluate({"extra": extra})
        }
        assert pinned == "==0.5.23"
    # With `.[testing,dev]`, which `make` installs, as with its own.
    drawing = {
        extra
        for r in requirements
        for extra in extras
        if r.marker is not None and r.marker.evaluate({"extra": extra})
        if r.name == "matplotlib" or (r.name == "sglang-dynspec" and r.extras == {"report"})
    }
    assert drawing == {"report", "testing", "dev"}


def test_entry_points_are_the_projects(dist_info: Path) -> None:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(dist_info / "entry_points.txt")
    found = {name: dict(parser[name]) for name in parser.sections()}
    assert found == {"console_scripts": PROJECT["scripts"], **PROJECT["entry-points"]}


def test_every_entry_point_names_a_module_of_the_wheel(unpacked: Path) -> None:
    for group in PROJECT["entry-points"].values():
        for target in group.values():
            module, _, attribute = target.partition(":")
            path = unpacked / module.replace(".", "/")
            source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            # As a definition, an assignment or an import: the module is not imported here.
            assert re.search(rf"\b{attribute}\b", source.read_text()), target


def test_the_sdist_can_be_tested(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"Makefile", "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", ".ci/run"}
    expected |= {"CONTRIBUTING.md", "docs/limits.md", "docs/pictures/demo.png"}
    assert expected <= names
    assert "tests/package/test_wheel.py" in names
    assert not [name for name in names if name.startswith((".venv", "out/"))]
