"""
Finding policies and observers.

A policy is named by the entry-point group ``sglang_dynspec.policies``, by a plugin's
``dynspec_register_policies``, or directly as ``package.module:Class``. The built-in ones are
registered like anyone's.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pluggy

from sglang_dynspec import hookspecs
from sglang_dynspec.config import Config
from sglang_dynspec.config.sources import closest
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.loading.options import validated_options
from sglang_dynspec.log import describe
from sglang_dynspec.marker import PROJECT
from sglang_dynspec.policy import Limits, Policy

_GROUP = "sglang_dynspec.policies"

#: ``package.module:Class``.
_PATH = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")

#: What somebody else's code may raise. SystemExit included: a script that ends with ``sys.exit()``
#: would end the server without a word.
FAULTS = (Exception, SystemExit)


@cache
def plugin_manager() -> pluggy.PluginManager:
    """
    Get the plugin manager, with every plugin of the entry-point group ``sglang_dynspec`` loaded.

    Returns:
        The one manager of this process. Observers may be registered with it until the first round.

    Raises:
        ConfigError: A plugin cannot be loaded, or implements a hook that does not exist.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.load_setuptools_entrypoints(PROJECT)
        manager.check_pending()
    except FAULTS as error:
        raise ConfigError(
            expected=f"every plugin of the entry-point group {PROJECT} to load",
            found=describe(error),
            remedy="correct or uninstall that plugin",
        ) from error
    return manager


def load_policy(config: Config, limits: Limits) -> Policy:
    """
    Load, build and configure the policy a configuration names.

    Args:
        config: Names the policy and its options.

        limits: What the policy has to live within. The configuration adds the calibration file.

    Returns:
        The policy, ready to decide.

    Raises:
        ConfigError: There is no such policy, it cannot be loaded, or it refuses its options.
    """
    limits = replace(limits, calibration=config.calibration)
    return build_policy(config.policy, config.options, limits)


def find_policy(name: str) -> type[Policy]:
    """
    Find a policy's class.

    Args:
        name: A registered name, or ``package.module:Class``.

    Returns:
        The class.

    Raises:
        ConfigError: There is no such policy, or it is not a usable subclass of `Policy`.
    """
    if _PATH.fullmatch(name):
        with _current_directory_importable():
            found = _load(EntryPoint(name=name, value=name, group=_GROUP))
    else:
        offers = _offers()
        if name not in offers:
            raise ConfigError(
                expected="a policy's name, or package.module:Class",
                found=repr(name),
                remedy=closest(name, offers),
            )
        offer = offers[name]
        found = _load(offer) if isinstance(offer, EntryPoint) else offer
    return _checked(name, found)


def build_policy(
    policy: Policy | type[Policy] | str, options: Mapping[str, Any], limits: Limits
) -> Policy:
    """
    Build a policy, unless it is built already, and configure it.

    Args:
        policy: A policy that was never configured, its class, or its name as for `find_policy`.

        options: Its options, checked against the annotations of its ``__init__``.

        limits: What it has to live within.

    Returns:
        The policy, ready to decide.

    Raises:
        ConfigError: There is no such policy, an option is unknown, missing or of the wrong type, or
            the policy refuses.

        TypeError: There are options for a policy that is built already.
    """
    if isinstance(policy, Policy):
        if options:
            raise TypeError("options go with a policy's class or name, not with an instance")
        policy.configure(limits)
        return policy
    if isinstance(policy, str):
        kind, name = find_policy(policy), policy
    else:
        kind, name = policy, policy.__name__
    arguments = validated_options(kind, options, name=name)
    try:
        built = kind(**arguments)
        built.configure(limits)
    except ConfigError:
        raise
    except FAULTS as error:
        raise ConfigError(
            expected=f"the policy {name} to accept its options {dict(options)}",
            found=describe(error),
            remedy="correct the options, or the policy",
        ) from error
    return built


def policy_targets() -> dict[str, str]:
    """
    List the policies that can be selected by name.

    Returns:
        Name to where it comes from, ``package.module:Class``, sorted by name.
    """
    return {name: _target(offer) for name, offer in sorted(_offers().items())}


def _offers() -> dict[str, EntryPoint | type[Policy]]:
    offers: dict[str, EntryPoint | type[Policy]] = {}
    for found in entry_points(group=_GROUP):
        _offer(offers, found.name, found)
    for mapping in plugin_manager().hook.dynspec_register_policies():
        for name, kind in mapping.items():
            _offer(offers, name, kind)
    return offers


def _target(offer: EntryPoint | type[Policy]) -> str:
    if isinstance(offer, EntryPoint):
        return offer.value
    return f"{offer.__module__}:{offer.__qualname__}"


def _offer(
    offers: dict[str, EntryPoint | type[Policy]], name: str, offer: EntryPoint | type[Policy]
) -> None:
    before = offers.setdefault(name, offer)
    if _target(before) != _target(offer):
        raise ConfigError(
            expected=f"one policy called {name}",
            found=f"two, {_target(before)} and {_target(offer)}",
            remedy="uninstall one, or name the class as package.module:Class",
        )


def _load(found: EntryPoint) -> object:
    try:
        return found.load()
    except ModuleNotFoundError as error:
        missing = error.name or ""
        own = found.module == missing or found.module.startswith(f"{missing}.")
        raise ConfigError(
            expected=f"an importable module {found.module}",
            found=f"no module named {missing!r}" + ("" if own else ", which it imports"),
            remedy="set PYTHONPATH or install it" if own else f"install {missing}",
        ) from error
    except AttributeError as error:
        module = sys.modules.get(found.module)
        if module is None:
            raise _import_failed(found, error) from error
        raise ConfigError(
            expected=f"a class {found.attr} in {found.module}",
            found="none of that name",
            remedy=closest(found.attr, _policies_in(module)),
        ) from error
    except FAULTS as error:
        raise _import_failed(found, error) from error


def _import_failed(found: EntryPoint, error: BaseException) -> ConfigError:
    return ConfigError(
        expected=f"to import {found.module}",
        found=describe(error),
        remedy="correct the module",
    )


def _policies_in(module: object) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Policy) and value is not Policy
    ]


def _checked(name: str, found: object) -> type[Policy]:
    if not isinstance(found, type) or not issubclass(found, Policy):
        raise ConfigError(
            expected=f"{name} to be a subclass of sglang_dynspec.Policy",
            found=repr(found),
            remedy="derive the class from Policy",
        )
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ConfigError(
            expected=f"{name} to implement every abstract method of Policy",
            found=f"no {missing}",
            remedy=f"define {missing}",
        )
    return found


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    # `sglang serve` runs with its own directory in sys.path, not the user's. The user's comes last
    # and only for this import: for good, a folder called like an optional package would shadow its
    # absence everywhere else in the server.
    here = str(Path.cwd())
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)
