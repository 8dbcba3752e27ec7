"""What rounds cost on a running server: each depth is forced under a load of our own."""

from __future__ import annotations

import math
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec.cli.output import depth_name
from sglang_dynspec.errors import ServerError
from sglang_dynspec.estimates.calibration import Calibration, CostCell
from sglang_dynspec.identity import Identity
from sglang_dynspec_hooks.commands.signals import undisturbed
from sglang_dynspec_hooks.launch.warm_up import powers_of_two

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sglang_dynspec_hooks.client import Client

#: Token ids of prompts are drawn from here: every vocabulary has them, none ends a text with them.
_TOKEN_IDS: Final = range(16, 256)
#: Share of the KV pool that the load may fill.
_FILLED: Final = 0.8
#: Rounds, at the batch size asked for, that make a mean.
_ENOUGH: Final = 8
#: Passes that make the mean cost of upkeep.
_ENOUGH_PASSES: Final = 4
#: Looks at a server, and seconds between two, before it counts as busy.
_LOOKS: Final = 5
_BETWEEN_LOOKS: Final = 0.2


@dataclass(slots=True)
class Measured:
    """
    Rounds measured so far.

    Attributes:
        identity: What the server is.
        depths: Its candidate depths.
        cells: Mean cost by depth and batch size.
        upkeep: Seconds of an upkeep pass by batch size.
        skipped: What could not be measured and why, one line each.
    """

    identity: Identity
    depths: tuple[int, ...]
    cells: list[CostCell] = field(default_factory=list)
    upkeep: dict[int, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def calibration(self) -> Calibration:
        """
        Give the calibration to save.

        Raises:
            ServerError: Nothing was measured.
        """
        if not self.cells:
            raise ServerError(
                expected="rounds to measure",
                found="; ".join(self.skipped) or "none",
                remedy="raise --rounds",
            )
        return Calibration(
            identity=self.identity,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            cells=tuple(self.cells),
            upkeep=self.upkeep,
        )


def batch_sizes(largest: int) -> list[int]:
    """Return the powers of two up to a batch size, and that itself."""
    return sorted({*powers_of_two(largest), largest})


@contextmanager
def decision_borrowed(server: Client, account: dict[str, Any]) -> Iterator[None]:
    """
    Give the decision back at the end as it was found, whatever happens in between.

    Args:
        server: The server.
        account: Its account before anything was forced.
    """
    before = account["dynspec"]["forced"]
    try:
        yield
    finally:
        # Who is impatient presses Ctrl-C twice.
        with undisturbed():
            server.force(-1 if before is None else before)


def measure(
    server: Client,
    *,
    largest: int | None,
    rounds: int,
    prompt_tokens: int,
    tell: Callable[[int, int, str], None],
) -> Measured:
    """
    Measure every depth at every batch size.

    Args:
        server: The server; nobody else may use it meanwhile.
        largest: Largest batch size; None for what the server runs at most.
        rounds: Rounds to measure at each.
        prompt_tokens: Length of the prompts.
        tell: Told before each measurement: how many are done, how many there are, and what comes.

    Raises:
        ServerError: The server does not answer, refuses, or has other requests.
    """
    info = _idle(server)
    cap = int(info["effective_max_running_requests_per_dp"])
    sizes = batch_sizes(cap if largest is None else min(largest, cap))
    account = info["dynspec"]
    depths = tuple(sorted(int(depth) for depth in account["by_depth"]))
    measured = Measured(identity=Identity(**account["identity"]), depths=depths)
    load = _Load(
        server, depths[-1], int(info["memory_usage"]["token_capacity"]), rounds, prompt_tokens
    )
    with decision_borrowed(server, info):
        for depth in depths:
            # What is loaded and compiled at first use is no part of a round's cost.
            load.warm_up(depth)
        total = len(sizes) * len(depths)
        for done, (size, depth) in enumerate((size, depth) for size in sizes for depth in depths):
            tell(done, total, f"batch size {size}, {depth_name(depth)}")
            load.measure(measured, depth, size)
        tell(total, total, "done")
    return measured


class _Load:
    """Sends requests, and reads from the account what their rounds took."""

    def __init__(
        self, server: Client, largest_depth: int, capacity: int, rounds: int, prompt_tokens: int
    ) -> None:
        self._server = server
        self._reserve = 2 * (largest_depth + 1)
        self._capacity = capacity
        self._rounds = rounds
        self._prompt_tokens = prompt_tokens
        #: Tokens that a request advances in one round, by depth, as last seen.
        self._advance: dict[int, float] = {}
        self._draw = random.Random(0)  # noqa: S311 - reproducible, not secret

    def warm_up(self, depth: int) -> None:
        """Run a few rounds of a depth and learn how far they advance."""
        before = self._server.info()["dynspec"]
        self._server.force(depth)
        self._server.generate(self._prompts(1), 8 * (depth + 1))
        self._learn(depth, before, self._server.info()["dynspec"])

    def measure(self, measured: Measured, depth: int, size: int) -> None:
        """Measure one depth at one batch size, and add it to what was measured."""
        tokens = math.ceil(self._rounds * self._advance[depth]) + 1
        room = int(_FILLED * self._capacity) // size - self._prompt_tokens - self._reserve
        tokens = min(tokens, room)
        if tokens < _ENOUGH * self._advance[depth]:
            measured.skipped.append(f"batch size {size}, depth {depth}: the KV pool is too small")
            return
        before = self._server.info()["dynspec"]
        self._server.force(depth)
        self._server.generate(self._prompts(size), tokens)
        after = self._server.info()["dynspec"]
        self._check_alone(before, after, size, tokens)
        self._learn(depth, before, after)
        padded, row = _difference(before, after, depth, size)
        if row["rounds"] < _ENOUGH:
            measured.skipped.append(
                f"batch size {size}, depth {depth}: {row['rounds']} rounds of that size ran"
            )
            return
        seconds = row["seconds"] / row["rounds"]
        measured.cells.append(
            CostCell(
                depth=depth,
                batch_size=padded,
                seconds=seconds,
                rounds=row["rounds"],
                seq_len_sum=row["seq_len_sum"] / row["rounds"],
            )
        )
        if depth == 0 and row["upkeep_rounds"] >= _ENOUGH_PASSES:
            passed = row["upkeep_seconds"] / row["upkeep_rounds"]
            measured.upkeep[padded] = max(passed - seconds, 0.0)

    def _prompts(self, count: int) -> list[list[int]]:
        # All different, so that none finds its prefix cached.
        return [self._draw.choices(_TOKEN_IDS, k=self._prompt_tokens) for _ in range(count)]

    def _learn(self, depth: int, before: dict[str, Any], after: dict[str, Any]) -> None:
        old, new = before["by_depth"][str(depth)], after["by_depth"][str(depth)]
        requests = new["requests"] - old["requests"]
        if requests:
            self._advance[depth] = max((new["tokens"] - old["tokens"]) / requests, 1.0)
        else:
            raise ServerError(
                expected=f"rounds at the forced depth {depth}",
                found="none",
                remedy="read the server's log",
            )

    def _check_alone(
        self, before: dict[str, Any], after: dict[str, Any], size: int, tokens: int
    ) -> None:
        found = after["tokens"] - before["tokens"]
        if found > size * tokens:
            raise _busy(f"{found - size * tokens} tokens more than were asked for")


def _difference(
    before: dict[str, Any], after: dict[str, Any], depth: int, size: int
) -> tuple[int, dict[str, Any]]:
    """
    Return what the timed rounds of a depth and batch size added up to in between.

    Rounds are timed by the size they are run at: the batch size, or the next one with a CUDA graph.

    Returns:
        That size, and the sums; zeros without such rounds.
    """
    names = ("rounds", "seconds", "seq_len_sum", "upkeep_rounds", "upkeep_seconds")
    old = _rows(before, depth)
    for padded, row in sorted(_rows(after, depth).items()):
        added = {name: row[name] - old.get(padded, {}).get(name, 0) for name in names}
        if padded >= size and added["rounds"]:
            return padded, added
    return size, dict.fromkeys(names, 0)


def _rows(account: dict[str, Any], depth: int) -> dict[int, dict[str, Any]]:
    return {row["padded_batch_size"]: row for row in account["timed"] if row["depth"] == depth}


def _idle(server: Client) -> dict[str, Any]:
    """Return the server's account, once it has nothing to do."""
    for _ in range(_LOOKS):
        info = server.info()
        account = info["dynspec"]
        # A request that has just ended may still be listed at the first look.
        if not account["running"] and not account["waiting"]:
            return info
        time.sleep(_BETWEEN_LOOKS)
    raise _busy(f"{account['running']} running and {account['waiting']} waiting")


def _busy(found: str) -> ServerError:
    return ServerError(
        expected="no requests but our own",
        found=found,
        remedy="calibrate while nobody else uses the server",
    )
