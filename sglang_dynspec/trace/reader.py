"""
Reading a trace, line by line.
"""

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from sglang_dynspec.errors import TraceError
from sglang_dynspec.trace.records import VERSION, VERSION_KEY, Trace, TraceHeader, TraceRound


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
    return Trace(header=read_header(path), rounds=list(iter_rounds(path)))


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
        record = _decode(file.readline())
    if record is None or not isinstance(record.get(VERSION_KEY), int):
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
    known = {name: record[name] for name in _names(TraceHeader) if name in record}
    return TraceHeader(**known | {"depths": tuple(record.get("depths", ()))})


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
    names = _names(TraceRound)
    required = {each.name for each in fields(TraceRound) if each.default is MISSING}
    cut: int | None = None
    with path.open("rb") as file:
        next(file, None)
        for number, line in enumerate(file, start=2):
            if cut is not None:
                raise TraceError(
                    expected="one round in each line",
                    found=f"something else in line {cut} of {path}",
                    remedy="remove that line",
                )
            record = _decode(line)
            if record is None or not record.keys() >= required:
                # Only the last line may be cut; whether this is the last is known at the next.
                cut = number
                continue
            for name in ("accepted", "predicted"):
                record[name] = tuple(record.get(name, ()))
            yield TraceRound(**{name: record[name] for name in names if name in record})


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _names(kind: type[TraceHeader | TraceRound]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
