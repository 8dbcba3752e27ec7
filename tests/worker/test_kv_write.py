"""Writing keys and values alone, with a draft model small enough to follow by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sglang_dynspec_hooks.worker import upkeep as upkeep_module
from sglang_dynspec_hooks.worker.kv_write import KvWriter
from sglang_dynspec_hooks.worker.ledger import Ledger
from sglang_dynspec_hooks.worker.upkeep import Upkeep

#: SGLang's modules warn at import of what a CPU lacks.
pytestmark = pytest.mark.filterwarnings("ignore")

SLOTS, WIDTH, HIDDEN = 4, 4, 2


class Pool:
    """Remembers the last key written to each location."""

    def __init__(self):
        self.keys = {}

    def set_kv_buffer(self, layer, loc_info, k, v, *scales):
        for location, key, value in zip(loc_info.loc.tolist(), k, v, strict=True):
            self.keys[location] = (*key.tolist(), *value.tolist())


class Draft:
    """A draft model whose key is (token, position) and whose value is its hidden row."""

    def __init__(self, **attention):
        self.attention = attention
        self.layer = SimpleNamespace(k_scale=None, v_scale=None, is_cross_attention=False)

    def forward(self, input_ids, positions, forward_batch):
        from sglang.srt.model_executor.forward_context import get_attn_backend

        self.seen = forward_batch
        keys = torch.stack([input_ids, positions], dim=1)
        get_attn_backend().forward(
            None,
            keys,
            forward_batch.spec_info.hidden_states,
            self.layer,
            forward_batch,
            True,
            **self.attention,
        )
        raise AssertionError("the pass went on after its keys and values were written")


@pytest.fixture
def pool():
    return Pool()


def worker(pool, draft, table):
    runner = SimpleNamespace(
        token_to_kv_pool=pool, req_to_token_pool=None, spec_algorithm="EAGLE", model=draft
    )
    return SimpleNamespace(
        device="cpu",
        draft_worker=SimpleNamespace(draft_runner=runner),
        req_to_token_pool=SimpleNamespace(req_to_token=table),
    )


@pytest.fixture(autouse=True)
def no_contexts(monkeypatch):
    """SGLang's parallel contexts need its process state; the attention backend alone matters."""
    from sglang.srt.model_executor.forward_context import ForwardContext, forward_context

    monkeypatch.setattr(
        KvWriter, "_contexts", lambda self: forward_context(ForwardContext(self._backend))
    )


def table():
    """Position p of slot s lies at 100 * s + p; slot 0 is padding and all zeros."""
    rows = torch.arange(SLOTS)[:, None] * 100 + torch.arange(20)
    rows[0] = 0
    return rows.to(torch.int32)


def played(*rounds):
    """A ledger after plain rounds: per round the slots, and the length after it."""
    ledger = Ledger(width=WIDTH, slots=SLOTS, device="cpu", hidden=(HIDDEN, torch.float32))
    for number, lengths in enumerate(rounds):
        slots = list(lengths)
        tokens = torch.tensor([10 * number + slot for slot in slots], dtype=torch.int32)
        after = torch.tensor(list(lengths.values()))
        ledger.enter(
            torch.tensor(slots),
            np.asarray(slots),
            tokens=tokens,
            hidden=tokens.float()[:, None].expand(-1, HIDDEN),
            lengths=after,
            lengths_cpu=after,
        )
    return ledger


def test_each_lacking_token_is_written_where_it_belongs(pool):
    ledger = played({2: 6}, {1: 4, 2: 7}, {1: 5, 2: 8})
    writer = KvWriter(worker(pool, Draft(), table()), ledger, row_counts=())
    pool.keys.clear()
    slots = np.array([1, 2, 3])
    writer.write(slots)
    # Slot 1 got tokens 11 and 21 at positions 3 and 4, slot 2 tokens 2, 12, 22 at 5 to 7.
    assert pool.keys == {
        103: (11, 3, 11.0, 11.0),
        104: (21, 4, 21.0, 21.0),
        205: (2, 5, 2.0, 2.0),
        206: (12, 6, 12.0, 12.0),
        207: (22, 7, 22.0, 22.0),
    }
    assert ledger.unwritten(slots).tolist() == [0, 0, 0]
    assert ledger.owed(slots).tolist() == [1, 1, 0]


def test_the_pass_is_of_rows_alone(pool):
    draft = Draft()
    writer = KvWriter(worker(pool, draft, table()), played({1: 4}, {1: 5}), row_counts=())
    writer.write(np.array([1]))
    batch = draft.seen
    assert (batch.forward_mode.is_decode(), batch.batch_size, batch.seq_lens_sum) == (True, 2, 0)
    assert (batch.out_cache_loc.tolist(), batch.seq_lens.tolist()) == ([103, 104], [3, 4])
    assert (batch.input_ids.dtype, batch.out_cache_loc.dtype) == (torch.int64, torch.int64)
    assert batch.spec_algorithm == "EAGLE"
    assert batch.capture_hidden_mode.name == "NULL"


def test_a_position_before_the_beginning_is_the_first(pool):
    """It would end the server where a wrong one costs a warm draft."""
    writer = KvWriter(worker(pool, Draft(), table()), played({1: 0}, {1: 1}), row_counts=())
    pool.keys.clear()
    writer.write(np.array([1]))
    assert list(pool.keys) == [100]


class Graph:
    """A captured pass: runs over what is in the writer's index when it is replayed."""

    def __init__(self, writer, count):
        self.writer, self.count = writer, count

    def replay(self):
        self.writer.replayed.append(self.count)
        self.writer.index = self.writer._index[:, : self.count].tolist()


@pytest.mark.parametrize(
    ("rounds", "replayed"), [([{1: 4}], [2]), ([{1: 4}, {1: 5}], [2]), ([{1: 4}] * 4, [])]
)
def test_rows_are_padded_to_the_next_graph(pool, monkeypatch, rounds, replayed):
    def capture(writer):
        writer._index = torch.full((3, 3), 9)
        writer._graphs = {2: Graph(writer, 2), 3: Graph(writer, 3)}

    monkeypatch.setattr(KvWriter, "_capture", capture)
    ledger = played(*rounds)
    writer = KvWriter(worker(pool, Draft(), table()), ledger, row_counts=[2, 3])
    writer.replayed = []
    pool.keys.clear()
    lacking = ledger.lacking(np.array([1]))
    writer.write(np.array([1]))
    assert writer.replayed == replayed
    assert bool(pool.keys) is not bool(replayed)  # more rows than any graph has run eagerly
    if replayed:
        padding = [0] * (2 - lacking.shape[1])
        assert writer.index == [[*row, *padding] for row in lacking.tolist()]
    assert ledger.unwritten(np.array([1])).tolist() == [0]


@pytest.mark.parametrize(
    ("sizes", "rows"), [((), []), ((1, 8), [2, 16, 8 * WIDTH]), ((1, 2), [2, 4, 8])]
)
def test_graphs_are_of_whole_batches_in_step(monkeypatch, sizes, rows):
    """And of the largest at the largest window, whatever is set while serving."""
    monkeypatch.setattr(KvWriter, "fits", staticmethod(lambda worker: True))
    monkeypatch.setattr(KvWriter, "__init__", lambda self, *args, **more: vars(self).update(more))
    writer = KvWriter.where_it_fits("worker", played(), batch_sizes=sizes, window=2)
    assert writer.row_counts == rows


def test_where_it_does_not_fit_there_is_none(monkeypatch):
    monkeypatch.setattr(KvWriter, "fits", staticmethod(lambda worker: False))
    assert KvWriter.where_it_fits("worker", played(), batch_sizes=(), window=2) is None


def fitting(**change):
    """A worker whose draft fits, but for the change."""
    from sglang.srt.layers.radix_attention import RadixAttention
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

    has = {"layers": 1, "pool": MHATokenToKVPool, "dtype": "half", "standalone": False} | change
    pool = object.__new__(has["pool"])
    pool.dtype = has["dtype"]
    attention = [object.__new__(RadixAttention) for _ in range(has["layers"])]
    model = SimpleNamespace(modules=lambda: [torch.nn.Linear(1, 1), *attention])
    runner = SimpleNamespace(
        model=model, token_to_kv_pool=pool, model_config=SimpleNamespace(dtype="half")
    )
    return SimpleNamespace(
        draft_worker=SimpleNamespace(draft_runner=runner),
        speculative_algorithm=SimpleNamespace(is_standalone=lambda: has["standalone"]),
    )


def test_which_drafts_fit():
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

    class Quantized(MHATokenToKVPool):
        pass

    assert KvWriter.fits(fitting()) is True
    for change in (
        {"standalone": True},
        {"layers": 2},
        {"layers": 0},
        {"pool": Quantized},
        {"dtype": "eighth"},
    ):
        assert KvWriter.fits(fitting(**change)) is False


def test_a_draft_that_reaches_no_attention_is_told(pool):
    draft = SimpleNamespace(forward=lambda *args: None)
    with pytest.raises(NotImplementedError, match="did not reach its attention"):
        KvWriter(worker(pool, draft, table()), played({1: 4}), row_counts=())


def test_trying_it_touches_the_padding_slot_alone(pool):
    KvWriter(worker(pool, Draft(), table()), played({1: 4}), row_counts=())
    assert list(pool.keys) == [0]


def test_an_attention_of_another_kind_is_told_at_once(pool):
    with pytest.raises(NotImplementedError, match="attention with k_rope"):
        KvWriter(worker(pool, Draft(k_rope=1), table()), played({1: 4}), row_counts=())


def test_upkeep_does_without(pool, monkeypatch, caplog):
    monkeypatch.setattr(KvWriter, "fits", staticmethod(lambda worker: True))
    monkeypatch.setattr(upkeep_module, "hidden_rows", lambda worker: (HIDDEN, torch.float32))
    upkeep = Upkeep(worker(pool, Draft(k_rope=1), table()), window=4, depth=3)
    upkeep.build(())
    assert upkeep.writer is None
    assert "attention with k_rope" in caplog.text
    assert caplog.records[0].name == "sglang_dynspec"
    fitting = Upkeep(worker(pool, Draft(), table()), window=4, depth=3)
    assert fitting.passes == {"window": 0, "reentry": 0, "finish": 0}
    fitting.build(())
    assert fitting.writer is not None
    assert fitting.ledger._tokens.shape == (WIDTH, SLOTS)
    assert fitting.ledger._hidden.shape == (WIDTH, SLOTS, HIDDEN)


@pytest.mark.parametrize(("window", "captured"), [(2, 2), (0, 4)])
def test_graphs_are_captured_for_the_window_or_for_any(pool, monkeypatch, window, captured):
    """One may be set while serving."""
    monkeypatch.setattr(upkeep_module, "hidden_rows", lambda worker: None)
    asked = []
    monkeypatch.setattr(
        KvWriter, "where_it_fits", lambda *_, batch_sizes, window: asked.append(window)
    )
    Upkeep(worker(pool, Draft(), table()), window=window, depth=3).build((1, 2))
    assert asked == [captured]


@pytest.mark.parametrize(
    ("length", "count"), [("2.6", False), ("0.5", False), ("0", True), ("-1", True)]
)
def test_guesses_count_unless_acceptance_is_simulated(pool, monkeypatch, length, count):
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", length)
    assert Upkeep(worker(pool, Draft(), table()), window=4, depth=3)._guesses_count is count
