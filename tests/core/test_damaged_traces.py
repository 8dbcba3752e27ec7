"""Traces that are not as they were recorded: refused in a line, or read for what is right."""

import json
import math

import pytest
from typer.testing import CliRunner

from sglang_dynspec import ConfigError, Outcome, Plan, TraceError
from sglang_dynspec.cli import build_app
from sglang_dynspec.replay.recorded import replay_trace
from sglang_dynspec.replay.suites import Entry
from sglang_dynspec.trace import read_header, read_trace

HEADER = {"dynspec_trace": 1, "depths": [0, 1, 3], "policy": "goodput"}

ROUND = {
    "round": 0,
    "t": 0.1,
    "batch_size": 2,
    "padded_batch_size": 2,
    "running": 2,
    "waiting": 0,
    "seq_len_sum": 20,
    "seq_len_max": 10,
    "kv_free": 0.9,
    "depth": 1,
    "planned": 1,
    "reason": "",
    "accepted": [1, 0],
    "tokens": 3,
    "period": 0.01,
}


@pytest.fixture
def recorded(path):
    def write(rounds=3, header=None, **fields):
        lines = [HEADER | (header or {}), *[ROUND | fields] * rounds]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    return write


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accepted", 5),
        ("accepted", None),
        ("accepted", ["a"]),
        ("accepted", [-1]),
        ("batch_size", "2"),
        ("batch_size", 2.5),
        ("batch_size", True),
        ("batch_size", -2),
        ("depth", [1]),
        ("depth", -1),
        ("period", "0.01"),
        ("period", math.nan),
        ("period", math.inf),
        ("predicted", 3),
        ("probe", "no"),
        ("t", "now"),
        ("t", math.nan),
        ("tokens", "3"),
    ],
)
def test_a_value_that_cannot_be(recorded, field, value):
    with pytest.raises(TraceError, match=rf"something else in line 2 of .*: {field}\b"):
        read_trace(recorded(**{field: value}))


def test_a_line_nested_too_deeply(recorded):
    path = recorded()
    path.write_text(path.read_text() + "[" * 200_000 + "\n" + json.dumps(ROUND) + "\n")
    with pytest.raises(TraceError, match="something else in line 5"):
        read_trace(path)
    path.write_text("[" * 200_000)
    with pytest.raises(TraceError, match="whose first line is something else"):
        read_header(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("depths", 5), ("depths", ["a"]), ("depths", None), ("policy", 3), ("model", 3)],
)
def test_a_header_that_cannot_be(recorded, field, value):
    with pytest.raises(TraceError, match=rf"found in the first line of .*: {field}\b"):
        read_header(recorded(header={field: value}))


def test_a_boolean_is_no_version(recorded):
    with pytest.raises(TraceError, match="whose first line is something else"):
        read_header(recorded(header={"dynspec_trace": True}))


@pytest.mark.parametrize("depths", [(1,), (1, 0), (1, 1)])
def test_depths_in_any_order_and_without_plain(recorded, depths):
    trace = read_trace(recorded(rounds=20, header={"depths": depths}))
    result = replay_trace(trace, Entry(name="always", policy="always"))
    assert result.depth_shares == {0: 0.0, 1: 1.0}
    assert result.tells


def test_depths_that_no_server_has(recorded):
    trace = read_trace(recorded(header={"depths": [0, 99]}))
    with pytest.raises(ConfigError, match=r"up to 16; found 3 rounds of depths 0, 99"):
        replay_trace(trace, Entry(name="never", policy="never"))


@pytest.mark.parametrize("arguments", [["report"], ["replay", "--policy", "never", "--trace"]])
def test_names_are_no_markup(recorded, arguments):
    path = recorded(header={"policy": "[/red]mine", "model": "/m$\\frac$"})
    done = CliRunner().invoke(build_app(), [*arguments, str(path)])
    assert done.exit_code == 0, done.exception
    assert ("[/red]mine" in done.stdout) == (arguments == ["report"])


def test_names_are_no_formulas(recorded, tmp_path):
    path = recorded(header={"model": "/m$\\frac$"})
    picture = tmp_path / "picture.png"
    done = CliRunner().invoke(build_app(), ["report", str(path), "--png", str(picture)])
    assert done.exit_code == 0, done.exception
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["picture.qqq", "picture", "/"])
def test_a_picture_that_is_none(recorded, name):
    done = CliRunner().invoke(build_app(), ["report", str(recorded()), "--png", name])
    assert isinstance(done.exception, ConfigError)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"predicted": (math.nan, 1.0)}, None),
        ({"predicted": (1.0,), "confidence": math.inf}, None),
        ({"predicted": (object(),), "confidence": 0.5}, 0.5),
    ],
)
def test_what_json_cannot_hold_of_a_prediction_is_left_out(path, open_writer, observe, said, kept):
    writer = open_writer()
    plan = Plan(depth=3, blocked="dwell", **said)
    ran = Outcome(round=0, depth=0, planned=3, batch_size=1, accepted=(), tokens=1)
    writer.write(observe(), plan, ran)
    writer.close()
    (only,) = read_trace(path).rounds
    assert (only.predicted, only.confidence, only.blocked) == ((), kept, "dwell")
