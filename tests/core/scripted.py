"""A policy that follows a script, and a clock that only moves when told to."""

import math
from dataclasses import replace

from sglang_dynspec import Observation, Outcome, Plan, Policy

DEPTHS = (0, 1, 3)


class Scripted(Policy):
    """Answers from a list: an exception is raised, a callable called, anything else returned."""

    def __init__(self, *script):
        self.script = list(script)
        self.learned = []
        self.asked = 0

    def decide(self, observation):
        self.asked += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else step

    def learn(self, outcome):
        self.learned.append(outcome)


class Clock:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


OUTCOME = Outcome(round=0, depth=0, planned=0, batch_size=1, accepted=(), tokens=1)


def observation(batch_size=1, **fields):
    """Build an observation that says little but the batch size."""
    return Observation(
        **{
            "batch_size": batch_size,
            "padded_batch_size": batch_size,
            "running": batch_size,
            "waiting": 0,
            "seq_len_sum": 100 * batch_size,
            "seq_len_max": 100,
            "kv_free": 0.5,
            "depths": DEPTHS,
            "depth": 0,
            "depth_age": 0,
            "upkeep_window": 4,
            **fields,
        }
    )


class Asking:
    def __init__(self, guard, counters, observation):
        self.guard = guard
        self.counters = counters
        self.observation = observation

    @property
    def depth(self):
        return self.observation.depth

    @property
    def age(self):
        return self.observation.depth_age

    def __call__(self):
        seen = self.observation
        plan = self.guard.decide(seen)
        kept = plan.depth == seen.depth or plan.probe
        self.observation = replace(
            seen,
            round=seen.round + 1,
            depth=seen.depth if kept else plan.depth,
            depth_age=seen.depth_age + 1 if kept else 1,
        )
        return plan


def plans(*depths, **fields):
    return [Plan(depth=depth, **fields) for depth in depths]


#: What no policy may return.
GARBAGE = [
    None,
    3,
    "3",
    object(),
    Plan(depth=2),
    Plan(depth=-1),
    Plan(depth=True),
    Plan(depth=3.0),
    Plan(depth="3"),
    Plan(depth=None),
    Plan(depth=[]),
    Plan(depth=3, gain=math.nan),
    Plan(depth=3, gain=math.inf),
    Plan(depth=3, gain="0.5"),
    Plan(depth=3, gain=True),
    Plan(depth=3, reason=None),
    Plan(depth=3, probe=1),
    Plan(depth=3, probe=None),
    Plan(depth=3, blocked=None),
]
