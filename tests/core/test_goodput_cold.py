"""Goodput on a server that compiles kernels at each depth's first round."""

import numpy as np
import pytest

from sglang_dynspec.simulator import find_scenario, run_scenario

COLD_START = find_scenario("cold-start")


@pytest.fixture(scope="module", params=range(4))
def run(request):
    return run_scenario("goodput", COLD_START, seed=request.param)


def test_first_rounds_are_cold(run):
    for size in (1, 8, 32):
        first = int(np.flatnonzero((run.depths == 3) & (run.batch_sizes == size))[0])
        assert run.periods[first] > 0.16


def test_every_depth_is_run_again_soon_after_its_cold_first_round(run):
    assert np.bincount(run.depths[:100], minlength=4)[[0, 1, 3]].min() >= 2
    # At one request depth 3 is best, and the others are looked at for two rounds on end.
    for depth in (0, 1):
        first, second = np.flatnonzero(run.depths == depth)[:2]
        assert second == first + 1
        assert run.probes[[first, second]].all()


def test_what_was_cold_is_in_force_where_it_is_best(run):
    at_128 = run.depths[run.batch_sizes == 128]
    assert (at_128[50:] == 1).mean() > 0.95
    assert (run.depths[run.batch_sizes == 1][50:] == 3).mean() > 0.95
