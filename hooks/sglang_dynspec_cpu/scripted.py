"""A policy that plays a script, so that many tests can share one running engine."""

import json
import os
import random
from collections.abc import Iterator, Mapping
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any

from sglang_dynspec import Observation, Plan, Policy
from sglang_dynspec.files import write_whole

#: The policy, as `sglang_dynspec.enable` takes it.
TARGET = "sglang_dynspec_cpu.scripted:Scripted"
#: Name that a script's file is given.
FILE_NAME = "script.json"
#: Fields of the configuration with which the guard lets any script play as it is written.
UNBOUNDED: dict[str, Any] = {"min_dwell": 1, "switches_per_1000": 1000, "watchdog": False}


class Scripted(Policy):
    """
    Plays the depths of a JSON file, and starts anew whenever the file changes.

    A script is one of:

    - ``{"mode": "fixed", "depth": 0}``
    - ``{"mode": "random", "depths": [0, 1, 3]}``: drawn anew each round, from ``seed``
    - ``{"mode": "cycle", "runs": [[3, 10], [0, 7]]}``: depth and rounds of each run, repeated
    - ``{"mode": "list", "depths": [3, 0, 1], "then": 3}``: one depth per round, then the last

    Without a file the depth stays what it is.
    """

    def __init__(self, *, path: str, seed: int = 0) -> None:
        """
        Create the policy.

        Args:
            path: The script, which need not exist yet.
            seed: Seed of random scripts.
        """
        self._path = path
        self._seed = seed
        self._version: tuple[int, int, int] | None = None
        self._depths: Iterator[int] | None = None

    def decide(self, observation: Observation) -> Plan:
        """Plan the script's next depth."""
        self._reload()
        if self._depths is None:
            return Plan(depth=observation.depth, reason="no_script")
        return Plan(depth=next(self._depths), reason="script")

    def _reload(self) -> None:
        """Start the script anew if it has changed."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - every round: no Path object
        except FileNotFoundError:
            return
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if version != self._version:
            self._version = version
            self._depths = play(json.loads(Path(self._path).read_text()), self._seed)


def play(script: Mapping[str, Any], seed: int = 0) -> Iterator[int]:
    """
    Return the depths of a script, round after round, without end.

    Args:
        script: See `Scripted`.
        seed: Seed of a random script.

    Raises:
        ValueError: For an unknown mode.
    """
    mode = script.get("mode")
    if mode == "fixed":
        return repeat(int(script["depth"]))
    if mode == "random":
        generator = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        depths = [int(depth) for depth in script["depths"]]
        return (generator.choice(depths) for _ in repeat(None))
    if mode == "cycle":
        return cycle([int(depth) for depth, rounds in script["runs"] for _ in range(rounds)])
    if mode == "list":
        return chain(map(int, script["depths"]), repeat(int(script["then"])))
    raise ValueError(
        f"expected a mode among fixed, random, cycle, list; found {mode!r}; correct the script"
    )


def write(path: Path, script: Mapping[str, Any]) -> None:
    """Write a script so that the policy never reads half of it."""
    play(script)
    write_whole(path, json.dumps(dict(script)))
