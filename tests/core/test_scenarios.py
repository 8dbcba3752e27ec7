"""The scenarios are what they say they are."""

import numpy as np
import pytest

from sglang_dynspec import ConfigError
from sglang_dynspec.simulator import find_scenario, run_scenario, scenarios, score

ALL = [*scenarios()]

STATED = [name for name, scenario in scenarios().items() if scenario.expected is not None]

#: Those with a mixture of requests, in which the oracle may differ now and then.
MIXED = {"h200-mixed-32"}


def test_there_is_one_of_every_sort():
    every = scenarios().values()
    assert {scenario.server.name for scenario in every} == {
        *("h200-8b", "pcie-1t", "nvlink-moe", "small-gpu")
    }
    assert {scenario.expected for scenario in every} >= {0, 1, 3, 7, None}
    assert len([scenario for scenario in every if scenario.stationary]) >= 20
    assert len([scenario for scenario in every if not scenario.stationary]) >= 12
    assert all(scenario.horizon >= 2048 for scenario in every)
    # A cold start is over before a long warm-up is.
    assert {scenario.name for scenario in every if scenario.warm_up < 512} == {"cold-start"}
    assert find_scenario("cold-start").cold > 0


@pytest.mark.parametrize("name", STATED)
def test_the_oracle_is_the_expected_depth(name):
    scenario = find_scenario(name)
    run = run_scenario("always", scenario, options={"depth": scenario.expected or None})
    share = score(run).oracle_shares[scenario.expected]
    assert share >= (0.95 if name in MIXED else 1.0)


@pytest.mark.parametrize("name", [name for name in ALL if scenarios()[name].transitions])
def test_every_transition_is_due(name):
    reactions = score(run_scenario("never", find_scenario(name))).reactions
    assert reactions
    assert all(reaction.due is not None for reaction in reactions)


@pytest.mark.parametrize("name", ALL)
def test_batches_fit_the_server(name):
    run = run_scenario("threshold", find_scenario(name), rounds=700)
    assert 1 <= run.batch_sizes.min() <= run.batch_sizes.max() <= 256
    assert (run.padded_batch_sizes >= run.batch_sizes).all()
    assert np.isfinite(run.periods).all()
    assert (run.periods > 0).all()


def test_an_unknown_one_is_refused():
    with pytest.raises(ConfigError) as caught:
        find_scenario("rampp")
    assert caught.value.found == "'rampp'"
    assert caught.value.remedy.startswith("did you mean ramp?")
