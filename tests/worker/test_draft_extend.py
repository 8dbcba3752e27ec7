"""What an upkeep pass in full is run over, and what it puts into the round's draft input."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sglang_dynspec_hooks.worker.draft_extend import extend_draft, merge_draft_input
from tests.worker.test_kv_write import SLOTS, WIDTH, played, table

#: SGLang's modules warn at import of what a CPU lacks.
pytestmark = pytest.mark.filterwarnings("ignore")


def draft_input(value, *, hidden=True):
    return SimpleNamespace(
        topk_p=torch.full((3, 1), float(value)),
        topk_index=torch.full((3, 1), value),
        hidden_states=torch.full((3, 2), float(value)) if hidden else None,
    )


OWING = torch.tensor([1, 0, 1])


def test_requests_that_owed_nothing_keep_their_rows():
    kept = draft_input(1)
    merge_draft_input(kept, draft_input(2), OWING, whole=False)
    assert kept.topk_index.view(-1).tolist() == [2, 1, 2]
    assert kept.topk_p.view(-1).tolist() == [2.0, 1.0, 2.0]
    assert kept.hidden_states[:, 0].tolist() == [2.0, 1.0, 2.0]


def test_a_whole_batch_takes_the_fresh_rows():
    kept, fresh = draft_input(1), draft_input(2)
    merge_draft_input(kept, fresh, torch.ones(3, dtype=torch.bool), whole=True)
    assert kept.topk_index is fresh.topk_index


def test_a_draft_without_hidden_states_stays_without():
    """CUDA graphs of a STANDALONE draft output hidden states that nobody reads."""
    for whole, index in ((False, [2, 1, 2]), (True, [2, 2, 2])):
        kept = draft_input(1, hidden=False)
        merge_draft_input(kept, draft_input(2), OWING, whole=whole)
        assert kept.hidden_states is None
        assert kept.topk_index.view(-1).tolist() == index


@pytest.fixture
def entered(monkeypatch):
    """The contexts of SGLang's draft passes, by name, that are entered and not left."""
    from sglang.srt.layers.moe import utils
    from sglang.srt.speculative import spec_utils

    inside = []

    def context(name):
        @contextlib.contextmanager
        def enter(*layout):
            inside.append((name, *layout))
            yield
            inside.remove((name, *layout))

        return enter

    monkeypatch.setattr(spec_utils, "draft_tp_context", context("tp"))
    monkeypatch.setattr(utils, "speculative_moe_backend_context", context("moe"))
    monkeypatch.setattr(utils, "speculative_moe_a2a_backend_context", context("a2a"))
    return inside


@pytest.fixture
def passes():
    return []


@pytest.fixture
def worker(entered, passes):
    def draft_extend(batch, result):
        assert entered == [("tp", "layout"), ("moe",), ("a2a",)]
        passes.append((batch, result))

    return SimpleNamespace(
        req_to_token_pool=SimpleNamespace(req_to_token=table()),
        draft_worker=SimpleNamespace(
            parallel_layout="layout", _draft_extend_for_decode=draft_extend
        ),
    )


def extend(worker, ledger, owed, *, lengths, lengths_cpu=None):
    """Extend the draft over slots 1, 3 and 2; return the batch and what came back."""
    batch = SimpleNamespace(
        spec_info="of the round", seq_lens="its own", seq_lens_cpu="its own", seq_lens_sum=1
    )
    before = dict(vars(batch))
    slots = np.array([1, 3, 2])
    returned = extend_draft(
        worker, ledger, batch, slots, np.array(owed), lengths=lengths, lengths_cpu=lengths_cpu
    )
    # The round still needs it.
    assert vars(batch) == before
    return returned


def test_a_pass_covers_the_newest_tokens_where_they_belong(worker, passes, entered):
    # Slot 1 got tokens 11 and 21 at positions 3 and 4, slot 2 tokens 2, 12, 22 at 5 to 7.
    ledger = played({2: 6}, {1: 4, 2: 7}, {1: 5, 2: 8})
    lengths = torch.tensor([5, 9, 8], dtype=torch.int32)
    fresh, rows = extend(worker, ledger, [2, 0, 3], lengths=lengths, lengths_cpu=lengths)
    ((batch, result),) = passes
    assert entered == []
    # A request that owes nothing only pads the pass: one token, written to the padding slot.
    assert (batch.seq_lens.tolist(), batch.seq_lens.dtype) == ([3, 8, 5], torch.int64)
    assert (batch.seq_lens_cpu.tolist(), batch.seq_lens_sum) == ([3, 8, 5], 16)
    assert batch.spec_info is None
    assert batch.out_cache_loc.dtype == torch.int64
    assert batch.out_cache_loc.view(3, WIDTH).tolist() == [
        [103, 104, 0, 0],
        [0] * WIDTH,
        [205, 206, 207, 0],
    ]
    tokens = result.next_token_ids.view(3, WIDTH)
    assert (tokens[0, :2].tolist(), tokens[2, :3].tolist()) == ([11, 21], [2, 12, 22])
    hidden = result.logits_output.hidden_states.view(3, WIDTH, -1)
    assert hidden[2, :3, 0].tolist() == [2.0, 12.0, 22.0]
    assert result.logits_output.next_token_logits is None
    assert (result.accept_lens.tolist(), result.accept_lens.dtype) == ([2, 1, 3], torch.int32)
    assert result.new_seq_lens is lengths
    assert result.next_draft_input is fresh
    assert fresh.bonus_tokens is rows.tokens
    assert rows.owing.tolist() == [1, 0, 1]


def test_a_pass_without_a_host_mirror_has_none(worker, passes):
    extend(worker, played({1: 4}), [1, 0, 0], lengths=torch.tensor([4, 9, 8]))
    ((batch, _),) = passes
    assert (batch.seq_lens_cpu, batch.seq_lens_sum) == (None, None)


@pytest.mark.parametrize(("length", "entry"), [(99, 319), (-70, 0)])
def test_an_entry_outside_the_request_table_is_none_of_the_pass(worker, passes, length, entry):
    """It would end the server where a wrong one costs a warm draft."""
    last = SLOTS - 1
    extend(worker, played({last: length}), [0, 1, 0], lengths=torch.tensor([5, length, 8]))
    ((batch, _),) = passes
    assert batch.out_cache_loc.view(3, WIDTH)[1, 0].item() == entry
