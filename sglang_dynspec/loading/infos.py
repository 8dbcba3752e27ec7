"""
What is to be said of a policy before it runs.
"""

import inspect
from dataclasses import dataclass

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.loading.options import option_defaults
from sglang_dynspec.loading.plugins import FAULTS, find_policy, policy_targets
from sglang_dynspec.log import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """
    A policy that can be selected.

    Attributes:
        name: What selects it.

        target: Where it comes from, ``package.module:Class``.

        documentation: Its docstring, or what kept it from being described.

        options: Its options and their defaults, as Python writes them.
    """

    name: str
    target: str
    documentation: str
    options: dict[str, str]

    @property
    def summary(self) -> str:
        """
        The first line of its documentation.
        """
        return self.documentation.partition("\n")[0]


def policy_info(name: str, target: str | None = None) -> PolicyInfo:
    """
    Describe one policy.

    Args:
        name: A registered name, or ``package.module:Class``.

        target: Where it comes from; None for its class.

    Raises:
        ConfigError: There is no such policy, it does not load, or it cannot be described.
    """
    kind = find_policy(name)
    try:
        return PolicyInfo(
            name=name,
            target=target or f"{kind.__module__}:{kind.__qualname__}",
            # Its own: what it inherits tells how to write a policy, not what this one does.
            documentation=inspect.cleandoc(vars(kind).get("__doc__") or ""),
            options=option_defaults(kind),
        )
    except FAULTS as error:
        raise ConfigError(
            expected=f"the policy {name} to have options and documentation that can be shown",
            found=describe(error),
            remedy="correct the policy",
        ) from error


def list_policies() -> list[PolicyInfo]:
    """
    Describe the policies that can be selected by name.

    Returns:
        One entry per name, sorted. A policy that does not load says so in its documentation.
    """
    infos = []
    for name, target in policy_targets().items():
        try:
            infos.append(policy_info(name, target))
        except ConfigError as error:
            infos.append(PolicyInfo(name=name, target=target, documentation=str(error), options={}))
    return infos
