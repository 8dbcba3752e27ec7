"""Read functions of the installed SGLang from its files, without importing it."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A function as its source file states it."""

    #: Parameter names as written, in order, with their stars.
    parameters: tuple[str, ...]
    #: SHA-256 of the dedented source text, decorators included.
    digest: str
    file: Path
    line: int


class MissingError(LookupError):
    """No such function; the message says which part of the path is missing."""


def package_root(package: str = "sglang") -> Path:
    """
    Find where a package is installed.

    Args:
        package: The name of a top-level package. It is not imported.

    Returns:
        Its directory.

    Raises:
        MissingError: When the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingError(f"package {package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def find_function(target: str, root: Path) -> Found:
    """
    Find a function or method by its dotted path.

    Args:
        target: A dotted path such as `sglang.srt.managers.scheduler.Scheduler.run_batch`. It
            must name the class that defines the method: base classes are not searched.
        root: The directory of the path's first part, as `package_root` returns it.

    Returns:
        The function as it is written there.

    Raises:
        MissingError: When the module, the class or the function does not exist.
    """
    file, names = _split(target, root)
    source, tree = _parse(file)
    scope: list[ast.stmt] = tree.body
    for position, name in enumerate(names):
        node = _definition(scope, name)
        is_last = position == len(names) - 1
        if is_last and isinstance(node, _Function):
            return Found(
                parameters=_parameters(node.args),
                digest=_digest(source, node),
                file=file,
                line=node.lineno,
            )
        if not is_last and isinstance(node, ast.ClassDef):
            scope = node.body
            continue
        wanted = "function" if is_last else "class"
        raise MissingError(f"no {wanted} {name} in {file.relative_to(root.parent)}")
    raise MissingError(f"{target} names a module")


def _split(target: str, root: Path) -> tuple[Path, list[str]]:
    """Split a dotted path into the module's file and the names inside the module."""
    _, *parts = target.split(".")
    directory = root
    for position, part in enumerate(parts):
        module = directory / f"{part}.py"
        if module.is_file():
            return module, parts[position + 1 :]
        if not (directory / part).is_dir():
            package = directory / "__init__.py"
            if package.is_file():
                return package, parts[position:]
            break
        directory = directory / part
    raise MissingError(f"no module for {target} under {root}")


@cache
def _parse(file: Path) -> tuple[str, ast.Module]:
    """Parse a file once: many seams share one."""
    source = file.read_text(encoding="utf-8")
    return source, ast.parse(source, filename=str(file))


def _definition(scope: list[ast.stmt], name: str) -> ast.stmt | None:
    """Return the last definition of `name` in a body; a later one would shadow an earlier."""
    found: ast.stmt | None = None
    for node in scope:
        if isinstance(node, _Function | ast.ClassDef) and node.name == name:
            found = node
    return found


def _parameters(arguments: ast.arguments) -> tuple[str, ...]:
    """List parameter names in order, with the stars that change how they are passed."""
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg is not None:
        names.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        names.append("*")
    names.extend(argument.arg for argument in arguments.kwonlyargs)
    if arguments.kwarg is not None:
        names.append(f"**{arguments.kwarg.arg}")
    return tuple(names)


def _digest(source: str, node: _Function) -> str:
    """Hash the text rather than the tree: `ast.dump` differs between Python versions."""
    first = min((node.lineno, *(decorator.lineno for decorator in node.decorator_list)))
    lines = source.splitlines()[first - 1 : node.end_lineno]
    return hashlib.sha256(textwrap.dedent("\n".join(lines)).encode()).hexdigest()
