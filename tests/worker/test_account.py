"""What the bridge says of itself."""

from types import SimpleNamespace

from sglang_dynspec.identity import Identity


def test_the_account_says_what_there_is(bridge, scheduler):
    bridge._worker.build_costs = lambda: {"3": "dear"}
    bridge._worker.graph_sizes = (1, 2)
    bridge._identity = Identity(model="a model", gpu="a GPU")
    scheduler.enable_overlap = True
    scheduler.tree_cache = SimpleNamespace(evictable_size=lambda: 7)
    state = bridge.state(scheduler)
    assert (state["identity"]["model"], state["identity"]["gpu"]) == ("a model", "a GPU")
    assert state == bridge.rounds.summary() | {
        "identity": bridge._identity.model_dump(),
        "running": 3,
        "waiting": 1,
        "upkeep": {"window": 4},
        "built": {"3": "dear"},
        "graph_sizes": [1, 2],
        "overlap": True,
        "kv_free_tokens": 25,
        "kv_evictable_tokens": 7,
    }
