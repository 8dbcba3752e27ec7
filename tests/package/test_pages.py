"""
What holds of every page: its commands exist, its code and its links lead somewhere.
"""

import ast
import json
import pkgutil
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import typer
import yaml

from sglang_dynspec.cli import build_app
from sglang_dynspec_hooks.contract.source import package_root
from tests.package.conftest import ROOT
from tests.package.pages import PACKAGE_PAGE, PAGES, README, Page, ask_sglang

EVERY = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()

#: Directories of which a path in the text has to exist.
_TRACKED = {"benchmarks", "docs", "hooks", "sglang_dynspec", "tests"}


@cache
def dynspec_commands() -> dict[str, typer.core.TyperCommand]:
    return typer.main.get_command(build_app()).commands  # type: ignore[attr-defined, no-any-return]


def check(words: list[str]) -> None:
    """
    Fail for a command that does not exist or does not take its arguments.
    """
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program, *arguments = [words[0].removeprefix(".venv/bin/"), *words[1:]]
    if program == "dynspec":
        name, *arguments = arguments or ["--help"]
        if not name.startswith("-"):
            dynspec_commands()[name].make_context(name, arguments)
    elif program == "make":
        targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
        assert {each for each in arguments if "=" not in each} <= targets, words
    elif program == "pip":
        extras = {extra for each in arguments for extra in re.findall(r"\[(\w+)\]", each)}
        assert extras <= set(PROJECT["optional-dependencies"]), words
    elif program == "curl":
        check_request(arguments)
    elif program in ("pytest", "python"):
        paths = [each for each in arguments if each.split("/")[0] in _TRACKED]
        assert [each for each in paths if not (ROOT / each).exists()] == [], words
    elif program == "export":
        assert arguments[0].startswith("SGLANG_DYNSPEC_"), words
    else:
        assert words[:2] == ["sglang", "serve"] or program == "source", words


def check_request(arguments: list[str]) -> None:
    path = "/" + arguments[0].partition("/")[2]
    server = package_root() / "srt" / "entrypoints" / "http_server.py"
    assert f'"{path}"' in server.read_text(), arguments
    if "-d" in arguments:
        seam = ROOT / "hooks" / "sglang_dynspec_hooks" / "seams" / "update_handlers.py"
        settings = json.loads(arguments[arguments.index("-d") + 1])["server_args"]
        for name in settings:
            assert f'"{name}"' in seam.read_text(), arguments


@EVERY
def test_commands_exist(page: Page) -> None:
    for words in page.commands:
        check(words[: words.index("|")] if "|" in words else words)


@EVERY
def test_commands_in_the_text_exist(page: Page) -> None:
    for words in (code.removeprefix(".venv/bin/").split() for code in page.code):
        if words[0] == "dynspec" and len(words) > 1:
            # Named, with or without what an option takes.
            parameters = dynspec_commands()[words[1]].params
            options = {option for parameter in parameters for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, words
        elif words[0] in ("make", "pip", "pytest") and len(words) > 1:
            check(words)


def test_options_in_the_text_exist() -> None:
    ours = {
        option
        for command in dynspec_commands().values()
        for parameter in command.params
        for option in parameter.opts
    }
    benchmark = (ROOT / "benchmarks" / "serve_modes.py").read_text()
    its = re.findall(r'add_argument\(\s*"(--[\w-]+)"', benchmark)
    known = {*ask_sglang()["options"], *ours, *its, "--help"}
    for page in PAGES.values():
        named = {option for code in page.code for option in re.findall(r"(?<!\S)--[\w-]+\w", code)}
        assert named - known == set(), page.name


@EVERY
def test_links_and_anchors_resolve(page: Page) -> None:
    for link in page.links:
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        assert path.exists(), link
        if anchor:
            assert anchor in PAGES[str(path.relative_to(ROOT))].anchors, link


def test_the_readme_leads_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in README.links}
    pages = {name for name in PAGES if name.startswith("docs/")} - {PACKAGE_PAGE}
    assert pages - linked == set()


def test_the_readme_is_short() -> None:
    assert len(README.text.split()) <= 1500


@EVERY
def test_files_that_are_named_exist(page: Page) -> None:
    for code in page.code:
        if code.split("/")[0] in _TRACKED and re.fullmatch(r"[\w./-]+", code):
            assert (ROOT / code).exists(), code


@EVERY
def test_what_python_names_exists(page: Page) -> None:
    groups = {*PROJECT["entry-points"]}
    # The changelog also says what things were called.
    for code in page.code if page.name != "CHANGELOG.md" else ():
        name = code.removesuffix("()")
        if re.fullmatch(r"sglang_dynspec(\.\w+)+", name) and name not in groups:
            pkgutil.resolve_name(name)


@EVERY
def test_blocks_are_what_they_say(page: Page) -> None:
    readers = {
        "python": ast.parse,
        "json": json.loads,
        "toml": tomllib.loads,
        "yaml": yaml.safe_load,
        "console": str,
        "mermaid": str,
        "text": str,
    }
    for language, text in page.all_blocks:
        readers[language](text)


def test_pictures_are_small() -> None:
    pictures = list(Path(ROOT / "docs" / "pictures").iterdir())
    shown = {link for page in PAGES.values() for link in page.links if link.endswith(".png")}
    assert {f"docs/pictures/{path.name}" for path in pictures} == shown
    assert max(path.stat().st_size for path in pictures) < 150_000


def test_the_lanes_are_those_of_the_makefile() -> None:
    lists = re.findall(r"^(?:FIRST|SECOND)_LANES := (.+)$", MAKEFILE, re.MULTILINE)
    lanes = [row["lane"].strip("`") for row in PAGES["CONTRIBUTING.md"].table("lane")]
    assert sorted(lanes) == sorted(" ".join(lists).split())
