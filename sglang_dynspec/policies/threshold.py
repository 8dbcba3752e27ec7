"""
`Threshold`: speculate while the batch is small.
"""

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.observation import Observation, Plan
from sglang_dynspec.policies._depth import chosen_depth
from sglang_dynspec.policy import Limits, Policy


class Threshold(Policy):
    """
    Speculate up to a batch size and decode plainly above it, with hysteresis.

    Attributes:
        batch_size: Largest batch size that speculates.

        hysteresis: How far below `batch_size` the batch must shrink to speculate again.

        depth: The depth to speculate at; None for the largest candidate.
    """

    def __init__(
        self, *, batch_size: int = 32, hysteresis: int = 4, depth: int | None = None
    ) -> None:
        if batch_size < 1:
            raise ConfigError(
                expected="batch_size of at least 1",
                found=str(batch_size),
                remedy="choose the policy never to switch speculation off",
            )
        if not 0 <= hysteresis < batch_size:
            raise ConfigError(
                expected=f"hysteresis from 0 to {batch_size - 1} (below batch_size)",
                found=str(hysteresis),
                remedy="with more, speculation would never come back on",
            )
        self.batch_size = batch_size
        self.hysteresis = hysteresis
        self.depth = depth
        self._speculates = True
        self._on = Plan(depth=0)
        self._off = Plan(depth=0, reason="above_threshold")

    def configure(self, limits: Limits) -> None:
        """
        Refuse options that make no sense within the limits.
        """
        super().configure(limits)
        cap = limits.max_running_requests
        if cap is not None and self.batch_size > cap:
            raise ConfigError(
                expected=f"batch_size of at most {cap}, the cap on running requests",
                found=f"{self.batch_size}, which no batch can reach: it would never switch off",
                remedy=f"lower batch_size, raise --max-running-requests above {self.batch_size}, "
                "or choose the policy always",
            )
        depth = chosen_depth(self.depth, limits)
        self._on = Plan(depth=depth, reason="within_threshold")

    def decide(self, observation: Observation) -> Plan:
        """
        Compare the batch size with the threshold.
        """
        size = observation.batch_size
        if self._speculates:
            self._speculates = size <= self.batch_size
        else:
            self._speculates = size <= self.batch_size - self.hysteresis
        return self._on if self._speculates else self._off
