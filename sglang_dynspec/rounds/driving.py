"""
Driving rounds without a server: what observes, plans, runs and learns where nothing is served.

The simulator, the replay of a trace and the test harness drive the same `Rounds` that serves.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable

from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.rounds.rounds import Rounds


def drive(
    rounds: Rounds,
    observations: Iterable[Observation],
    run: Callable[[Observation, Plan], Outcome | None],
    *,
    lag: int,
) -> None:
    """
    Drive rounds to the end of what is observed, and learn the outcome of every one of them.

    Args:
        rounds: What plans and learns.

        observations: What is observed before each round. Each is taken after the round before it
            was planned, so that it can tell the depth in force.

        run: Runs a planned round and gives its outcome, or None where nobody knows it.

        lag: Rounds planned before an outcome arrives: 1 as under SGLang's overlap loop, 0 as
            without it.
    """
    running: deque[tuple[Observation, Plan, Outcome | None]] = deque()
    for observation in observations:
        plan = rounds.plan(observation)
        running.append((observation, plan, run(observation, plan)))
        if len(running) > lag:
            _settle(rounds, *running.popleft())
    for each in running:
        _settle(rounds, *each)


def _settle(rounds: Rounds, observation: Observation, plan: Plan, outcome: Outcome | None) -> None:
    if outcome is not None:
        rounds.learn(observation, plan, outcome)


class KeptLog(logging.Logger):
    """
    A logger outside the hierarchy.

    What a policy provokes where nothing is served is kept here, and is not for the user's log.

    Attributes:
        lines: Warnings and worse, a line each.
    """

    def __init__(self) -> None:
        super().__init__("sglang_dynspec.driving", logging.WARNING)
        self.lines: list[str] = []

    def handle(self, record: logging.LogRecord) -> None:
        """
        Keep a line.
        """
        self.lines.append(record.getMessage())
