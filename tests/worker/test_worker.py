"""What the worker runs for a batch, in which order, and what it tells whom."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sglang_dynspec_hooks.worker import worker as worker_module
from sglang_dynspec_hooks.worker.worker import dynspec_worker

SLOTS = [4, 7]


class Base:
    """SGLang's worker, as far as ours derives from it."""

    last_shared_read_runner = "the draft's"

    def __init__(self, *, server_args, gpu_id, nccl_port, target_worker):
        self.log = []
        self.made_of = (server_args, gpu_id, nccl_port)
        self.target_worker = target_worker

    def init_cuda_graphs(self):
        self.log.append("graphs")
        self.draft_worker = SimpleNamespace(_draft_extend_for_prefill=self.draft_prefill)

    def draft_prefill(self, *args, **more):
        self.log.append(("the draft's prefill", *args, more))
        return "drafts"

    def forward_batch_generation(self, *args):
        self.log.append(("forward", *args))
        return SimpleNamespace(of="SGLang")


class Noting:
    """Notes on the worker's log what it is asked to do."""

    def __init__(self, worker, returns=None, **made):
        self._worker, self._returns, self.made = worker, returns or {}, made

    def __getattr__(self, name):
        def call(*args):
            args = tuple(each.tolist() if isinstance(each, np.ndarray) else each for each in args)
            self._worker.log.append((name, *args))
            return self._returns.get(name)

        return call


class Prefill:
    """Does what a test says for a prefill in plain rounds."""

    answer = "no drafts"

    def __init__(self, worker, upkeep):
        self._worker = worker
        assert upkeep is worker.upkeep

    def run(self, *args):
        self._worker.log.append(("keys and values", *args))
        return self.answer


class Tiers(Noting):
    active = 0
    plain_graph_sizes = (1, 2)
    costs = SimpleNamespace(as_json=lambda: {"3": "dear"})


@pytest.fixture
def config():
    return SimpleNamespace(depths=(0, 1, 3), upkeep_window=3, plain_graphs=True)


@pytest.fixture
def make(monkeypatch, config):
    """Make a worker whose batches are planned at a depth."""

    def make(depth=0):
        def bridge(server_args, *, worker):
            assert (server_args, worker.made_of) == ("args", ("args", 5, 6))
            made = Noting(worker, {"planned_depth": depth})
            made.config = config
            return made

        def plain(worker, batch, *, on_publish, grammar_barrier):
            worker.log.append(("plain", batch, on_publish, grammar_barrier))
            return SimpleNamespace(of="plain"), "hidden rows"

        upkept = {"before_plain_round": "kept up", "before_speculative_round": "caught up"}
        monkeypatch.setattr(worker_module, "Bridge", SimpleNamespace(from_server_args=bridge))
        monkeypatch.setattr(worker_module, "Tiers", Tiers)
        monkeypatch.setattr(
            worker_module, "Upkeep", lambda worker, **made: Noting(worker, upkept, **made)
        )
        monkeypatch.setattr(worker_module, "run_plain_round", plain)
        monkeypatch.setattr(worker_module, "PlainPrefill", Prefill)
        return dynspec_worker(Base)("args", 5, 6, SimpleNamespace(model_runner="the target's"))

    return make


def batch_of(mode="decode", *, mixed=False):
    return SimpleNamespace(
        req_pool_indices_cpu=torch.tensor(SLOTS),
        is_extend_in_batch=mixed,
        forward_mode=SimpleNamespace(
            is_extend=lambda: mode == "extend", is_idle=lambda: mode == "idle"
        ),
    )


def run(worker, batch):
    return worker.forward_batch_generation(batch, "publish", "barrier", "pipeline")


def test_the_class_is_made_once():
    assert dynspec_worker(Base) is dynspec_worker(Base)
    assert dynspec_worker(Base).__name__ == "DynspecBase"
    assert issubclass(dynspec_worker(Base), Base)


@pytest.mark.parametrize(("window", "depth"), [(3, 2), (2, 1), (1, 3), (0, 3)])
def test_upkeep_has_a_tier_as_wide_as_its_window(make, config, window, depth):
    """A window of 1 needs no width, and without a window the plain tier borrows a draft side."""
    config.upkeep_window = window
    worker = make()
    assert worker.adaptive_controller.made == {
        "depths": (0, 1, 3),
        "upkeep_depth": depth,
        "plain_graphs": True,
    }
    assert worker.upkeep.made == {"window": window, "depth": depth}


def test_what_is_built_and_when(make):
    worker = make()
    assert worker.graph_sizes == ()
    worker.init_cuda_graphs()
    assert worker.log == [
        ("begin",),
        "graphs",
        ("build_plain",),
        ("build_upkeep", worker.upkeep),
        ("keep_graphs",),
    ]
    assert worker.graph_sizes == (1, 2)
    assert worker.build_costs() == {"3": "dear"}


class TestPrefill:
    def prefill(self, worker, *args, **more):
        """Let SGLang's worker come to the draft's part of a prefill."""
        worker.init_cuda_graphs()
        worker.log.clear()
        return worker.draft_worker._draft_extend_for_prefill(
            "batch", "hidden", "ids", *args, **more
        )

    def test_in_plain_rounds_keys_and_values_alone_are_written(self, make):
        worker = make()
        assert self.prefill(worker, None, kv_loc_plan="plan") == "no drafts"
        assert worker.log == [("keys and values", "batch", "hidden", "ids")]
        assert worker.last_shared_read_runner == "the target's"

    def test_where_that_cannot_be_it_is_sglangs(self, make, monkeypatch):
        monkeypatch.setattr(Prefill, "answer", None)
        worker = make()
        assert self.prefill(worker, None, kv_loc_plan="plan") == "drafts"
        whole = ("the draft's prefill", "batch", "hidden", "ids", None, {"kv_loc_plan": "plan"})
        assert worker.log == [("keys and values", "batch", "hidden", "ids"), whole]
        assert worker.last_shared_read_runner == "the draft's"

    @pytest.mark.parametrize(("active", "embeds"), [(3, None), (0, "pictures")])
    def test_in_speculative_rounds_and_for_pictures_it_is_sglangs(
        self, make, monkeypatch, active, embeds
    ):
        monkeypatch.setattr(Tiers, "active", active)
        worker = make()
        assert self.prefill(worker, embeds) == "drafts"
        assert worker.log == [("the draft's prefill", "batch", "hidden", "ids", embeds, {})]


@pytest.mark.parametrize("batch", [batch_of("extend"), batch_of(mixed=True)])
def test_a_prefill_is_sglangs_and_forgets_what_its_slots_owed(make, batch):
    worker = make(depth=3)
    assert run(worker, batch).of == "SGLang"
    assert worker.log == [
        ("forget", SLOTS),
        ("forward", batch, "publish", "barrier", "pipeline"),
    ]


def test_an_idle_batch_is_sglangs(make):
    worker, batch = make(depth=3), batch_of("idle")
    assert run(worker, batch).of == "SGLang"
    assert worker.log == [("forward", batch, "publish", "barrier", "pipeline")]


def test_a_plain_round(make):
    worker, batch = make(depth=0), batch_of()
    result = run(worker, batch)
    assert (result.of, result.dynspec_upkeep) == ("plain", "kept up")
    assert worker.log == [
        ("planned_depth", batch),
        ("activate", 0),
        # It borrows the plain tier's draft side.
        ("before_plain_round", batch),
        ("plain", batch, "publish", "barrier"),
        ("after_plain_round", batch, result, "hidden rows"),
        ("stamp", batch, result),
    ]


@pytest.mark.parametrize("depth", [1, 3])
def test_a_speculative_round(make, depth):
    worker, batch = make(depth=depth), batch_of()
    result = run(worker, batch)
    assert (result.of, result.dynspec_upkeep) == ("SGLang", "caught up")
    assert worker.log == [
        ("planned_depth", batch),
        # What is owed is paid in the tier that was in force.
        ("before_speculative_round", batch),
        ("forget", SLOTS),
        ("activate", depth),
        ("forward", batch, "publish", "barrier", "pipeline"),
        ("stamp", batch, result),
    ]


def test_the_target_reads_last_in_a_plain_round_alone(make):
    worker = make(depth=0)
    assert worker.last_shared_read_runner == "the draft's"
    run(worker, batch_of())
    assert worker.last_shared_read_runner == "the target's"
    run(worker, batch_of("extend"))
    assert worker.last_shared_read_runner == "the draft's"
