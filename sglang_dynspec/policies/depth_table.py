"""
`DepthTable`: look the depth up by batch size.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.observation import Observation, Plan
from sglang_dynspec.policies._depth import check_candidate
from sglang_dynspec.policy import Limits, Policy

_EXAMPLES = {
    "table": '{"1-16": 3, "17-64": 1, "65-": 0}',
    "vllm": "[[1, 16, 3], [17, 64, 1]]",
    "trtllm": '{"4": 4, "8": 2, "32": 1}',
}

#: ``1-16``, ``65-`` (open) or ``7`` (one size).
_RANGE = re.compile(r"\s*([0-9]+)\s*(?:(-)\s*([0-9]+)?\s*)?")


class Row(NamedTuple):
    """
    Batch sizes `low` to `high`, inclusive, run at `depth`. A `high` of None is open.
    """

    low: int
    high: int | None
    depth: int

    def __str__(self) -> str:
        return f"{self.low}-{'' if self.high is None else self.high}: {self.depth}"


class DepthTable(Policy):
    """
    Look the depth up by batch size, in a table given in one of three forms.

    The forms look alike and mean different things, so each has an option of its own and none is
    guessed.

    Args:
        table: Depth by range of batch sizes: ``{"1-16": 3, "17-64": 1, "65-": 0}``. The last
            range is open.

        vllm: vLLM's ``num_speculative_tokens_per_batch_size``: ``[[low, high, depth], ...]``,
            both ends inclusive. As in vLLM, the last row's depth also holds above it.

        trtllm: TensorRT-LLM's ``draft_len_schedule``: depth by the largest batch size it holds
            for, ``{"4": 4, "8": 2, "32": 1}``. Above the last, plain.

    Raises:
        ConfigError: Not exactly one of the three is given, or the one that is does not make a
            table.

    Attributes:
        rows: The table, ascending; covers every batch size from 1 up.

        option: The option it was given by.
    """

    def __init__(
        self,
        *,
        table: Mapping[str, int] | None = None,
        vllm: Sequence[Sequence[int]] | None = None,
        trtllm: Mapping[str, int] | None = None,
    ) -> None:
        forms = {"table": table, "vllm": vllm, "trtllm": trtllm}
        given = [name for name, value in forms.items() if value is not None]
        if len(given) != 1:
            raise ConfigError(
                expected="depth_table to have exactly one of the options table, vllm, trtllm",
                found=" and ".join(given) or "none",
                remedy=f"for example --dynspec-option 'table={_EXAMPLES['table']}'",
            )
        self.option = given[0]
        if table is not None:
            rows = _rows_of_table(table)
        elif vllm is not None:
            rows = _rows_of_vllm(vllm)
        else:
            rows = _rows_of_trtllm(trtllm or {})
        self.rows = _checked(rows, self.option)
        self._starts = [row.low for row in self.rows[1:]]
        self._plans: list[Plan] = []

    def configure(self, limits: Limits) -> None:
        """
        Refuse options that make no sense within the limits.
        """
        super().configure(limits)
        for row in self.rows:
            check_candidate(row.depth, limits, option=f"{self.option} row {row}")
        self._plans = [Plan(depth=row.depth, reason=f"row {row}") for row in self.rows]

    def decide(self, observation: Observation) -> Plan:
        """
        Look the batch size up.
        """
        return self._plans[bisect_right(self._starts, observation.batch_size)]


def _rows_of_table(table: Mapping[str, int]) -> list[Row]:
    rows = []
    for key, depth in table.items():
        match = _RANGE.fullmatch(str(key))
        if match is None:
            raise _malformed("table", f"the range {key!r}")
        low, dash, high = match.groups()
        last = (int(high) if high else None) if dash else int(low)
        rows.append(Row(int(low), last, _depth("table", depth)))
    return rows


def _rows_of_vllm(vllm: Sequence[Sequence[int]]) -> list[Row]:
    rows = []
    for entry in vllm:
        if not isinstance(entry, list | tuple) or len(entry) != len(Row._fields):
            raise _malformed("vllm", f"the row {entry!r}")
        low, high, depth = (_depth("vllm", number) for number in entry)
        rows.append(Row(low, high, depth))
    rows.sort(key=lambda row: row.low)
    if rows and rows[-1].low <= (rows[-1].high or 0):
        rows[-1] = rows[-1]._replace(high=None)
    return rows


def _rows_of_trtllm(trtllm: Mapping[str, int]) -> list[Row]:
    bounds: dict[int, int] = {}
    for key, depth in trtllm.items():
        if not str(key).strip().isdecimal() or int(key) < 1:
            raise _malformed("trtllm", f"the bound {key!r}")
        if int(key) in bounds:
            raise _malformed("trtllm", f"the bound {int(key)} twice")
        bounds[int(key)] = _depth("trtllm", depth)
    rows = []
    low = 1
    for high, depth in sorted(bounds.items()):
        rows.append(Row(low, high, depth))
        low = high + 1
    return [*rows, Row(low, None, 0)] if rows else []


def _checked(rows: list[Row], option: str) -> list[Row]:
    if not rows:
        raise _malformed(option, "an empty table")
    rows = sorted(rows, key=lambda row: row.low)
    for row in rows:
        if row.high is not None and row.low > row.high:
            raise ConfigError(
                expected=f"each range of {option} to end no lower than it begins",
                found=f"the row {row}",
                remedy=f"write {row.high}-{row.low}",
            )
    covered = 0
    last: Row | None = None
    for row in rows:
        if last is not None and (last.high is None or row.low <= last.high):
            raise ConfigError(
                expected=f"the rows of {option} not to overlap",
                found=f"the rows {last} and {row}",
                remedy=f"end the first at {row.low - 1}, or begin the second later",
            )
        if row.low > covered + 1:
            raise _gap(option, covered + 1, row.low - 1)
        last = row
        covered = row.high if row.high is not None else row.low
    if last is not None and last.high is not None:
        raise _gap(option, covered + 1, None)
    if rows[0].low != 1:
        raise _malformed(option, f"the row {rows[0]}, whose batch sizes begin below 1")
    return rows


def _depth(option: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise _malformed(option, f"{value!r} where a whole number from 0 up belongs")
    return value


def _gap(option: str, low: int, high: int | None) -> ConfigError:
    missing = f"batch sizes {low} and up" if high is None else f"batch sizes {low} to {high}"
    written = f"{low}-" if high is None else f"{low}-{high}"
    return ConfigError(
        expected=f"the rows of {option} to cover every batch size from 1 up",
        found=f"no row for {missing}",
        remedy=f"add a row for {written}; depth 0 is plain",
    )


def _malformed(option: str, found: str) -> ConfigError:
    return ConfigError(
        expected=f"{option} to look like {_EXAMPLES[option]}",
        found=found,
        remedy="correct it; 'dynspec policies' describes the three forms",
    )
