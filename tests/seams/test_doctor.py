"""`dynspec doctor`: each thing it may find, and its exit status."""

import dataclasses
import json
from importlib import metadata

import pytest
import typer
from typer.testing import CliRunner

from sglang_dynspec_hooks import seams
from sglang_dynspec_hooks.commands import _diagnosis
from sglang_dynspec_hooks.commands.doctor import command
from sglang_dynspec_hooks.contract import comparison
from sglang_dynspec_hooks.contract import version as sglang_version
from sglang_dynspec_hooks.contract.comparison import Verdict

APP = typer.Typer()
APP.command()(command)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SGLANG_PLUGINS", "SGLANG_PLATFORM", sglang_version.ALLOW_VERSION):
        monkeypatch.delenv(name, raising=False)


def doctor(*arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(APP, list(arguments))
    return result.exit_code, result.output.splitlines()


def failures(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("FAIL ")]


def test_all_is_well() -> None:
    status, lines = doctor()
    assert status == 0
    assert failures(lines) == []
    version = metadata.version("sglang-dynspec")
    assert lines[:5] == [
        f"ok   entry point: sglang-dynspec {version}, sglang_dynspec_hooks.entry:activate",
        "ok   SGLANG_PLUGINS: not set, every plugin loads",
        "ok   SGLANG_PLATFORM: not set, no distribution is left out",
        "ok   entry module: imports the standard library alone",
        "ok   sglang: 0.5.23, supported (==0.5.23)",
    ]
    for record in seams.records():
        use = "call" if isinstance(record, comparison.Called) else "hook"
        assert f"ok   {use} {record.target}: the recorded body" in lines
    for name in ("always", "depth_table", "never", "threshold"):
        assert any(line.startswith(f"ok   policy {name}: ") for line in lines)
    assert lines[-1] == f"{len(lines) - 1} checks, 0 failed"


def test_json() -> None:
    status, lines = doctor("--json")
    document = json.loads("\n".join(lines))
    assert status == 0
    assert document["failed"] == 0
    assert document["checks"][1] == {
        "verdict": "ok",
        "subject": "SGLANG_PLUGINS",
        "text": "not set, every plugin loads",
    }


def test_a_plugin_list_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "other")
    status, lines = doctor()
    assert status == 1
    assert failures(lines) == [
        (
            "FAIL SGLANG_PLUGINS: expected dynspec among the plugins that SGLANG_PLUGINS allows; "
            "found SGLANG_PLUGINS=other; unset it, or set SGLANG_PLUGINS=other,dynspec"
        )
    ]
    assert lines[-1].endswith("checks, 1 failed")


def test_a_plugin_list_with_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "other, dynspec")
    status, lines = doctor()
    assert status == 0
    assert "ok   SGLANG_PLUGINS: allows dynspec" in lines


def test_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLATFORM", "xpu")
    status, lines = doctor()
    assert status == 0
    assert "ok   SGLANG_PLATFORM: xpu, which keeps sglang-dynspec" in lines


def test_no_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    points = metadata.entry_points
    monkeypatch.setattr(
        _diagnosis.metadata,
        "entry_points",
        lambda group: () if group == "sglang.srt.plugins" else points(group=group),
    )
    status, lines = doctor()
    assert status == 1
    assert failures(lines) == [
        (
            "FAIL entry point: "
            "expected one entry point dynspec = sglang_dynspec_hooks.entry:activate "
            "in the group sglang.srt.plugins; found none; "
            "reinstall sglang-dynspec in the environment of SGLang"
        )
    ]


def test_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version
    monkeypatch.setattr(
        sglang_version.metadata,
        "version",
        lambda name: "0.5.24" if name == "sglang" else installed(name),
    )
    status, lines = doctor()
    assert status == 1
    assert failures(lines)[0].startswith(
        "FAIL sglang: expected sglang==0.5.23; found sglang 0.5.24"
    )
    # No body is on record for it: worth a word each, not a failure.
    assert sum(line.startswith("warn ") for line in lines) == len(seams.records())
    monkeypatch.setenv(sglang_version.ALLOW_VERSION, "1")
    status, lines = doctor()
    assert status == 0
    assert any(
        line.startswith("ok   sglang: 0.5.24, outside ==0.5.23 but allowed") for line in lines
    )


def test_a_changed_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = seams.records()
    changed = dataclasses.replace(first, parameters=("parser", "more"))
    monkeypatch.setattr(seams, "records", lambda: (changed, *others))
    status, lines = doctor()
    assert status == 1
    assert failures(lines) == [
        (
            "FAIL hook sglang.srt.server_args.ServerArgs.add_cli_args: "
            "expected sglang.srt.server_args.ServerArgs.add_cli_args(parser, more); "
            "found sglang.srt.server_args.ServerArgs.add_cli_args(parser); "
            "install a supported SGLang version"
        )
    ]


def test_a_policy_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_dynspec.loading import infos

    broken = infos.PolicyInfo(name="broken", target="no_such:Policy", documentation="", options={})
    monkeypatch.setattr(infos, "list_policies", lambda: [broken])
    status, lines = doctor()
    assert status == 1
    assert failures(lines)[0].startswith("FAIL policy broken: expected a policy's name")


def test_seams_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[comparison.Record, ...]:
        raise ImportError("no torch")

    monkeypatch.setattr(seams, "records", fail)
    checks = _diagnosis.diagnose()
    broken = [check for check in checks if check.verdict is Verdict.BROKEN]
    assert [check.subject for check in broken] == ["seams"]
    assert "found ImportError: no torch" in broken[0].text
