"""The scripted policy plays what the file says, anew whenever it changes."""

import json
import os
from itertools import islice
from pathlib import Path

import pytest

from sglang_dynspec import Observation
from sglang_dynspec_cpu import scripted


def depths(script, count, seed=0):
    return list(islice(scripted.play(script, seed), count))


def test_modes():
    assert depths({"mode": "fixed", "depth": 1}, 3) == [1, 1, 1]
    assert depths({"mode": "cycle", "runs": [[3, 2], [0, 1]]}, 7) == [3, 3, 0, 3, 3, 0, 3]
    assert depths({"mode": "list", "depths": [3, 0], "then": 1}, 5) == [3, 0, 1, 1, 1]


def test_random_depths_repeat_with_the_seed():
    script = {"mode": "random", "depths": [0, 1, 3]}
    first = depths(script, 50)
    assert set(first) == {0, 1, 3}
    assert depths(script, 50) == first
    assert depths(script, 50, seed=1) != first


def test_an_unknown_mode_is_refused_before_it_is_written(tmp_path):
    path = tmp_path / "script.json"
    with pytest.raises(ValueError, match="found 'waltz'"):
        scripted.write(path, {"mode": "waltz"})
    assert not path.exists()


def test_one_that_cannot_be_written_leaves_the_last(tmp_path, monkeypatch):
    path = tmp_path / "script.json"
    scripted.write(path, {"mode": "fixed", "depth": 1})
    monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scripted.write(path, {"mode": "fixed", "depth": 3})
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(path.read_text()) == {"mode": "fixed", "depth": 1}


def test_a_changed_file_starts_from_its_beginning(tmp_path):
    path = tmp_path / "script.json"
    policy = scripted.Scripted(path=str(path))
    observation = Observation(
        batch_size=1,
        padded_batch_size=1,
        running=1,
        waiting=0,
        seq_len_sum=10,
        seq_len_max=10,
        kv_free=1.0,
        depths=(0, 1, 3),
        depth=3,
        depth_age=0,
    )

    def decided(count):
        return [policy.decide(observation).depth for _ in range(count)]

    assert decided(2) == [3, 3]
    scripted.write(path, {"mode": "list", "depths": [0, 1], "then": 3})
    assert decided(3) == [0, 1, 3]
    scripted.write(path, {"mode": "list", "depths": [0, 1], "then": 3})
    assert decided(3) == [0, 1, 3]
    # The same file, rewritten in place within the clock's resolution, differs in size.
    status = path.stat()
    path.write_text('{"mode": "fixed", "depth": 1}')
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert decided(2) == [1, 1]
