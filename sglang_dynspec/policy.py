"""
The base class of policies.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from sglang_dynspec.identity import Identity
from sglang_dynspec.observation import Observation, Outcome, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    What a policy has to live within, known before the first round.

    Attributes:
        depths: Candidate depths, ascending; always begins with 0.

        max_running_requests: The server's cap on running requests, or None where it is not known
            yet (SGLang may derive it from the memory left after loading the model).

        seed: Seed for a policy that draws random numbers.

        calibration: File in which ``dynspec calibrate`` wrote what rounds cost on this server, or
            None. It can be read; what it says is for the policy to check, with
            ``Calibration.load(path).check(limits.identity)``.

        identity: What this server is, as far as it is known; more so once the model has loaded.
    """

    depths: tuple[int, ...]
    max_running_requests: int | None = None
    seed: int = 0
    calibration: Path | None = None
    identity: Identity = field(default_factory=Identity)

    @property
    def largest(self) -> int:
        """
        The largest candidate depth.
        """
        return self.depths[-1]


class Policy(ABC):
    """
    Decides the depth of every decode round.

    A subclass needs `decide` alone. Its options are the keyword arguments of its ``__init__``; they
    are checked against their annotations, so annotate them and give them defaults::

        class SmallBatches(Policy):
            '''
            Speculate while the batch is small.
            '''

            def __init__(self, *, batch_size: int = 8) -> None:
                self.batch_size = batch_size

            def decide(self, observation: Observation) -> Plan:
                small = observation.batch_size <= self.batch_size
                return Plan(depth=self.limits.largest if small else 0)

    A policy is deterministic given its options, its limits and what it has observed and learned.
    It runs on the scheduler's thread between two rounds: everything it does delays a token. The
    guard bounds what a wrong one can do.
    """

    #: True for a policy that uses `Outcome.period`. Measured time differs between ranks, so only
    #: policies that leave it alone come to the same decision on each of them.
    uses_time: ClassVar[bool] = False

    #: Set by `configure`.
    limits: Limits

    def configure(self, limits: Limits) -> None:
        """
        Learn the limits, and refuse options that make no sense within them.

        Called before the model loads, and again in each scheduler process before its first round,
        possibly with more known.

        Args:
            limits: The candidate depths and what else is known of the server.

        Raises:
            ConfigError: The options cannot work within these limits.
        """
        self.limits = limits

    @abstractmethod
    def decide(self, observation: Observation) -> Plan:
        """
        Decide the depth of the round about to run.

        Args:
            observation: The state of the batch and the server.

        Returns:
            A plan whose depth is one of ``observation.depths``.
        """

    def learn(self, outcome: Outcome) -> None:  # noqa: B027  # optional, not forgotten
        """
        Take note of what a round did. Does nothing unless overridden.

        Rounds that the policy did not decide (a forced depth, exact sampling) are told as well.
        When an outcome arrives, the next round may have been decided already.

        Args:
            outcome: What the round did.
        """
