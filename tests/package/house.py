"""
The plan of the house: which module imports which, and which may.

Everything is read from the source files; nothing is imported. A check returns what is wrong, a line
each, so that an empty list is a house in order.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

MOST_LINES = 300
FEWEST_LINES = 25

#: A box of a picture: its name, and what stands in it.
_BOX = re.compile(r'(\w+)\["<b>(.+?)</b>')
#: The folder that the boxes of a subgraph stand in.
_FOLDER = re.compile(r'subgraph \w+\["([\w/]+)"\]')


@dataclass(frozen=True, kw_only=True)
class Module:
    name: str
    #: Relative to the root of the repository.
    path: Path
    tree: ast.Module
    lines: int
    #: The modules it names in imports, as far as the house has them; else the names as written.
    imports: frozenset[str]

    @property
    def is_face(self) -> bool:
        return self.path.name == "__init__.py"


House = dict[str, Module]


def read_house(root: Path, folders: Iterable[str]) -> House:
    """
    Read every module below some folders, imports within functions and under TYPE_CHECKING included.
    """
    files = {
        _name(path): path for folder in folders for path in sorted((root / folder).rglob("*.py"))
    }
    house = {}
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        house[name] = Module(
            name=name,
            path=path.relative_to(root),
            tree=tree,
            lines=len(text.splitlines()),
            imports=frozenset(_imports(tree, package, files)),
        )
    return house


def _name(path: Path) -> str:
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _imports(tree: ast.Module, package: str, known: Iterable[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                above = package.split(".")[: 1 - node.level or None] if node.level else []
                source = ".".join([*above, *filter(None, [node.module])])
                for alias in node.names:
                    module = f"{source}.{alias.name}"
                    yield module if module in known else source
            # By name; one that is put together as the program runs is not seen.
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                yield target


def circles(house: House) -> list[str]:
    """
    The first circle of imports, if there is one.
    """
    return _circle({module.name: module.imports & house.keys() for module in house.values()})


def _circle(arrows: dict[str, frozenset[str]]) -> list[str]:
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return [" <- ".join(error.args[1])]
    return []


def imports_of(house: House, package: str, forbidden: Iterable[str]) -> list[str]:
    """
    Where modules of a package import something that it must do without.
    """
    return [
        f"{module.path} imports {target}"
        for module in house.values()
        if _is_within(module.name, package)
        for target in sorted(module.imports)
        if any(_is_within(target, name) for name in forbidden)
    ]


def private_imports(house: House) -> list[str]:
    """
    Where an underscored module is imported from outside its own package.
    """
    found = []
    for module in house.values():
        for target in sorted(module.imports & house.keys()):
            parts = target.split(".")
            private = next((i for i, part in enumerate(parts) if part.startswith("_")), None)
            if private and not _is_within(module.name, ".".join(parts[:private])):
                found.append(f"{module.path} imports {target}")
    return found


def misfits(house: House) -> list[str]:
    """
    Modules that are too long, or too short to be more than a detour.
    """
    found = []
    for module in house.values():
        if module.lines > MOST_LINES:
            found.append(f"{module.path} has {module.lines} lines, more than {MOST_LINES}")
        if not module.is_face and module.lines < FEWEST_LINES and _only_forwards(module.tree.body):
            found.append(f"{module.path} only imports")
    return found


def _only_forwards(body: list[ast.stmt]) -> bool:
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                # A list of names, or another name for something imported.
                if name != "__all__" and not isinstance(value, ast.Name | ast.Attribute):
                    return False
            case ast.If(body=inner, orelse=orelse):
                if not _only_forwards([*inner, *orelse]):
                    return False
            case _:
                return False
    return True


def silent_packages(house: House) -> list[str]:
    """
    Packages that do not say what lives in them.
    """
    faces = {module.path: module for module in house.values() if module.is_face}
    folders = {module.path.parent / "__init__.py" for module in house.values()}
    return [
        f"{face} has no docstring"
        for face in sorted(folders)
        if face not in faces or not ast.get_docstring(faces[face].tree)
    ]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """
    The pictures of a page, put together.
    """

    #: What stands in a box: file or folder, without the suffix -> box.
    boxes: dict[str, str]
    #: Box -> boxes that it has an arrow to.
    arrows: dict[str, frozenset[str]]

    def box_of(self, path: Path) -> str | None:
        """
        The box of a module's file: that of the innermost folder which has one.
        """
        places = map(str, _places(path))
        return next((self.boxes[place] for place in places if place in self.boxes), None)

    def reachable(self, box: str) -> set[str]:
        """
        The boxes that arrows lead to from one, by any way.
        """
        found: set[str] = set()
        ahead = set(self.arrows.get(box, ()))
        while ahead:
            found |= ahead
            ahead = {far for near in ahead for far in self.arrows.get(near, ())} - found
        return found


def read_picture(page: str) -> Picture:
    """
    Read every flowchart of a page that draws folders as subgraphs.
    """
    boxes: dict[str, str] = {}
    arrows: dict[str, frozenset[str]] = {}
    for chart in re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL):
        if not _FOLDER.search(chart):
            continue
        folder = ""
        for line in chart.splitlines():
            if found := _FOLDER.search(line):
                folder = found[1]
            elif found := _BOX.search(line):
                for name in found[2].split(", "):
                    boxes[str(Path(folder) / name)] = found[1]
            elif "-->" in line:
                start, ends = line.split("-->")
                before = arrows.get(start.strip(), frozenset())
                arrows[start.strip()] = before | {end.strip() for end in ends.split("&")}
    return Picture(boxes=boxes, arrows=arrows)


def differences(house: House, picture: Picture) -> list[str]:
    """
    Where the picture says something else than the code: each import has to run along the arrows, by
    any way down, and each arrow has to be an import.
    """
    found = [f"circle of boxes: {circle}" for circle in _circle(picture.arrows)]
    boxes = {module.name: picture.box_of(module.path) for module in house.values()}
    places = {str(place) for module in house.values() for place in _places(module.path)}
    found += [
        f"no {place} for the box {picture.boxes[place]}" for place in picture.boxes.keys() - places
    ]
    drawn = {(start, end) for start, ends in picture.arrows.items() for end in ends}
    for module in house.values():
        start = boxes[module.name]
        for target in sorted(module.imports & house.keys()):
            end = boxes[target]
            if start is None or end is None:
                found.append(f"no box for {module.path if start is None else house[target].path}")
            elif start != end and end not in picture.reachable(start):
                found.append(f"{module.path} imports {target}: no way from {start} to {end}")
            drawn.discard((start, end))
    found += [f"{start} --> {end} is no import" for start, end in sorted(drawn)]
    return sorted(set(found))


def _places(path: Path) -> list[Path]:
    return [path.with_suffix(""), *path.parents]


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
