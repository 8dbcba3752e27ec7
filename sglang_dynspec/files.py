"""
Files that are written whole or not at all.
"""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """
    Write a file so that nobody reads half of it, and a fault leaves the old one.

    Args:
        path: Where to. An existing file is replaced, behind a link as well; a device or a pipe is
            written to.

        text: All that it is to hold.

    Raises:
        OSError: The file cannot be written.
    """
    if is_device(path):
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    # Two processes may write the same file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def is_device(path: Path) -> bool:
    """
    Tell whether what is there is written to, not replaced: a device or a pipe.

    Args:
        path: A file that may be missing.
    """
    return path.exists() and not path.is_file()
