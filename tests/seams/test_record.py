"""How the configuration travels: on the record, and in the environment."""

import os
from types import SimpleNamespace

import pytest

from sglang_dynspec import Config, SeamError
from sglang_dynspec_hooks import _record
from sglang_dynspec_hooks.entry import ENABLED

CONFIG = Config(policy="always", seed=3)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENABLED, "")
    monkeypatch.delenv(ENABLED)
    monkeypatch.setattr(_record, "_exported", None)


def test_a_record_gives_back_what_was_attached() -> None:
    record = SimpleNamespace()
    _record.attach(record, CONFIG)
    assert record._dynspec == CONFIG.to_json()
    assert _record.config_of(record) == CONFIG


def test_a_record_without_a_configuration_is_an_error() -> None:
    with pytest.raises(SeamError) as caught:
        _record.config_of(SimpleNamespace())
    assert caught.value.found == (
        "a speculative server whose arguments carry no configuration of ours"
    )
    assert "load_plugins()" in caught.value.remedy


def test_the_record_wins_over_the_environment() -> None:
    os.environ[ENABLED] = Config(policy="never").to_json()
    record = SimpleNamespace(model_path="m")
    assert _record.requested(record) == Config(policy="never")
    _record.attach(record, CONFIG)
    assert _record.requested(record) == CONFIG


@pytest.mark.parametrize("model", ["dummy", "None"])
def test_a_record_without_a_model_asks_for_nothing(model: str) -> None:
    os.environ[ENABLED] = CONFIG.to_json()
    assert _record.requested(SimpleNamespace(model_path=model)) is None


def test_nothing_asked_for() -> None:
    assert _record.requested(SimpleNamespace(model_path="m")) is None


def test_only_what_a_command_line_exported_is_withdrawn() -> None:
    _record.export(CONFIG)
    assert os.environ[ENABLED] == CONFIG.to_json()
    _record.withdraw()
    assert ENABLED not in os.environ
    os.environ[ENABLED] = "a user's own"
    _record.withdraw()
    assert os.environ[ENABLED] == "a user's own"
