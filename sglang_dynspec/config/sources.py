"""
Where configuration comes from: the environment, a TOML file, flags, ``KEY=VALUE`` pairs.

Each source becomes a `Source`, checked for unknown keys; `merge` lays one over another.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sglang_dynspec.errors import ConfigError

#: Prefix of the environment variables that set fields.
PREFIX = "SGLANG_DYNSPEC_"

#: Variables with our prefix that are not fields; they belong to the code that knows the engine.
ENGINE_VARIABLES = frozenset({"SGLANG_DYNSPEC_CPU_ENGINE", "SGLANG_DYNSPEC_ALLOW_VERSION"})

_SWITCHES = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}

Fields = Mapping[str, FieldInfo]


@dataclass(slots=True)
class Source:
    """
    What one source sets.

    Attributes:
        values: Fields by name, options aside.

        options: Options of the policy by name.

        origins: For messages, where each of them was found: ``--dynspec-option depths=0,9``.
    """

    values: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merged:
    """
    All sources together: the values of the model's fields, and where each was found.
    """

    values: dict[str, Any]
    origins: dict[str, str]


def merge(policy: str, sources: Iterable[Source]) -> Merged:
    """
    Lay sources over one another.

    Args:
        policy: The default policy.

        sources: Lowest precedence first.

    Returns:
        The values that win. A source that names another policy than those below it leaves their
        options behind, since options belong to a policy.
    """
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source in sources:
        named = source.values.get("policy", policy)
        if named != policy:
            policy, options = named, {}
        values |= source.values
        options |= source.options
        origins |= source.origins
    if options:
        values.setdefault("options", options)
    return Merged(values, origins)


def from_environment(environ: Mapping[str, str], fields: Fields) -> Source:
    """
    Read ``SGLANG_DYNSPEC_<FIELD>``; ``SGLANG_DYNSPEC_OPTIONS`` is a JSON object.

    Args:
        environ: The environment.

        fields: Fields of the model.

    Returns:
        What the environment sets.

    Raises:
        ConfigError: A variable with our prefix names no field.
    """
    source = Source()
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in ENGINE_VARIABLES:
            continue
        name = variable.removeprefix(PREFIX).lower()
        text = environ[variable]
        origin = f"{variable}={text} in the environment"
        if name not in fields:
            raise _unknown(name, fields, f"the environment, as {variable}")
        _put(source, name, _read(name, text, fields), origin)
    return source


def from_file(path: Path | None, fields: Fields) -> Source:
    """
    Read a TOML file: fields at the top level, the policy's options in ``[options]``.

    Args:
        path: The file, or None for none.

        fields: Fields of the model.

    Returns:
        What the file sets.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or holds an unknown key.
    """
    source = Source()
    if path is None:
        return source
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(
            expected=f"a readable file at {path}",
            found=f"{type(error).__name__}: {error.strerror}",
            remedy="correct --dynspec-config",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            expected=f"TOML in {path}",
            found=str(error),
            remedy='write fields as policy = "threshold", options under [options]',
        ) from error
    for name, value in table.items():
        if name not in fields:
            raise _unknown(name, fields, str(path))
        _put(source, name, value, f"{name} in {path}")
    return source


def from_flags(flags: Mapping[str, Any] | None, fields: Fields) -> Source:
    """
    Take fields given by name; a value of None stands for one that was not given.

    Args:
        flags: Fields by name, or None for none.

        fields: Fields of the model.

    Returns:
        What the flags set.

    Raises:
        ConfigError: A name is not a field.
    """
    source = Source()
    for name, value in (flags or {}).items():
        if name not in fields:
            raise _unknown(name, fields, "the arguments")
        if value is not None:
            _put(source, name, value, f"{name}={value!r}")
    return source


def from_pairs(pairs: Iterable[str], fields: Fields) -> Source:
    """
    Read ``KEY=VALUE`` texts, a later one over an earlier one.

    Args:
        pairs: The texts.

        fields: Fields of the model. Any other KEY is an option of the policy.

    Returns:
        What the pairs set.

    Raises:
        ConfigError: A text is not of the form ``KEY=VALUE``.
    """
    source = Source()
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(
                expected="--dynspec-option KEY=VALUE",
                found=repr(pair),
                remedy="for example --dynspec-option batch_size=16",
            )
        origin = f"--dynspec-option {pair}"
        if key in fields:
            _put(source, key, _read(key, text, fields), origin)
        else:
            source.options[key] = _json_or_text(text)
            source.origins[f"options.{key}"] = origin
    return source


def explain(error: ValidationError, origins: Mapping[str, str]) -> ConfigError:
    """
    Turn pydantic's first complaint into ours.

    Args:
        error: What pydantic raised.

        origins: Where each field was found.

    Returns:
        The error to raise.
    """
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    name = path.split(".", maxsplit=1)[0]
    cause = first.get("ctx", {}).get("error")
    origin = origins.get(name)
    if isinstance(cause, ConfigError):
        found = cause.found + (f" ({origin})" if origin else "")
        return ConfigError(expected=cause.expected, found=found, remedy=cause.remedy)
    found = origin or repr(first["input"])
    _, phrased, wanted = first["msg"].partition("Input should be ")
    return ConfigError(
        expected=f"{path or 'the configuration'} to be {wanted if phrased else 'valid'}",
        found=found if phrased else f"{found} ({first['msg']})",
        remedy=f"correct {name or 'it'}, or leave it out",
    )


def closest(name: str, known: Iterable[str]) -> str:
    """
    Phrase a remedy for a mistyped name.

    Args:
        name: What was given.

        known: What would have been accepted.

    Returns:
        ``did you mean X?`` if something is close, and the list of what is accepted.
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.6)
    accepted = f"accepted: {', '.join(names) or 'none'}"
    return f"did you mean {' or '.join(near)}? {accepted}" if near else accepted


def _unknown(name: str, known: Iterable[str], place: str) -> ConfigError:
    return ConfigError(
        expected="a known key",
        found=f"{name!r} in {place}",
        remedy=closest(name, known),
    )


def _put(source: Source, name: str, value: Any, origin: str) -> None:
    if name == "options" and isinstance(value, Mapping):
        source.options |= value
    else:
        source.values[name] = value
    source.origins[name] = origin


def _read(name: str, text: str, fields: Fields) -> Any:
    if name in ("policy", "trace", "calibration"):
        return text
    if fields[name].annotation in (bool, bool | None):
        return _SWITCHES.get(text.strip().lower(), _json_or_text(text))
    if name == "depths" and not text.lstrip().startswith("["):
        return [_json_or_text(part) for part in text.split(",")]
    return _json_or_text(text)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
