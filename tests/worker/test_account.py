"""What the bridge is built of in the scheduler process, and what it says of itself."""

from types import SimpleNamespace

import pytest

from sglang_dynspec import Config
from sglang_dynspec_hooks.bridge import bridge as bridge_module
from sglang_dynspec_hooks.bridge.bridge import Bridge


class Identity(SimpleNamespace):
    def model_dump(self):
        return vars(self)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    monkeypatch.setattr(bridge_module, "gpu_name", lambda: "a GPU")
    monkeypatch.setattr(
        bridge_module, "identity_of", lambda args, *, gpu: Identity(model=args.model, gpu=gpu)
    )


def test_it_is_built_of_what_the_launcher_resolved(monkeypatch):
    config = Config(seed=5).resolve(3)
    told = {}

    def load_policy(*args):
        told["policy"] = args
        return "the policy"

    monkeypatch.setattr(bridge_module.carried_config, "config_of", lambda args: args.config)
    monkeypatch.setattr(bridge_module, "Limits", lambda **limits: limits)
    monkeypatch.setattr(bridge_module, "load_policy", load_policy)
    monkeypatch.setattr(bridge_module, "open_trace", lambda *args: ("trace", *args))
    monkeypatch.setattr(bridge_module, "plugin_manager", lambda: "the plugins")
    monkeypatch.setattr(bridge_module, "Rounds", lambda **parts: parts)
    args = SimpleNamespace(config=config, max_running_requests=16, model="a model")
    bridge = Bridge.from_server_args(args, worker="the worker", log="the log")
    limits = {
        "depths": config.depths,
        "max_running_requests": 16,
        "seed": 5,
        "identity": Identity(model="a model", gpu="a GPU"),
    }
    assert told["policy"] == (config, limits)
    assert bridge.rounds == {
        "policy": "the policy",
        "config": config,
        "trace": ("trace", config, args),
        "hooks": "the plugins",
        "log": "the log",
    }
    assert (bridge.config, bridge._worker) == (config, "the worker")


def test_what_it_says_of_itself(bridge, scheduler):
    bridge._worker.build_costs = lambda: {"3": "dear"}
    bridge._worker.graph_sizes = (1, 2)
    scheduler.server_args = SimpleNamespace(model="a model")
    scheduler.enable_overlap = True
    scheduler.tree_cache = SimpleNamespace(evictable_size=lambda: 7)
    assert bridge.state(scheduler) == bridge.rounds.summary() | {
        "identity": {"model": "a model", "gpu": "a GPU"},
        "running": 3,
        "waiting": 1,
        "upkeep": {"window": 4},
        "built": {"3": "dear"},
        "graph_sizes": [1, 2],
        "overlap": True,
        "kv_free": 25,
        "kv_evictable": 7,
    }
