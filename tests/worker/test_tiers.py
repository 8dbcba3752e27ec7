"""The tiers: what is built, what a switch changes, what an update of the weights does not get."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from sglang_dynspec_hooks.worker import tiers as tiers_module
from sglang_dynspec_hooks.worker.tiers import Tiers

#: SGLang's modules warn at import of what a CPU lacks.
pytestmark = pytest.mark.filterwarnings("ignore")

#: What SGLang bundles for a depth.
PARTS = (
    "draft_attn_backend",
    "cuda_graph_runner",
    "target_attn_backend",
    "target_graph_runner",
    "draft_extend_attn_backend",
    "cuda_graph_runner_for_draft_extend",
)


class Costs:
    """Notes what is accounted for."""

    def __init__(self, worker, *, upkeep_depth):
        self.log = worker.log
        self.upkeep_depth = upkeep_depth

    def begin(self):
        self.log.append("begin")

    def note(self, built):
        self.log.append(f"note {built}")

    @contextlib.contextmanager
    def account(self, built):
        self.log.append(f"account {built}")
        yield
        self.log.append(f"built {built}")


class Draft(SimpleNamespace):
    def _rebuild_topk1_chain_buffers(self):
        made_for = f"{self.speculative_num_steps} drafts, {self.speculative_num_draft_tokens} wide"
        self._topk1_parents_prealloc = f"parents of {made_for}"
        self._topk1_score_indices_prealloc = f"scores of {made_for}"


def state_of(depth):
    return SimpleNamespace(
        speculative_num_steps=depth, **{name: f"{name} of {depth}" for name in PARTS}
    )


class Target(SimpleNamespace):
    def _get_attention_backend(self, *, init_new_workspace):
        self.init_new_workspace = init_new_workspace
        return "target_attn_backend of 0" if init_new_workspace else "a shared one"


@pytest.fixture
def worker():
    def build(*, speculative_num_steps, speculative_num_draft_tokens, cuda_graph_bs):
        made.log.append(("build", speculative_num_draft_tokens, cuda_graph_bs))
        return state_of(speculative_num_steps)

    made = SimpleNamespace(
        log=[],
        speculative_num_steps=3,
        speculative_num_draft_tokens=4,
        speculative_algorithm=SimpleNamespace(is_standalone=lambda: False),
        build_adaptive_runtime_state=build,
        draft_worker=Draft(
            speculative_num_steps=3,
            speculative_num_draft_tokens=4,
            draft_attn_backend="draft_attn_backend of 3",
            cuda_graph_runner="cuda_graph_runner of 3",
            draft_extend_attn_backend="draft_extend_attn_backend of 3",
            cuda_graph_runner_for_draft_extend="cuda_graph_runner_for_draft_extend of 3",
            draft_runner=SimpleNamespace(
                draft_attn_backend="draft_attn_backend of 3",
                attn_backend="draft_extend_attn_backend of 3",
            ),
        ),
        target_worker=SimpleNamespace(
            model_runner=Target(
                attn_backend="target_attn_backend of 3",
                decode_cuda_graph_runner="target_graph_runner of 3",
                init_new_workspace="as it was",
            )
        ),
    )
    made.draft_worker._rebuild_topk1_chain_buffers()
    return made


@pytest.fixture(autouse=True)
def captured(monkeypatch):
    """What plain graphs were captured with; they cover batches of 1, 4 and 8."""
    calls = []

    def capture(*args, **more):
        calls.append((*args, more))
        return SimpleNamespace(capture_bs=[8, 1, 4])

    monkeypatch.setattr(tiers_module, "capture_plain_graphs", capture)
    monkeypatch.setattr(tiers_module, "BuildCosts", Costs)
    return calls


def built(worker, **more):
    tiers = Tiers(worker, depths=(0, 1, 3), upkeep_depth=2, **more)
    tiers.begin()
    tiers.register(state_of(3))
    tiers.init_states([1, 2])
    tiers.build_plain()
    return tiers


def in_force(worker):
    """Everything that a tier changes, by owner."""
    draft, target = worker.draft_worker, worker.target_worker.model_runner
    return {
        "worker": (worker.speculative_num_steps, worker.speculative_num_draft_tokens),
        "draft": (draft.speculative_num_steps, draft.speculative_num_draft_tokens),
        "chain": (draft._topk1_parents_prealloc, draft._topk1_score_indices_prealloc),
        "drafting": (draft.draft_attn_backend, draft.draft_runner.draft_attn_backend),
        "draft graphs": draft.cuda_graph_runner,
        "extending": (draft.draft_extend_attn_backend, draft.draft_runner.attn_backend),
        "extend graphs": draft.cuda_graph_runner_for_draft_extend,
        "target": (target.attn_backend, target.decode_cuda_graph_runner),
    }


def expected(depth):
    return {
        "worker": (depth, depth + 1),
        "draft": (depth, depth + 1),
        "chain": tuple(
            f"{what} of {depth} drafts, {depth + 1} wide" for what in ("parents", "scores")
        ),
        "drafting": (f"draft_attn_backend of {depth}",) * 2,
        "draft graphs": f"cuda_graph_runner of {depth}",
        "extending": (f"draft_extend_attn_backend of {depth}",) * 2,
        "extend graphs": f"cuda_graph_runner_for_draft_extend of {depth}",
        "target": (f"target_attn_backend of {depth}", f"target_graph_runner of {depth}"),
    }


def test_what_is_built_and_accounted_for(worker, captured):
    tiers = built(worker)
    upkeep = SimpleNamespace(build=lambda sizes: worker.log.append(f"upkeep for {sizes}"))
    tiers.build_upkeep(upkeep)
    assert worker.log == [
        "begin",
        "note 3",
        *("account 1", ("build", 2, [1, 2]), "built 1"),
        *("account 2", ("build", 3, [1, 2]), "built 2"),
        *("account 0", "built 0"),
        *("account upkeep", "upkeep for (1, 4, 8)", "built upkeep"),
    ]
    assert (tiers.active, tiers.costs.upkeep_depth) == (3, 2)
    # SGLang's own tier stays in force.
    assert in_force(worker) == expected(3)
    target = worker.target_worker.model_runner
    assert captured == [(target, "target_attn_backend of 0", {"draft_reads_hidden": True})]
    assert target.init_new_workspace == "as it was"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_switch_changes_all_of_it(worker, depth):
    tiers = built(worker)
    tiers.activate(0)
    tiers.activate(depth)
    assert (in_force(worker), tiers.active) == (expected(depth), depth)


def test_the_plain_tier_has_the_draft_side_of_upkeep(worker):
    tiers = built(worker)
    tiers.activate(0)
    graphs = worker.target_worker.model_runner.decode_cuda_graph_runner
    assert in_force(worker) == expected(2) | {
        "worker": (0, 1),
        "draft graphs": None,
        "target": ("target_attn_backend of 0", graphs),
    }
    assert graphs.capture_bs == [8, 1, 4]
    plain = tiers._tiers[0]
    assert (plain.depth, plain.state.speculative_num_steps) == (0, 0)
    assert plain.state.speculative_num_draft_tokens == 1


def test_without_plain_graphs_there_are_none(worker, captured):
    tiers = built(worker, plain_graphs=False)
    assert (captured, tiers.plain_graph_sizes) == ([], ())
    tiers.activate(0)
    assert worker.target_worker.model_runner.decode_cuda_graph_runner is None


def test_graphs_output_hidden_rows_for_a_draft_that_reads_them(worker, captured):
    worker.speculative_algorithm = SimpleNamespace(is_standalone=lambda: True)
    built(worker)
    assert captured[0][-1] == {"draft_reads_hidden": False}


def test_a_depth_without_a_tier_is_told(worker):
    tiers = built(worker)
    with pytest.raises(KeyError):
        tiers.activate(5)
    assert in_force(worker) == expected(3)


def test_the_tier_in_force_is_left_alone(worker):
    tiers = built(worker)
    worker.draft_worker.cuda_graph_runner = "left alone"
    tiers.activate(3)
    assert worker.draft_worker.cuda_graph_runner == "left alone"


def test_a_draft_without_an_extend_backend_keeps_its_own(worker):
    tiers = built(worker)
    tier = tiers._tiers[1]
    tier.state.draft_extend_attn_backend = None
    worker.draft_worker.draft_runner.attn_backend = "its own"
    tiers.activate(1)
    assert in_force(worker)["extending"] == (None, "its own")


def test_a_tier_is_borrowed_for_a_moment(worker):
    tiers = built(worker)
    with pytest.raises(RuntimeError, match="True"), tiers.borrowed(1):
        raise RuntimeError(in_force(worker) == expected(1))
    assert (in_force(worker), tiers.active) == (expected(3), 3)


def test_a_tier_is_not_changed(worker):
    with pytest.raises(dataclasses.FrozenInstanceError):
        built(worker)._tiers[1].depth = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Updater:
    """As immutable as SGLang's."""

    model: str
    recapture_cuda_graph: Callable[[], None]


def runner(model):
    def recapture():
        raise AssertionError("a graph was captured anew")

    return SimpleNamespace(weight_updater=Updater(model=model, recapture_cuda_graph=recapture))


def test_graphs_are_kept_and_it_is_said(caplog):
    target, draft = runner("target"), runner("draft")
    worker = SimpleNamespace(
        log=[],
        target_worker=SimpleNamespace(model_runner=target),
        draft_worker=SimpleNamespace(draft_runner=draft),
    )
    Tiers(worker, depths=(0, 1, 3), upkeep_depth=3).keep_graphs()
    with caplog.at_level(logging.WARNING, "sglang_dynspec"):
        assert (target.weight_updater.model, draft.weight_updater.model) == ("target", "draft")
        target.weight_updater.recapture_cuda_graph()
        draft.weight_updater.recapture_cuda_graph()
    assert [(record.name, record.getMessage()[:30]) for record in caplog.records] == [
        ("sglang_dynspec", "recapture_ignored note='the CU")
    ] * 2
