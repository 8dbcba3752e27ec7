"""The bridge between a scheduler of stubs and the real rounds."""

from types import SimpleNamespace

import pytest

from sglang_dynspec import Config
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec_hooks.bridge.bridge import Bridge
from tests.worker.stubs import Planned, Upkeep


@pytest.fixture
def upkeep():
    return Upkeep()


@pytest.fixture
def policy():
    return Planned()


@pytest.fixture
def bridge(upkeep, policy):
    config = Config(min_dwell=0, switches_per_1000=1000).resolve(3)
    worker = SimpleNamespace(upkeep=upkeep, graph_sizes=())
    return Bridge(config=config, rounds=Rounds(policy=policy, config=config), worker=worker)


@pytest.fixture
def scheduler():
    return SimpleNamespace(
        token_to_kv_pool_allocator=SimpleNamespace(available_size=lambda: 25),
        max_total_num_tokens=100,
        running_batch=SimpleNamespace(reqs=[1, 2, 3]),
        waiting_queue=[1],
        _pause_intervals=[],
    )
