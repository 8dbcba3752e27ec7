"""
`Never`: decode plainly in every round.
"""

from sglang_dynspec.observation import Observation, Plan
from sglang_dynspec.policy import Policy

_PLAIN = Plan(depth=0, reason="never")


class Never(Policy):
    """
    Decode plainly in every round.
    """

    def decide(self, observation: Observation) -> Plan:  # noqa: ARG002
        """
        Plan plain.
        """
        return _PLAIN
