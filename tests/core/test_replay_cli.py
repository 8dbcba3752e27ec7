"""``dynspec replay``, as its users call it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sglang_dynspec import ConfigError, Outcome, Plan
from sglang_dynspec.cli import build_app
from tests.core.test_replay_trace import RECORDED


@pytest.fixture
def dynspec():
    """Run a command and give its output, or the error it is refused with."""

    def run(*arguments, status=0, fails=None):
        result = CliRunner().invoke(build_app(), arguments)
        if fails is not None:
            assert isinstance(result.exception, fails)
            return result.exception
        assert result.exit_code == status, result.output
        return result.stdout

    return run


FAST = ("--scenario", "pcie-1", "--seeds", "1", "--jobs", "1", "--alone")


def test_table(dynspec):
    shown = dynspec("replay", "--policy", "never", *FAST)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "pcie-1 100.0%" in lines
    assert "geometric mean 100.00%" in lines
    assert any(line.startswith("ok steady share 1 >= 0.98") for line in lines)


def test_json(dynspec):
    document = json.loads(dynspec("replay", "--policy", "never", *FAST, "--json"))
    assert document["suite"] == "chosen"
    assert [row["scenario"] for row in document["results"]] == ["pcie-1"]
    checks = {each["name"]: each for each in document["checks"]}
    assert checks["steady share"]["passed"]
    assert not checks["turns off"]["measured"]
    assert document["pictures"] == []


def test_pictures(dynspec, tmp_path):
    out = tmp_path / "new" / "pictures"
    document = json.loads(
        dynspec("replay", "--policy", "threshold", *FAST, "--json", "--plot", str(out))
    )
    assert document["pictures"] == [str(out / "shares.png"), str(out / "pcie-1.png")]
    for picture in document["pictures"]:
        assert Path(picture).read_bytes().startswith(b"\x89PNG")


def test_options_and_bounds(dynspec):
    document = json.loads(
        dynspec(
            *("replay", "--policy", "always", "--option", "depth=1", "--option", "min_dwell=7"),
            *(*FAST, "--json"),
        )
    )
    entry = document["entries"][0]
    assert (entry["options"], entry["guard"]) == ({"depth": 1}, {"min_dwell": 7})
    assert document["results"][0]["depth_shares"]["1"] == 1.0


def test_a_missed_criterion_is_the_exit_status_where_asked_for(dynspec):
    always = ("replay", "--policy", "always", *FAST)
    assert "FAIL" in dynspec(*always)
    assert "FAIL" in dynspec(*always, "--check", status=1)


def test_list(dynspec):
    assert "8 to 256 requests in 256 rounds" in dynspec("replay", "--list")
    listed = json.loads(dynspec("replay", "--list", "--json"))
    assert {"name", "summary", "server", "warm_up", "horizon", "transitions"} <= set(listed[0])


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--policy", "nope"), "'nope'"),
        (("--scenario", "nope"), "'nope'"),
        (("--suite", "nope"), "'nope'"),
        (("--policy", "never", "--option", "depths=0,1"), "'depths'"),
        (("--policy", "never", "--option", "sise=1"), "'sise'"),
        (("--policy", "never", "--trace", "t.jsonl", "--check"), "one of them beside it"),
    ],
)
def test_what_does_not_exist_is_refused(dynspec, arguments, found):
    error = dynspec("replay", "--jobs", "1", *arguments, fails=ConfigError)
    assert error.found == found


class TestTrace:
    @pytest.fixture
    def recorded(self, path, open_writer, observe):
        writer = open_writer()
        for each in RECORDED.rounds:
            writer.write(
                observe(each.batch_size),
                Plan(depth=each.depth),
                Outcome(
                    round=each.round,
                    depth=each.depth,
                    planned=each.depth,
                    batch_size=each.batch_size,
                    accepted=each.accepted,
                    tokens=each.tokens,
                    period=each.period,
                ),
            )
        writer.close()
        return str(path)

    def test_table(self, dynspec, recorded):
        shown = dynspec("replay", "--trace", recorded, "--policy", "always")
        lines = [" ".join(line.split()) for line in shown.splitlines()]
        assert "always on 100 recorded rounds, 100.0% of them told" in lines
        assert "recorded 40% 0% 60% - 13" in lines
        assert "replayed 0% 0% 100% 0 13" in lines

    def test_what_it_does_not_tell(self, dynspec, recorded):
        shown = dynspec("replay", "--trace", recorded, "--policy", "never")
        assert (
            "not in the trace: depth 0 at a padded batch size of 32, wanted for 40 rounds; 0 were "
            "recorded, 16 are needed" in shown
        )
        assert "the trace tells 60% of the rounds; 95% are needed" in shown

    def test_json(self, dynspec, recorded):
        result = json.loads(dynspec("replay", "--trace", recorded, "--policy", "never", "--json"))
        assert result["covered"] == 0.6
        assert result["missing"] == [
            {"depth": 0, "padded_batch_size": 32, "wanted": 40, "recorded": 0}
        ]
