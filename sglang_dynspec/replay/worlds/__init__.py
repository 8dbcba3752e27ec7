"""
The hard worlds, fixed before the policy that is measured on them was changed.

`in_service`, `costs` and `drafts` have a table for each kind; `drawn` draws further ones.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from sglang_dynspec.config.sources import closest
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.replay.worlds import costs, drafts, in_service
from sglang_dynspec.simulator.service import World


@cache
def worlds() -> Mapping[str, World]:
    """
    List every fixed world.

    Returns:
        Worlds by name, kind after kind.
    """
    kinds = (
        *(
            in_service.steady,
            in_service.growing,
            in_service.churn,
            in_service.moving,
            in_service.poisson,
        ),
        *(in_service.untimed, in_service.losing),
        *(costs.cold_start, costs.cold_sizes, costs.slow_depth, costs.pace, costs.pulses),
        *(costs.bimodal, costs.kernels),
        *(drafts.mixture, drafts.phases, drafts.cold_requests, drafts.bursts, drafts.stale),
        *(drafts.collapse, drafts.many_depths),
    )
    return MappingProxyType({world.name: world for make in kinds for world in make()})


def find_world(name: str) -> World:
    """
    Find a world.

    Args:
        name: Its name.

    Raises:
        ConfigError: There is none of that name.
    """
    found = worlds().get(name)
    if found is None:
        raise ConfigError(
            expected="the name of a hard world",
            found=repr(name),
            remedy=closest(name, [*worlds()]),
        )
    return found
