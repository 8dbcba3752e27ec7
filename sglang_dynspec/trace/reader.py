"""
Reading a trace, line by line.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sglang_dynspec.errors import TraceError
from sglang_dynspec.trace.format import VERSION, VERSION_KEY, Trace, TraceHeader, TraceRound

#: Check types and ranges; fields of a later version are left out.
_ROUND = TypeAdapter(TraceRound)
_HEADER = TypeAdapter(TraceHeader)


def read_trace(path: Path) -> Trace:
    """
    Read a trace.

    Args:
        path: The file.

    Returns:
        Its header and its rounds, up to the last whole line.

    Raises:
        TraceError: The file is not a trace, is damaged before its last line, or is too new.

        OSError: The file cannot be read.
    """
    # Opened once: a pipe cannot be read again.
    with path.open("rb") as file:
        header = _header(file.readline(), path)
        return Trace(header=header, rounds=list(_rounds(file, path)))


def read_header(path: Path) -> TraceHeader:
    """
    Read the first line of a trace.

    Args:
        path: The file.

    Returns:
        Its header.

    Raises:
        TraceError: The file is not a trace, or is too new.

        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return _header(file.readline(), path)


def _header(line: bytes, path: Path) -> TraceHeader:
    record = _decode(line)
    if record is None or type(record.get(VERSION_KEY)) is not int:
        raise TraceError(
            expected=f'a trace, whose first line is {{"{VERSION_KEY}": {VERSION}, ...}}',
            found=f"{path}, whose first line is something else",
            remedy="give a file recorded with --dynspec-trace",
        )
    if record[VERSION_KEY] > VERSION:
        raise TraceError(
            expected=f"a trace of version {VERSION} or older",
            found=f"version {record[VERSION_KEY]} in {path}, recorded by {record.get('dynspec')}",
            remedy="read it with the sglang-dynspec that recorded it, or a newer one",
        )
    try:
        return _HEADER.validate_json(line)
    except ValidationError as error:
        raise TraceError(
            expected="the header of a trace",
            found=f"in the first line of {path}: {_first(error)}",
            remedy="give the file as it was recorded",
        ) from error


def iter_rounds(path: Path) -> Iterator[TraceRound]:
    """
    Read the rounds of a trace one at a time, for files that do not fit into memory.

    Args:
        path: The file. Its header is not checked; `read_header` does that.

    Yields:
        Its rounds, up to the last whole line.

    Raises:
        TraceError: A line before the last is damaged.

        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        next(file, None)
        yield from _rounds(file, path)


def _rounds(lines: Iterable[bytes], path: Path) -> Iterator[TraceRound]:
    """
    Read what follows the header.
    """
    damage: str | None = None
    for number, line in enumerate(lines, start=2):
        if damage is not None:
            raise TraceError(
                expected="one round in each line",
                found=f"something else in line {number - 1} of {path}: {damage}",
                remedy="remove that line",
            )
        try:
            yield _ROUND.validate_json(line)
        except ValidationError as error:
            # Only the last line may be cut; whether this is the last is known at the next.
            damage = _first(error)


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _first(error: ValidationError) -> str:
    """
    Say in a line what is wrong first.
    """
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
