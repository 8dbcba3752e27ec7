import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from sglang_dynspec import Outcome, Plan, __version__, cli
from sglang_dynspec.cli import _app, build_app
from sglang_dynspec.config.flags import FLAGS
from sglang_dynspec.trace import TraceHeader, TraceWriter


@pytest.fixture
def dynspec():
    """Run a command and give its output, which has to be a success."""

    def run(*arguments):
        result = CliRunner().invoke(build_app(), arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture
def trace(tmp_path, observe):
    path = tmp_path / "trace.jsonl"
    writer = TraceWriter(path, TraceHeader(policy="threshold", depths=(0, 3)))
    for index in range(40):
        size, depth = (1, 3) if index < 20 else (16, 0)
        writer.write(
            observe(size),
            Plan(depth=depth),
            Outcome(
                round=index,
                depth=depth,
                planned=depth,
                batch_size=size,
                accepted=(1,) * size if depth else (),
                tokens=size * (2 if depth else 1),
                period=0.01,
            ),
        )
    writer.close()
    return path


class TestMain:
    @pytest.fixture
    def lacking(self, monkeypatch):
        """Run `dynspec`, whose command lacks a module."""

        def run(module):
            def command():
                raise ModuleNotFoundError(f"No module named {module!r}", name=module)

            monkeypatch.setattr(cli, "build_app", lambda: command)
            cli.main()

        return run

    def test_a_package_that_lacks_is_named(self, lacking):
        with pytest.raises(SystemExit) as caught:
            lacking("httpx")
        assert caught.value.code == (
            "dynspec: expected what this command imports to load; found No module named 'httpx'; "
            "install what is missing: pip install 'sglang-dynspec[sglang,testing]'"
        )

    def test_one_of_our_own_is_a_fault(self, lacking):
        with pytest.raises(ModuleNotFoundError):
            lacking("sglang_dynspec_hooks.client")


class TestFlags:
    def test_every_flag_is_shown(self, dynspec):
        shown = dynspec("flags")
        assert all(flag.usage in shown for flag in FLAGS)
        assert "[options]" in shown

    def test_json(self, dynspec):
        flags = json.loads(dynspec("flags", "--json"))
        assert [flag["name"] for flag in flags] == [
            "--enable-plugin",
            "--dynspec-policy",
            "--dynspec-option",
            "--dynspec-config",
            "--dynspec-trace",
        ]
        assert [flag["nargs"] for flag in flags] == ["+", None, "+", None, None]

    def test_names_and_destinations_agree(self):
        assert all(flag.dest == flag.name.lstrip("-").replace("-", "_") for flag in FLAGS)


class TestPolicies:
    def test_table(self, dynspec):
        shown = dynspec("policies")
        assert "threshold" in shown
        assert "batch_size=None" in shown
        assert "Decode plainly in every round." in shown

    def test_json(self, dynspec):
        policies = {each["name"]: each for each in json.loads(dynspec("policies", "--json"))}
        assert {"always", "depth_table", "goodput", "never", "threshold"} <= policies.keys()
        assert list(policies) == sorted(policies)
        assert policies["threshold"]["options"]["hysteresis"] == "None"
        assert policies["never"]["summary"] == "Decode plainly in every round."

    def test_one_in_full(self, dynspec):
        lines = dynspec("policies", "threshold").splitlines()
        assert lines[0].startswith("Speculate up to a batch size")
        assert any(line.strip().startswith("hysteresis: How far below") for line in lines)
        assert lines[-4:] == [
            "Defaults:",
            "    batch_size=None",
            "    hysteresis=None",
            "    depth=None",
        ]
        assert dynspec("policies", "never").splitlines()[-1] == "It has no options."
        (found,) = json.loads(dynspec("policies", "threshold", "--json"))
        assert found["name"] == "threshold"

    def test_an_unknown_one_is_refused_with_the_known_ones(self):
        result = CliRunner().invoke(build_app(), ["policies", "thresh"])
        assert result.exit_code == 1
        assert "found 'thresh'" in str(result.exception)
        assert "threshold" in str(result.exception)

    def test_one_by_its_path(self, dynspec):
        path = "sglang_dynspec.policies.never:Never"
        (found,) = json.loads(dynspec("policies", path, "--json"))
        assert (found["name"], found["target"]) == (path, path)
        assert found["summary"] == "Decode plainly in every round."


class TestReport:
    def test_table(self, dynspec, trace):
        lines = [" ".join(line.split()) for line in dynspec("report", str(trace)).splitlines()]
        heading = "phase rounds mean batch plain depth 3 accepted length tokens/s switches"
        assert heading in lines
        assert "batch 1 20 1.0 0% 100% 2.00 200 0" in lines
        assert "batch 16 20 16.0 100% 0% - 1,600 1" in lines

    def test_json(self, dynspec, trace):
        low, high = json.loads(dynspec("report", str(trace), "--json"))
        assert low["shares"] == {"3": 1.0}
        assert high["tokens_per_second"] == pytest.approx(1600)

    def test_png(self, dynspec, trace, tmp_path):
        png = tmp_path / "a.png"
        assert f"picture: {png}" in dynspec("report", str(trace), "--png", str(png))
        assert png.read_bytes().startswith(b"\x89PNG")


def test_version(dynspec):
    assert dynspec("--version") == f"{__version__}\n"


def test_help_lists_the_commands(dynspec):
    shown = dynspec("--help")
    assert all(name in shown for name in ("flags", "policies", "report", "--version"))


class TestCommandsOfOthers:
    def test_one_that_loads(self, monkeypatch, dynspec):
        import typer

        class Found(EntryPoint):
            def load(self):
                return lambda: typer.echo("theirs")

        found = Found(name="theirs", value="x:y", group="g")
        monkeypatch.setattr(_app, "entry_points", lambda group: [found])
        assert dynspec("theirs") == "theirs\n"

    def test_one_that_does_not_load(self, monkeypatch, dynspec):
        found = EntryPoint(name="broken", value="no_such_module:command", group="g")
        monkeypatch.setattr(_app, "entry_points", lambda group: [found])
        assert "(does not load: " in dynspec("--help")
        result = CliRunner().invoke(build_app(), ["broken"])
        assert "expected the command broken to load" in str(result.exception)
        assert "no_such_module" in str(result.exception)


class TestExitStatus:
    def run(self, *arguments):
        command = [sys.executable, "-m", "sglang_dynspec.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_success(self):
        assert self.run("--version").returncode == 0

    def test_a_refusal_is_one_line(self, tmp_path):
        (tmp_path / "x").write_text("something else")
        done = self.run("report", str(tmp_path / "x"))
        assert done.returncode == 1
        assert done.stderr.startswith("dynspec: expected a trace, ")
        assert len(done.stderr.splitlines()) == 1

    def test_a_missing_file_is_one_line(self, tmp_path):
        done = self.run("report", str(tmp_path / "none"))
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)

    def test_a_wrong_command_line(self):
        assert self.run("nope").returncode == 2
