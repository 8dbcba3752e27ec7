"""
`Threshold`: speculate while the batch is small.
"""

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.observation import Observation, Plan
from sglang_dynspec.policies._depth import chosen_depth
from sglang_dynspec.policy import Limits, Policy

#: Largest batch size that speculates, where nothing is said and the server may run as many.
DEFAULT_BATCH_SIZE = 32

#: Hysteresis where nothing is said and the threshold leaves room for it.
DEFAULT_HYSTERESIS = 4


class Threshold(Policy):
    """
    Speculate up to a batch size and decode plainly above it, with hysteresis.

    Attributes:
        batch_size: Largest batch size that speculates; None for 32, or the server's cap on running
            requests where that is lower.

        hysteresis: How far below `batch_size` the batch must shrink to speculate again; None for 4,
            or as much as `batch_size` leaves room for.

        depth: The depth to speculate at; None for the largest candidate.
    """

    def __init__(
        self,
        *,
        batch_size: int | None = None,
        hysteresis: int | None = None,
        depth: int | None = None,
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise ConfigError(
                expected="batch_size of at least 1",
                found=str(batch_size),
                remedy="choose the policy never to switch speculation off",
            )
        self.batch_size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        self.hysteresis = DEFAULT_HYSTERESIS if hysteresis is None else hysteresis
        self.depth = depth
        self._chosen = batch_size is not None, hysteresis is not None
        self._check_hysteresis()
        self._speculates = True
        self._on = Plan(depth=0)
        self._off = Plan(depth=0, reason="above_threshold")

    def configure(self, limits: Limits) -> None:
        """
        Refuse options that make no sense within the limits.
        """
        super().configure(limits)
        cap = limits.max_running_requests
        if cap is not None and not self._chosen[0] and self.batch_size > cap:
            self.batch_size = max(cap, 1)
            self._check_hysteresis()
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

    def _check_hysteresis(self) -> None:
        """Fit the default below the threshold; refuse one that was chosen and does not fit."""
        if not self._chosen[1]:
            self.hysteresis = min(self.hysteresis, self.batch_size - 1)
        if not 0 <= self.hysteresis < self.batch_size:
            raise ConfigError(
                expected=f"hysteresis from 0 to {self.batch_size - 1} (below batch_size)",
                found=str(self.hysteresis),
                remedy="with more, speculation would never come back on",
            )
