"""Upkeep's decisions, with a ledger that is real and passes that are not."""

import contextlib
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sglang_dynspec_hooks.worker import upkeep as upkeep_module
from sglang_dynspec_hooks.worker.upkeep import Upkeep
from tests.worker.test_kv_write import HIDDEN, played

#: SGLang's modules warn at import of what a CPU lacks.
pytestmark = pytest.mark.filterwarnings("ignore")


class Writer:
    """Notes what it is asked to write, and strikes it off."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.written = []
        self.fault = None

    def write(self, slots):
        if self.fault:
            raise self.fault
        self.written.append(slots.tolist())
        self.ledger.mark_written(slots)


@pytest.fixture
def upkeep():
    """Slot 1 lacks 3 tokens, slot 2 lacks 2, slot 3 none."""
    made = Upkeep(SimpleNamespace(device="cpu"), window=3, depth=3)
    made.ledger = played({1: 5}, {1: 6, 2: 7}, {1: 7, 2: 8})
    made.writer = Writer(made.ledger)
    # Not one for guesses.
    made.passes["window"] = 1
    return made


def batch_of(*slots):
    return SimpleNamespace(req_pool_indices_cpu=torch.tensor(slots))


def scheduler(*, radix=True):
    return SimpleNamespace(disable_radix_cache=not radix, enable_overlap=False)


def note(upkeep, *slots, token=1, length=5):
    """Let a plain round end that gave each request the token."""
    lengths = torch.full((len(slots),), length)
    batch = SimpleNamespace(
        req_pool_indices=torch.tensor(slots, dtype=torch.int32),
        req_pool_indices_cpu=torch.tensor(slots),
        seq_lens_cpu=lengths,
    )
    result = SimpleNamespace(next_token_ids=torch.full((len(slots),), token), new_seq_lens=lengths)
    upkeep.after_plain_round(batch, result, torch.full((len(slots), HIDDEN), 0.5))
    return result


@pytest.fixture
def extended(monkeypatch):
    """What draft-extends were run over; each guesses token 7 for every request."""
    passes = []

    def extend(worker, ledger, batch, slots, owed, *, lengths, lengths_cpu):
        passes.append((worker, ledger, batch, slots.tolist(), owed.tolist()))
        assert (lengths, lengths_cpu) == ("lengths", "their mirror")
        fresh = SimpleNamespace(
            topk_index=torch.full((len(slots), 1), 7), topk_p=None, hidden_states=None
        )
        return fresh, SimpleNamespace(owing=torch.from_numpy(owed > 0).long())

    monkeypatch.setattr(upkeep_module, "extend_draft", extend)
    return passes


def extendable(*slots):
    batch = batch_of(*slots)
    batch.seq_lens, batch.seq_lens_cpu = "lengths", "their mirror"
    batch.spec_info = SimpleNamespace(
        topk_index=torch.full((len(slots), 1), 3), topk_p=None, hidden_states=None
    )
    return batch


class TestGuesses:
    @pytest.fixture
    def upkeep(self, upkeep):
        upkeep.passes["window"] = 0
        upkeep._worker.draft_worker = SimpleNamespace(hot_token_id=None)
        return upkeep

    def test_one_window_pass_in_sixteen_is_a_draft_extend(self, upkeep, extended):
        batch = extendable(3)
        kinds = []
        for _ in range(33):
            for _ in range(3):
                note(upkeep, 3)
            assert upkeep.before_plain_round(batch) is True
            kinds.append(len(extended))
            assert upkeep.ledger.unwritten(np.array([3])).tolist() == [0]
        assert kinds == [1] * 16 + [2] * 16 + [3]
        assert (upkeep.passes["window"], upkeep.writes) == (33, 30)

    def test_they_are_compared_with_the_round_that_follows(self, upkeep, extended):
        batch = extendable(1, 3)
        assert upkeep.before_plain_round(batch) is True
        assert extended == [(upkeep._worker, upkeep.ledger, batch, [1, 3], [3, 0])]
        result = note(upkeep, 1, 3, token=7)
        count, right = result.dynspec_guesses
        # Slot 3 lacked nothing: its row guesses nothing.
        assert (count, int(right)) == (1, 1)

    def test_there_are_none_where_acceptance_is_simulated(self, upkeep, extended):
        upkeep._guesses_count = False
        assert upkeep.before_plain_round(extendable(1)) is True
        assert (extended, upkeep.writer.written) == ([], [[1]])
        upkeep.ledger = played({1: 5}, {1: 6}, {1: 7})
        upkeep.writer = None
        assert upkeep.before_plain_round(extendable(1)) is True
        assert len(extended) == 1
        assert not hasattr(note(upkeep, 1), "dynspec_guesses")

    def test_without_a_writer_every_pass_guesses(self, upkeep, extended):
        upkeep.passes["window"], upkeep.writer = 1, None
        assert upkeep.before_plain_round(extendable(1)) is True
        assert int(note(upkeep, 1, token=7).dynspec_guesses[1]) == 1
        assert (len(extended), upkeep.writes, upkeep.faults) == (1, 0, 0)


class TestReentry:
    def test_what_is_owed_is_paid_and_goes_on_the_batch(self, upkeep, extended):
        batch = extendable(2, 3)
        assert upkeep.before_speculative_round(batch) is True
        assert extended == [(upkeep._worker, upkeep.ledger, batch, [2, 3], [2, 0])]
        # The request that owed nothing keeps its input.
        assert batch.spec_info.topk_index.view(-1).tolist() == [7, 3]
        assert (upkeep.passes, upkeep.faults) == ({"window": 1, "reentry": 1, "finish": 0}, 0)

    def test_a_batch_that_owes_nothing_takes_no_pass(self, upkeep, extended):
        assert upkeep.before_speculative_round(extendable(3)) is False
        assert (extended, upkeep.passes["reentry"], upkeep.faults) == ([], 0, 0)

    def test_a_whole_batch_takes_the_fresh_rows_as_they_are(self, upkeep, extended):
        upkeep.ledger.mark_written(np.array([2]))
        batch = extendable(1, 2)
        batch.spec_info.topk_index = batch.spec_info.topk_index.int()
        assert upkeep.before_speculative_round(batch) is True
        # The newest token is owed even when its keys and values are written.
        assert extended[0][-1] == [3, 1]
        assert batch.spec_info.topk_index.dtype == torch.int64


class TestRelease:
    def test_those_that_lack_tokens_are_written_and_all_are_forgotten(self, upkeep):
        upkeep.release(scheduler(), batch_of(3, 1, 2), [0, 1])
        assert upkeep.writer.written == [[1]]
        assert upkeep.ledger.owed(np.array([1, 2, 3])).tolist() == [0, 2, 0]
        assert upkeep.summary() == {
            "window": 3,
            "passes": {"window": 1, "reentry": 0, "finish": 1},
            "writes": 1,
            "prefills": 0,
            "pending": 1,
            "gaps": 0,
            "faults": 0,
        }

    def test_one_token_is_enough(self, upkeep):
        note(upkeep, 3)
        upkeep.release(scheduler(), batch_of(3), [0])
        assert upkeep.writer.written == [[3]]

    def test_without_a_radix_cache_nothing_is_written(self, upkeep):
        upkeep.release(scheduler(radix=False), batch_of(1, 2), [0, 1])
        assert (upkeep.writer.written, upkeep.passes["finish"]) == ([], 0)
        assert upkeep.ledger.owed(np.array([1, 2])).tolist() == [0, 0]

    def test_one_that_lacks_nothing_takes_no_pass(self, upkeep):
        upkeep.release(scheduler(), batch_of(3), [0])
        assert (upkeep.writer.written, upkeep.passes["finish"]) == ([], 0)

    def test_without_a_writer_the_draft_is_extended_over_them(self, upkeep, monkeypatch):
        extended = []
        monkeypatch.setattr(
            upkeep_module,
            "extend_finished",
            lambda worker, ledger, batch, rows, slots: extended.append(
                (worker, ledger, rows, slots.tolist())
            ),
        )
        upkeep.writer = None
        upkeep.release(scheduler(), batch_of(3, 1, 2), [0, 1, 2])
        assert extended == [(upkeep._worker, upkeep.ledger, [1, 2], [1, 2])]

    def test_it_is_written_on_the_forward_stream(self, upkeep, monkeypatch):
        entered = []

        @contextlib.contextmanager
        def stream(of):
            entered.append(of)
            yield
            assert upkeep.writer.written == [[1]]

        monkeypatch.setattr(upkeep_module, "on_forward_stream", stream)
        of = scheduler()
        upkeep.release(of, batch_of(1), [0])
        assert entered == [of]


class TestGivingUp:
    def test_a_pass_that_fails_ends_upkeep(self, upkeep, caplog):
        upkeep.writer.fault = RuntimeError("no more")
        with caplog.at_level(logging.ERROR, "sglang_dynspec"):
            # What ran of the pass is in the time of its round.
            assert upkeep.before_plain_round(batch_of(1, 2)) is True
        assert (upkeep.window, upkeep.faults) == (0, 1)
        assert upkeep.ledger.pending() == 0
        (line,) = caplog.messages
        assert caplog.records[0].name == "sglang_dynspec"
        assert line.startswith("upkeep_given_up error='RuntimeError: no more (")
        assert "Traceback" in caplog.text
        assert upkeep.before_plain_round(batch_of(1, 2)) is False

    def test_one_of_requests_that_finished_forgets_them_all_the_same(self, upkeep):
        upkeep.writer.fault = RuntimeError("no more")
        upkeep.release(scheduler(), batch_of(1, 2), [0])
        assert (upkeep.window, upkeep.faults) == (0, 1)
        assert upkeep.ledger.owed(np.array([1, 2])).tolist() == [0, 0]

    @pytest.mark.parametrize("call", ["before_speculative_round", "after_plain_round"])
    def test_no_call_of_a_round_raises(self, upkeep, call):
        # Without a request table, or a result, neither can do its work.
        getattr(upkeep, call)(*[batch_of(1, 2)] * (1 if call.startswith("before") else 3))
        assert (upkeep.window, upkeep.faults) == (0, 1)


class TestWindow:
    def test_a_pass_comes_once_a_request_lacks_a_whole_window(self, upkeep):
        assert upkeep.before_plain_round(batch_of(2, 3)) is False
        assert upkeep.before_plain_round(batch_of(2, 1)) is True
        assert upkeep.writer.written == [[2, 1]]
        assert (upkeep.passes["window"], upkeep.writes) == (2, 1)

    def test_a_change_keeps_what_is_owed_and_none_writes_it_off(self, upkeep):
        upkeep.set_window(2)
        assert upkeep.ledger.unwritten(np.array([1, 2])).tolist() == [3, 2]
        upkeep.set_window(0)
        assert upkeep.ledger.unwritten(np.array([1, 2])).tolist() == [0, 0]

    @pytest.mark.parametrize("window", [0, 1])
    def test_a_plain_round_is_noted_while_there_is_upkeep(self, upkeep, window):
        upkeep.set_window(window)
        upkeep.ledger.clear()
        note(upkeep, 3, token=7, length=9)
        slots = np.array([3])
        assert upkeep.ledger.unwritten(slots).tolist() == [window]
        assert upkeep.faults == 0
        if window:
            rows = upkeep.ledger.rows(slots, upkeep.ledger.owed(slots))
            assert (rows.tokens[0].item(), rows.hidden[0].tolist()) == (7, [0.5, 0.5])
            _, mirror = upkeep.ledger.lengths(torch.tensor([3]), slots)
            assert (rows.positions[0].item(), mirror.tolist()) == (8, [9])

    def test_it_stays_within_the_ledger(self, upkeep):
        for window in (-1, 5):
            with pytest.raises(ValueError, match=r"within 0\.\.4; found"):
                upkeep.set_window(window)
        upkeep.set_window(4)
        assert upkeep.window == 4
