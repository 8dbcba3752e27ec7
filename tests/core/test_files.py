"""A file is written whole or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_dynspec.files import write_whole


def test_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    link, file = tmp_path / "link", tmp_path / "there" / "file"
    file.write_text("old")
    link.symlink_to(file)
    write_whole(link, "new é")
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "new é"
    assert list(file.parent.iterdir()) == [file]


def test_a_pipe_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "new")
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 4096) == b"new"
    finally:
        os.close(reader)


def test_a_fault_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "old"


def test_processes_do_not_write_to_one_another(tmp_path, monkeypatch):
    file = tmp_path / "file"
    replace = Path.replace

    def overtaken(partial, target):
        monkeypatch.setattr(Path, "replace", replace)
        monkeypatch.setattr("os.getpid", lambda: -1)
        write_whole(file, "of another")
        return replace(partial, target)

    monkeypatch.setattr(Path, "replace", overtaken)
    write_whole(file, "of one")
    assert file.read_text() == "of one"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_pipe_of_the_shell_is_written_to(tmp_path):
    # Behind /dev/stdout is a link whose target has no name that could be replaced.
    code = "from pathlib import Path; from sglang_dynspec.files import write_whole; "
    code += "write_whole(Path('/dev/stdout'), 'piped')"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "piped"
