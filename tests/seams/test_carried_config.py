"""How the configuration travels: on the arguments, and in the environment."""

import os
from types import SimpleNamespace

import pytest

from sglang_dynspec import Config, SeamError
from sglang_dynspec_hooks import carried_config
from sglang_dynspec_hooks.process import ENABLED

CONFIG = Config(policy="always", seed=3)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENABLED, "")
    monkeypatch.delenv(ENABLED)
    monkeypatch.setattr(carried_config, "_exported", None)


def test_arguments_give_back_what_was_attached() -> None:
    resolved = CONFIG.resolve(3)
    arguments = SimpleNamespace()
    carried_config.attach(arguments, resolved)
    assert arguments._dynspec == resolved.to_json()
    assert carried_config.config_of(arguments) == resolved


def test_arguments_without_a_configuration_are_an_error() -> None:
    with pytest.raises(SeamError) as caught:
        carried_config.config_of(SimpleNamespace())
    assert caught.value.found == (
        "a speculative server whose arguments carry no configuration of ours"
    )
    assert "load_plugins()" in caught.value.remedy


def test_arguments_win_over_the_environment() -> None:
    os.environ[ENABLED] = Config(policy="never").to_json()
    arguments = SimpleNamespace(model_path="m")
    assert carried_config.requested(arguments) == Config(policy="never")
    carried_config.attach(arguments, CONFIG)
    assert carried_config.requested(arguments) == CONFIG


@pytest.mark.parametrize("model", ["dummy", "None"])
def test_a_record_without_a_model_asks_for_nothing(model: str) -> None:
    os.environ[ENABLED] = CONFIG.to_json()
    assert carried_config.requested(SimpleNamespace(model_path=model)) is None


def test_nothing_asked_for() -> None:
    assert carried_config.requested(SimpleNamespace(model_path="m")) is None


def test_only_what_a_command_line_exported_is_withdrawn() -> None:
    carried_config.export(CONFIG)
    assert os.environ[ENABLED] == CONFIG.to_json()
    carried_config.withdraw()
    assert ENABLED not in os.environ
    os.environ[ENABLED] = "a user's own"
    carried_config.withdraw()
    assert os.environ[ENABLED] == "a user's own"
