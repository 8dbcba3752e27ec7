"""The last pass of requests that finished: over whom, in which tier, on which stream."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from sglang_dynspec_hooks.worker import finish
from sglang_dynspec_hooks.worker.finish import extend_finished, on_forward_stream
from tests.worker.test_kv_write import played

#: SGLang's modules warn at import of what a CPU lacks.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_pass_over_finished_requests(monkeypatch):
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    ledger = played({2: 6}, {1: 4, 2: 7}, {1: 5, 2: 8})
    tiers, passes = [], []

    @contextlib.contextmanager
    def borrowed(depth):
        tiers.append(depth)
        yield
        tiers.remove(depth)

    def extend(*args, lengths, lengths_cpu):
        assert tiers == [0]
        passes.append((args, lengths.tolist(), lengths_cpu.tolist()))

    monkeypatch.setattr(finish, "extend_draft", extend)
    worker = SimpleNamespace(device="cpu", adaptive_controller=SimpleNamespace(borrowed=borrowed))
    batch = SimpleNamespace(
        reqs=["gone", "two", "one"],
        req_pool_indices=None,
        req_pool_indices_cpu=None,
        sampling_info="some",
        return_logprob=True,
        has_grammar=True,
        forward_mode=None,
    )
    before = dict(vars(batch))
    slots = np.array([2, 1])
    extend_finished(worker, ledger, batch, [1, 2], slots)
    (((by, book, finished, slots_cpu, owed), lengths, lengths_cpu),) = passes
    assert (by, book, tiers) == (worker, ledger, [])
    assert (slots_cpu.tolist(), owed.tolist()) == ([2, 1], [3, 2])
    assert (lengths, lengths_cpu) == ([8, 5], [8, 5])
    assert finished.reqs == ["two", "one"]
    assert finished.req_pool_indices.tolist() == finished.req_pool_indices_cpu.tolist() == [2, 1]
    # Nothing is sampled in the pass.
    assert (finished.sampling_info, finished.return_logprob, finished.has_grammar) == (
        None,
        False,
        False,
    )
    assert finished.forward_mode is ForwardMode.DECODE
    assert vars(batch) == before
    assert ledger.unwritten(slots).tolist() == [0, 0]


class Stream:
    def __init__(self, name, log):
        self.name, self.log = name, log

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


def scheduler(log, *, overlap):
    @contextlib.contextmanager
    def context():
        log.append("enter")
        yield
        log.append("leave")

    return SimpleNamespace(
        enable_overlap=overlap,
        forward_stream=Stream("forward", log),
        schedule_stream=Stream("schedule", log),
        forward_stream_ctx=context(),
    )


@pytest.mark.parametrize(
    ("overlap", "order"),
    [
        (False, ["pass"]),
        (
            True,
            ["enter", "forward waits for schedule", "pass", "leave", "schedule waits for forward"],
        ),
    ],
)
def test_a_pass_comes_in_order_with_both_streams(overlap, order):
    log = []
    with on_forward_stream(scheduler(log, overlap=overlap)):
        log.append("pass")
    assert log == order
