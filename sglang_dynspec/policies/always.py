"""
`Always`: speculate in every round.
"""

from sglang_dynspec.observation import Observation, Plan
from sglang_dynspec.policies._depth import chosen_depth
from sglang_dynspec.policy import Limits, Policy


class Always(Policy):
    """
    Speculate in every round, at one depth.

    Attributes:
        depth: The depth; None until configured for the largest candidate.
    """

    def __init__(self, *, depth: int | None = None) -> None:
        self.depth = depth
        self._plan = Plan(depth=0)

    def configure(self, limits: Limits) -> None:
        """
        Refuse options that make no sense within the limits.
        """
        super().configure(limits)
        self._plan = Plan(depth=chosen_depth(self.depth, limits), reason="always")

    def decide(self, observation: Observation) -> Plan:  # noqa: ARG002
        """
        Plan the one depth.
        """
        return self._plan
