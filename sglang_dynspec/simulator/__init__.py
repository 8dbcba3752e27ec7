"""
Synthetic servers to measure policies on: what rounds cost, which drafts are right, how load moves.

Everything is drawn from a seed; the same scenario, policy and seed give the same run, bit by bit.
"""

from sglang_dynspec.simulator.drafts import DraftQuality, Kind, geometric
from sglang_dynspec.simulator.load import Rollouts
from sglang_dynspec.simulator.reactions import Reaction
from sglang_dynspec.simulator.run import ScenarioRun, run_scenario
from sglang_dynspec.simulator.scenario import Scenario, Transition
from sglang_dynspec.simulator.scenarios import find_scenario, scenarios
from sglang_dynspec.simulator.scoring import Score, score
from sglang_dynspec.simulator.server import SERVERS, SyntheticServer

__all__ = [
    "SERVERS",
    "DraftQuality",
    "Kind",
    "Reaction",
    "Rollouts",
    "Scenario",
    "ScenarioRun",
    "Score",
    "SyntheticServer",
    "Transition",
    "find_scenario",
    "geometric",
    "run_scenario",
    "scenarios",
    "score",
]
