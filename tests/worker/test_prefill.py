"""A prefill while rounds are plain, with a draft model small enough to follow by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sglang_dynspec_hooks.worker.kv_write import KvWriter
from sglang_dynspec_hooks.worker.prefill import PlainPrefill
from sglang_dynspec_hooks.worker.upkeep import Upkeep
from tests.worker.test_kv_write import (
    HIDDEN,
    Draft,
    Pool,
    no_contexts,  # noqa: F401 - an autouse fixture
    played,
    table,
    worker,
)

#: SGLang's modules warn at import of what a CPU lacks.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def made(pool):
    """A worker with a pool, its upkeep, and what runs its prefills."""
    one = worker(pool, Draft(), table())
    one.topk = 1
    one.draft_worker.draft_runner.model_config = SimpleNamespace(
        spec_hidden_size=HIDDEN, dtype=torch.float32
    )
    one.draft_worker.draft_runner.spec_algorithm = SimpleNamespace(is_standalone=lambda: False)
    upkeep = Upkeep(one, window=3, depth=3)
    upkeep.ledger = played({1: 5}, {1: 6})
    upkeep.writer = KvWriter(one, upkeep.ledger, row_counts=())
    pool.keys.clear()
    return SimpleNamespace(worker=one, upkeep=upkeep, prefill=PlainPrefill(one, upkeep))


def batch(*, mixed=False, goes_on=None):
    """Slot 1 with a prompt of 3 tokens, slot 2 with 2 more after a prefix of 4."""
    requests = ["first", "second"]
    return SimpleNamespace(
        forward_mode=SimpleNamespace(is_extend=lambda: True, is_mixed=lambda: mixed),
        reqs=requests,
        chunked_req="second" if goes_on else None,
        chunked_req_next_prompt_token=goes_on,
        extend_lens=[3, 2],
        prefix_lens=[0, 4],
        input_ids=torch.tensor([5, 6, 7, 8, 9]),
        out_cache_loc=torch.tensor([100, 101, 102, 204, 205], dtype=torch.int32),
        req_pool_indices=torch.tensor([1, 2], dtype=torch.int32),
        req_pool_indices_cpu=torch.tensor([1, 2]),
        seq_lens=torch.tensor([3, 6]),
        seq_lens_cpu=torch.tensor([3, 6]),
    )


HIDDEN_ROWS = torch.arange(5, dtype=torch.float32)[:, None].expand(-1, HIDDEN)
NEXT = torch.tensor([70, 90], dtype=torch.int32)


def test_each_position_is_written_with_the_token_after_it(made, pool):
    given = batch()
    draft_input = made.prefill.run(given, HIDDEN_ROWS, NEXT)
    assert pool.keys == {
        100: (6, 0, 0.0, 0.0),
        101: (7, 1, 1.0, 1.0),
        102: (70, 2, 2.0, 2.0),
        204: (9, 4, 3.0, 3.0),
        205: (90, 5, 4.0, 4.0),
    }
    assert draft_input.bonus_tokens is NEXT
    assert given.input_ids.tolist() == [5, 6, 7, 8, 9]


def test_of_a_prompt_that_goes_on_its_next_token_comes_last(made, pool):
    made.prefill.run(batch(goes_on=33), HIDDEN_ROWS, NEXT)
    assert (pool.keys[102][0], pool.keys[205][0]) == (70, 33)


def test_the_last_rows_are_kept_for_reentry(made):
    slots = np.array([1, 2, 3])
    made.prefill.run(batch(), HIDDEN_ROWS, NEXT)
    ledger = made.upkeep.ledger
    assert (ledger.unwritten(slots).tolist(), ledger.owed(slots).tolist()) == ([0] * 3, [1, 1, 0])
    rows = ledger.rows(slots, ledger.owed(slots))
    first = slice(None, None, ledger.width)
    assert rows.tokens[first][:2].tolist() == [70, 90]
    assert rows.hidden[first][:2, 0].tolist() == [2.0, 4.0]
    assert (rows.slots[first][:2].tolist(), rows.positions[first][:2].tolist()) == ([1, 2], [2, 5])
    assert made.upkeep.prefills == made.upkeep.summary()["prefills"] == 1


def test_its_drafts_are_valid_ids(made):
    draft_input = made.prefill.run(batch(), HIDDEN_ROWS, NEXT)
    shapes = {
        name: (tuple(getattr(draft_input, name).shape), getattr(draft_input, name).dtype)
        for name in ("topk_p", "topk_index", "hidden_states")
    }
    assert shapes == {
        "topk_p": ((2, 1), torch.float32),
        "topk_index": ((2, 1), torch.int64),
        "hidden_states": ((2, HIDDEN), torch.float32),
    }
    assert draft_input.topk_index.tolist() == [[0], [0]]


@pytest.mark.parametrize("reason", ["no writer", "no upkeep", "mixed"])
def test_where_the_draft_must_run_whole_nothing_is_done(made, pool, reason):
    if reason == "no writer":
        made.upkeep.writer = None
    if reason == "no upkeep":
        made.upkeep.set_window(0)
    assert made.prefill.run(batch(mixed=reason == "mixed"), HIDDEN_ROWS, NEXT) is None
    assert (pool.keys, made.upkeep.prefills) == ({}, 0)


def test_a_fault_gives_upkeep_up_and_leaves_the_prefill_to_sglang(made, monkeypatch, caplog):
    monkeypatch.setattr(made.upkeep.writer, "write_rows", lambda *_: 1 / 0)
    assert made.prefill.run(batch(), HIDDEN_ROWS, NEXT) is None
    assert (made.upkeep.window, made.upkeep.faults) == (0, 1)
    assert "upkeep_given_up" in caplog.text
