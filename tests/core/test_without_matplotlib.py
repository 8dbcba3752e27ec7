"""Where the extra [report] is not installed: no pictures, and all the rest."""

import json
import sys

import pytest
from typer.testing import CliRunner

from sglang_dynspec import ConfigError
from sglang_dynspec.cli import build_app
from sglang_dynspec.replay import suite_run
from sglang_dynspec.trace import TraceHeader, TraceWriter
from sglang_dynspec.trace.figure import empty_figure
from tests.core.test_replay_cli import FAST


@pytest.fixture(autouse=True)
def no_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    TraceWriter(path, TraceHeader(depths=(0, 3))).close()
    return str(path)


def invoke(*arguments):
    return CliRunner().invoke(build_app(), arguments)


def test_a_picture_is_refused_with_what_to_install():
    with pytest.raises(ConfigError) as caught:
        empty_figure(1, 1)
    assert caught.value.expected == "matplotlib, which draws pictures"
    assert "matplotlib" in caught.value.found
    assert caught.value.remedy.startswith("pip install 'sglang-dynspec[report]'")


def test_a_report_needs_it_for_the_picture_alone(trace, tmp_path):
    assert "0 rounds" in invoke("report", trace).stdout
    # Before anything is read.
    refused = invoke("report", str(tmp_path / "none"), "--png", str(tmp_path / "a.png"))
    assert isinstance(refused.exception, ConfigError)
    assert "sglang-dynspec[report]" in str(refused.exception)


def test_a_replay_needs_it_for_pictures_alone(tmp_path, monkeypatch):
    replay = ("replay", "--policy", "never", *FAST)
    assert json.loads(invoke(*replay, "--json").stdout)["pictures"] == []
    monkeypatch.setattr(suite_run, "replay", lambda *_, **__: pytest.fail("it ran"))
    out = tmp_path / "pictures"
    refused = invoke(*replay, "--plot", str(out))
    assert isinstance(refused.exception, ConfigError)
    assert "sglang-dynspec[report]" in str(refused.exception)
    assert not out.exists()
