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
        token_to_kv_pool=pool, req_to_token_pool=None, spec_algorithm=None, model=draft
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


def test_nothing_lacking_writes_nothing(pool):
    writer = KvWriter(worker(pool, Draft(), table()), played({1: 4}), row_counts=())
    pool.keys.clear()
    writer.write(np.array([2, 3]))
    assert pool.keys == {}


def test_trying_it_touches_the_padding_slot_alone(pool):
    KvWriter(worker(pool, Draft(), table()), played({1: 4}), row_counts=())
    assert list(pool.keys) == [0]


def test_an_attention_of_another_kind_is_told_at_once(pool):
    with pytest.raises(NotImplementedError, match="attention with k_rope"):
        KvWriter(worker(pool, Draft(k_rope=1), table()), played({1: 4}), row_counts=())


def test_upkeep_does_without(pool, monkeypatch, caplog):
    monkeypatch.setattr(KvWriter, "fits", staticmethod(lambda worker: True))
    monkeypatch.setattr(upkeep_module, "_hidden_rows", lambda worker: (HIDDEN, torch.float32))
    upkeep = Upkeep(worker(pool, Draft(k_rope=1), table()), window=4, depth=3)
    upkeep.build(())
    assert upkeep._writer is None
    assert "attention with k_rope" in caplog.text
    assert caplog.records[0].name == "sglang_dynspec"
    fitting = Upkeep(worker(pool, Draft(), table()), window=4, depth=3)
    assert fitting.passes == {"window": 0, "reentry": 0, "finish": 0}
    fitting.build(())
    assert fitting._writer is not None
    assert fitting.ledger._tokens.shape == (WIDTH, SLOTS)
    assert fitting.ledger._hidden.shape == (WIDTH, SLOTS, HIDDEN)


@pytest.mark.parametrize(
    ("length", "count"), [("2.6", False), ("0.5", False), ("0", True), ("-1", True)]
)
def test_guesses_count_unless_acceptance_is_simulated(pool, monkeypatch, length, count):
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", length)
    assert Upkeep(worker(pool, Draft(), table()), window=4, depth=3)._guesses_count is count
