"""
Synthetic servers in service: by the clock, requests arrive, wait, are prefilled and leave.

`world` says what one is made of, `engine` serves it, `run` runs a policy or a fixed depth through
it, and `scoring` says what that was worth beside an oracle. Everything is drawn from a seed.
"""

from sglang_dynspec.simulator.service.costs import Bend, CostTable
from sglang_dynspec.simulator.service.load import Load, Moves
from sglang_dynspec.simulator.service.pace import Modes, Slow
from sglang_dynspec.simulator.service.requests import Habit, Requests
from sglang_dynspec.simulator.service.run import WorldRun, run_fixed, run_world
from sglang_dynspec.simulator.service.scoring import WorldScore, score_run
from sglang_dynspec.simulator.service.world import World

__all__ = [
    "Bend",
    "CostTable",
    "Habit",
    "Load",
    "Modes",
    "Moves",
    "Requests",
    "Slow",
    "World",
    "WorldRun",
    "WorldScore",
    "run_fixed",
    "run_world",
    "score_run",
]
