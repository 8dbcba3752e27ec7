"""What an update of the weights may ask for, and does not get."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

from sglang_dynspec_hooks.worker.tiers import Tiers


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
        target_worker=SimpleNamespace(model_runner=target),
        draft_worker=SimpleNamespace(draft_runner=draft),
    )
    Tiers(worker, depths=(0, 1, 3), upkeep_depth=3).keep_graphs()
    with caplog.at_level(logging.WARNING, "sglang_dynspec"):
        assert (target.weight_updater.model, draft.weight_updater.model) == ("target", "draft")
        target.weight_updater.recapture_cuda_graph()
        draft.weight_updater.recapture_cuda_graph()
    assert [record.getMessage()[:30] for record in caplog.records] == [
        "recapture_ignored note='the CU"
    ] * 2
