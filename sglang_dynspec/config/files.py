"""
Files that a configuration names.
"""

from pathlib import Path

from sglang_dynspec.errors import ConfigError


def check_name(path: Path) -> Path:
    """
    Refuse what no file system can hold; TOML can say it.

    Args:
        path: The file.

    Returns:
        The same.

    Raises:
        ConfigError: Its name holds NUL, or half a character.
    """
    try:
        # It travels to other processes as JSON.
        if b"\0" not in str(path).encode():
            return path
    except UnicodeEncodeError:
        pass
    raise ConfigError(
        expected="the name of a file",
        found=repr(str(path)),
        remedy="leave out what no name can hold",
    )


def check_readable(path: Path) -> None:
    """
    Check, before anything is loaded, that a calibration can be read.

    Args:
        path: The file.

    Raises:
        ConfigError: It cannot be opened.
    """
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise ConfigError(
            expected=f"a readable calibration file at {path}",
            found=f"{type(error).__name__}: {error.strerror}",
            remedy="make one with 'dynspec calibrate', or leave calibration out",
        ) from error
