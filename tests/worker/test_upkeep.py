"""Upkeep's decisions, with a ledger that is real and passes that are not."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sglang_dynspec_hooks.worker import upkeep as upkeep_module
from sglang_dynspec_hooks.worker.upkeep import Upkeep
from tests.worker.test_kv_write import played

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
    made._writer = Writer(made.ledger)
    # Not one for guesses.
    made.passes["window"] = 1
    return made


def batch_of(*slots):
    return SimpleNamespace(req_pool_indices_cpu=torch.tensor(slots))


def scheduler(*, radix=True):
    return SimpleNamespace(disable_radix_cache=not radix, enable_overlap=False)


class TestRelease:
    def test_those_that_lack_tokens_are_written_and_all_are_forgotten(self, upkeep):
        upkeep.release(scheduler(), batch_of(3, 1, 2), [0, 1])
        assert upkeep._writer.written == [[1]]
        assert upkeep.ledger.owed(np.array([1, 2, 3])).tolist() == [0, 2, 0]
        assert upkeep.summary() == {
            "window": 3,
            "passes": {"window": 1, "reentry": 0, "finish": 1},
            "writes": 1,
            "pending": 1,
            "gaps": 0,
            "faults": 0,
        }

    @pytest.mark.parametrize("of", [None, scheduler(radix=False)], ids=["unknown", "no radix"])
    def test_without_a_radix_cache_nothing_is_written(self, upkeep, of):
        upkeep.release(of, batch_of(1, 2), [0, 1])
        assert (upkeep._writer.written, upkeep.passes["finish"]) == ([], 0)
        assert upkeep.ledger.owed(np.array([1, 2])).tolist() == [0, 0]

    def test_one_that_lacks_nothing_takes_no_pass(self, upkeep):
        upkeep.release(scheduler(), batch_of(3), [0])
        assert (upkeep._writer.written, upkeep.passes["finish"]) == ([], 0)

    def test_without_a_writer_the_draft_is_extended_over_them(self, upkeep, monkeypatch):
        extended = []
        monkeypatch.setattr(
            upkeep_module,
            "extend_finished",
            lambda _worker, _ledger, batch, rows, slots: extended.append((rows, slots.tolist())),
        )
        upkeep._writer = None
        upkeep.release(scheduler(), batch_of(3, 1, 2), [0, 1, 2])
        assert extended == [([1, 2], [1, 2])]


class TestGivingUp:
    def test_a_pass_that_fails_ends_upkeep(self, upkeep, caplog):
        upkeep._writer.fault = RuntimeError("no more")
        with caplog.at_level(logging.ERROR, "sglang_dynspec"):
            # What ran of the pass is in the time of its round.
            assert upkeep.before_plain_round(batch_of(1, 2)) is True
        assert (upkeep.window, upkeep.faults) == (0, 1)
        assert upkeep.ledger.pending() == 0
        (line,) = caplog.messages
        assert line.startswith("upkeep_given_up error='RuntimeError: no more (")
        assert "Traceback" in caplog.text
        assert upkeep.before_plain_round(batch_of(1, 2)) is False

    def test_one_of_requests_that_finished_forgets_them_all_the_same(self, upkeep):
        upkeep._writer.fault = RuntimeError("no more")
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
        assert upkeep._writer.written == [[2, 1]]
        assert upkeep.passes["window"] == 2

    def test_it_stays_within_the_ledger(self, upkeep):
        for window in (-1, 5):
            with pytest.raises(ValueError, match=r"within 0\.\.4; found"):
                upkeep.set_window(window)
        upkeep.set_window(4)
        assert upkeep.window == 4
