"""
The house stands as `docs/design.md` draws it, and the checks that say so notice what they should.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package import house
from tests.package.conftest import ROOT

FOLDERS = ("sglang_dynspec", "hooks/sglang_dynspec_hooks", "hooks/sglang_dynspec_cpu")
ENGINE = ("sglang", "torch", "sglang_dynspec_hooks", "sglang_dynspec_cpu")

HOUSE = house.read_house(ROOT, FOLDERS)
PICTURE = house.read_picture((ROOT / "docs" / "design.md").read_text(encoding="utf-8"))


def expect_none(wrong: list[str]) -> None:
    assert not wrong, "\n".join(["", *wrong])


def test_every_module_was_read() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(HOUSE) == len(files) > 150
    assert "sglang_dynspec.config" in HOUSE["sglang_dynspec.guard.guard"].imports
    # Below TYPE_CHECKING, and within a function.
    assert "sglang_dynspec_hooks.worker.ledger" in (
        HOUSE["sglang_dynspec_hooks.worker.kv_write"].imports
    )
    assert "sglang_dynspec_hooks.worker.worker" in (
        HOUSE["sglang_dynspec_hooks.seams.create_worker"].imports
    )


def test_no_circle() -> None:
    expect_none(house.circles(HOUSE))


def test_the_house_is_as_drawn() -> None:
    expect_none(house.differences(HOUSE, PICTURE))


def test_a_newcomer_can_take_the_pictures_in() -> None:
    boxes = set(PICTURE.boxes.values())
    hooks = {box for place, box in PICTURE.boxes.items() if place.startswith("hooks/")}
    borrowed = {
        end for start, ends in PICTURE.arrows.items() for end in ends if start in hooks
    } - hooks
    assert len(boxes - hooks) <= 20
    assert len(hooks | borrowed) <= 20


def test_the_core_imports_no_engine() -> None:
    expect_none(house.imports_of(HOUSE, "sglang_dynspec", ENGINE))


def test_the_hooks_do_without_the_cpu_engine() -> None:
    expect_none(house.imports_of(HOUSE, "sglang_dynspec_hooks", ["sglang_dynspec_cpu"]))


def test_what_is_private_stays_private() -> None:
    expect_none(house.private_imports(HOUSE))


def test_no_module_is_too_long_or_a_mere_detour() -> None:
    expect_none(house.misfits(HOUSE))


def test_every_package_says_what_lives_there() -> None:
    expect_none(house.silent_packages(HOUSE))


# --- the checks notice what they should

GOOD = {
    "core/__init__.py": '"""The core."""',
    "core/ground/__init__.py": '"""The ground."""',
    "core/ground/words.py": "WORD = 1",
    "core/middle/__init__.py": '"""The middle."""\nfrom core.middle.room import Room',
    "core/middle/room.py": "from core.ground.words import WORD\nclass Room: ...",
    "core/middle/_closet.py": "BROOM = 1",
    "core/middle/attic/__init__.py": '"""The attic."""',
    "core/top.py": "from core.middle import Room\nroom = Room()",
}

DRAWN = """
```mermaid
flowchart TD
    subgraph core["core"]
        top["<b>top</b><br/>the top"]
        middle["<b>middle</b><br/>the middle"]
        ground["<b>ground</b><br/>the ground"]
    end
    top --> middle
    middle --> ground
```
"""

Check = Callable[[house.House], list[str]]


def differences(found: house.House) -> list[str]:
    return house.differences(found, house.read_picture(DRAWN))


def build(root: Path, files: dict[str, str]) -> house.House:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.read_house(root, ["core"])


@pytest.mark.parametrize(
    "check",
    [
        house.circles,
        house.private_imports,
        house.misfits,
        house.silent_packages,
        differences,
        lambda found: house.imports_of(found, "core", ["torch"]),
    ],
)
def test_a_house_in_order(tmp_path: Path, check: Check) -> None:
    assert check(build(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import core.top",
        "from core import top",
        "from .. import top",
        "from ..top import Room",
        "def late():\n    from core.top import Room",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from core.top import Room",
        "from importlib import import_module\nimport_module('core.top')",
        "import importlib\nimportlib.import_module('core.top')",
    ],
)
def test_a_circle_is_found(tmp_path: Path, text: str) -> None:
    found = build(tmp_path, {**GOOD, "core/ground/words.py": text})
    (circle,) = house.circles(found)
    steps = circle.split(" <- ")
    assert steps[0] == steps[-1]
    assert set(steps) == {"core.ground.words", "core.middle.room", "core.middle", "core.top"}
    assert differences(found) == [
        "core/ground/words.py imports core.top: no way from ground to top"
    ]


@pytest.mark.parametrize(
    ("check", "name", "text", "message"),
    [
        (
            lambda found: house.imports_of(found, "core", ["torch"]),
            "core/top.py",
            "def late():\n    import torch.nn",
            "core/top.py imports torch.nn",
        ),
        (
            house.private_imports,
            "core/top.py",
            "from core.middle._closet import BROOM",
            "core/top.py imports core.middle._closet",
        ),
        (
            house.private_imports,
            "core/top.py",
            "from core.middle import _closet",
            "core/top.py imports core.middle._closet",
        ),
        (house.misfits, "core/top.py", "x = 1\n" * 301, "core/top.py has 301 lines, more than 300"),
        (
            house.misfits,
            "core/top.py",
            '"""A detour."""\nfrom core.middle import Room\nHall = Room\n__all__ = ["Room"]',
            "core/top.py only imports",
        ),
        (
            house.silent_packages,
            "core/middle/__init__.py",
            "# The middle.",
            "core/middle/__init__.py has no docstring",
        ),
        (
            house.silent_packages,
            "core/middle/cellar/wine.py",
            "WINE = 1",
            "core/middle/cellar/__init__.py has no docstring",
        ),
        (
            differences,
            "core/cellar.py",
            "from core.ground import words",
            "no box for core/cellar.py",
        ),
        (
            differences,
            "core/ground/words.py",
            "from core.middle import room",
            "core/ground/words.py imports core.middle.room: no way from ground to middle",
        ),
        (differences, "core/middle/room.py", "class Room: ...", "middle --> ground is no import"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, check: Check, name: str, text: str, message: str) -> None:
    assert check(build(tmp_path, {**GOOD, name: text})) == [message]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core/top.py", "x = 1\n" * 300),
        # From a sibling, and from deeper in the same package.
        ("core/middle/room.py", "from core.middle._closet import BROOM\nBRUSH = BROOM + 1"),
        ("core/middle/attic/chest.py", "from core.middle import _closet\nBRUSH = 1"),
        # A private name is a linter's matter.
        ("core/top.py", "from core.ground.words import _WORD\nWORD = _WORD + 1"),
    ],
)
def test_what_is_allowed(tmp_path: Path, name: str, text: str) -> None:
    found = build(tmp_path, {**GOOD, name: text})
    assert [*house.misfits(found), *house.private_imports(found)] == []


@pytest.mark.parametrize(
    ("drawn", "instead", "message"),
    [
        ("<b>top</b>", "<b>roof</b>", "no core/roof for the box top"),
        ("middle --> ground", "middle --> ground & top", "circle of boxes: "),
        ("top --> middle", "top --> middle & ground", "top --> ground is no import"),
        ("top --> middle", "", "core/top.py imports core.middle: no way from top to middle"),
    ],
)
def test_a_picture_that_lies(tmp_path: Path, drawn: str, instead: str, message: str) -> None:
    picture = house.read_picture(DRAWN.replace(drawn, instead))
    found = house.differences(build(tmp_path, GOOD), picture)
    assert any(line.startswith(message) for line in found), found


def test_a_long_way_down_needs_no_arrow_of_its_own(tmp_path: Path) -> None:
    text = "from core.middle import Room\nfrom core.ground.words import WORD"
    assert differences(build(tmp_path, {**GOOD, "core/top.py": text})) == []
