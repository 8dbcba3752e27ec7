"""A scenario small enough to score by hand, and a policy that plays a script in it."""

from sglang_dynspec import Plan, Policy
from sglang_dynspec.simulator import Scenario, SyntheticServer, run_scenario
from sglang_dynspec.simulator.drafts import geometric
from sglang_dynspec.simulator.load import steady

#: A plain round takes a second. One of depth 1 takes 1.25, and of depth 3, 1.75.
SERVER = SyntheticServer(
    name="by hand", weights=1.0, compute=0.0, draft=0.25, extend=0.0, upkeep_window=0
)

UNBOUND = {"min_dwell": 0, "switches_per_1000": 1000, "exploration_budget": 1.0, "watchdog": False}

#: At 0.5: 1 token a second plain, 1.5 / 1.25 = 1.2 at depth 1, 1.875 / 1.75 = 1.0714 at depth 3.
HALF = Scenario(
    name="half",
    summary="",
    server=SERVER,
    drafts=geometric(0.5),
    load=lambda rounds, rng: steady(4, rounds),
    warm_up=10,
    horizon=90,
    stationary=True,
    expected=1,
)


class Scripted(Policy):
    """
    Plans what a function of the round says: a depth, or a plan.
    """

    def __init__(self, script):
        self.script = script
        self.observations = []
        self.outcomes = []

    def decide(self, observation):
        self.observations.append(observation)
        depth = self.script(observation.round)
        if isinstance(depth, Plan):
            return depth
        return Plan(depth=depth)

    def learn(self, outcome):
        self.outcomes.append(outcome)


def run(script, scenario=HALF, **arguments):
    return run_scenario(Scripted(script), scenario, **UNBOUND | arguments)
