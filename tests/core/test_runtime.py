import os
from importlib.metadata import EntryPoint

import pytest

from sglang_dynspec import Config, ConfigError, disable, enable
from sglang_dynspec.config import enabling


@pytest.fixture(autouse=True)
def armed(monkeypatch):
    """Stand in for the engine's side, and keep the environment as it was."""
    calls = []

    class Arm(EntryPoint):
        def load(self):
            return calls.append

    monkeypatch.setattr(
        enabling, "entry_points", lambda group: [Arm(name="engine", value="x:y", group=group)]
    )
    monkeypatch.delenv("SGLANG_PLUGINS", raising=False)
    monkeypatch.setenv("SGLANG_DYNSPEC", "x")
    monkeypatch.delenv("SGLANG_DYNSPEC")
    return calls


def test_enable_and_disable(armed):
    config = enable(policy="always", options={"depth": 1})
    assert config.policy == "always"
    assert Config.from_json(os.environ["SGLANG_DYNSPEC"]) == config
    assert armed == [True]
    disable()
    assert "SGLANG_DYNSPEC" not in os.environ
    assert armed == [True, False]


def test_the_environment_fills_in(monkeypatch):
    monkeypatch.setenv("SGLANG_DYNSPEC_SEED", "5")
    assert enable().seed == 5


def test_a_refused_field_enables_nothing(armed):
    with pytest.raises(ConfigError, match="did you mean policy"):
        enable(polcy="always")
    assert "SGLANG_DYNSPEC" not in os.environ
    assert armed == []


@pytest.mark.parametrize("plugins", ["dynspec", "other, dynspec", "", ","])
def test_plugins_that_include_us(monkeypatch, armed, plugins):
    monkeypatch.setenv("SGLANG_PLUGINS", plugins)
    enable()
    assert armed == [True]


def test_plugins_that_exclude_us(monkeypatch, armed):
    monkeypatch.setenv("SGLANG_PLUGINS", "other")
    with pytest.raises(ConfigError, match="SGLANG_PLUGINS='other'") as caught:
        enable()
    assert caught.value.remedy == "set SGLANG_PLUGINS=other,dynspec"
    assert armed == []


def test_an_engine_side_that_fails_enables_nothing(monkeypatch):
    def fail(_):
        raise RuntimeError

    monkeypatch.setattr(enabling, "_arm", lambda: fail)
    with pytest.raises(RuntimeError):
        enable()
    assert "SGLANG_DYNSPEC" not in os.environ
    monkeypatch.setenv("SGLANG_DYNSPEC", "before")
    with pytest.raises(RuntimeError):
        enable()
    assert os.environ["SGLANG_DYNSPEC"] == "before"


def test_no_engine_side(monkeypatch):
    monkeypatch.setattr(enabling, "entry_points", lambda group: [])
    with pytest.raises(ConfigError, match="an entry point in the group"):
        enable()
