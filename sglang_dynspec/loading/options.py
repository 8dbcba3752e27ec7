"""
Checking a policy's options against the annotations of its ``__init__``.
"""

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from sglang_dynspec.config import Config
from sglang_dynspec.config.sources import closest
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.log import describe
from sglang_dynspec.policy import Policy

_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_REQUIRED = inspect.Parameter.empty

_Lax = ConfigDict(arbitrary_types_allowed=True, coerce_numbers_to_str=True)


def option_defaults(kind: type[Policy]) -> dict[str, str]:
    """
    List a policy's options.

    Args:
        kind: The policy's class.

    Returns:
        Its options and their defaults as Python writes them; ``required`` where there is none.
    """
    return {
        name: "required" if parameter.default is _REQUIRED else repr(parameter.default)
        for name, parameter in _parameters(kind).items()
    }


def validated_options(
    kind: type[Policy], options: Mapping[str, Any], *, name: str
) -> dict[str, Any]:
    """
    Check options, and convert those that came as text.

    Args:
        kind: The policy's class.

        options: The options given.

        name: What to call the policy in messages.

    Returns:
        Keyword arguments for the class.

    Raises:
        ConfigError: An option is unknown, missing or of the wrong type.
    """
    parameters = _parameters(kind)
    for option in options:
        if option not in parameters:
            raise ConfigError(
                expected=f"an option of the policy {name}, or a field of the configuration",
                found=repr(option),
                # A mistyped field of the configuration ends up here too.
                remedy=closest(option, [*parameters, *Config.model_fields]),
            )
    for option, parameter in parameters.items():
        if option not in options and parameter.default is _REQUIRED:
            raise ConfigError(
                expected=f"the policy {name} to be given its option {option}",
                found="nothing",
                remedy=f"add --dynspec-option {option}=VALUE",
            )
    hints = _hints(kind, name)
    return {
        option: _validated(option, value, hints.get(option, Any), name)
        for option, value in options.items()
    }


def _parameters(kind: type[Policy]) -> dict[str, inspect.Parameter]:
    return {
        parameter.name: parameter
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.kind in _NAMED
    }


def _hints(kind: type[Policy], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(kind.__init__, include_extras=True)
    except Exception as error:
        raise ConfigError(
            expected=f"the annotations of {name}'s __init__ to be importable",
            found=describe(error),
            remedy="import what they name at run time, not under TYPE_CHECKING",
        ) from error


def _validated(option: str, value: Any, hint: Any, name: str) -> Any:
    model = create_model("Option", __config__=_Lax, value=(hint, ...))
    try:
        return _field(model, value, strict=True)
    except ValidationError as error:
        # Text from a command line, JSON's lists for tuples and whole numbers for text are fine;
        # a boolean that passes for a number is a mistake.
        if isinstance(value, bool):
            raise _refused(option, value, name, error) from error
    try:
        return _field(model, value, strict=False)
    except ValidationError as error:
        raise _refused(option, value, name, error) from error


def _field(model: type[BaseModel], value: Any, *, strict: bool) -> Any:
    return dict(model.model_validate({"value": value}, strict=strict))["value"]


def _refused(option: str, value: Any, name: str, error: ValidationError) -> ConfigError:
    message = error.errors()[0]["msg"].removeprefix("Input should be ")
    return ConfigError(
        expected=f"option {option} of the policy {name} to be {message}",
        found=repr(value),
        remedy="'dynspec policies' lists the options",
    )
