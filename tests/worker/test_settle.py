"""What the bridge tells upkeep about requests that left."""

import time
from types import SimpleNamespace

import pytest
import torch

from sglang_dynspec import Config, Observation
from sglang_dynspec.policies import Never
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec_hooks.bridge.bridge import Bridge

SLOTS = (4, 7, 9)

OBSERVATION = Observation(
    batch_size=1,
    padded_batch_size=2,
    running=1,
    waiting=0,
    seq_len_sum=9,
    seq_len_max=9,
    kv_free=0.5,
    depths=(0, 1, 3),
    depth=0,
    depth_age=1,
)


class Request(SimpleNamespace):
    def finished(self):
        return self.is_finished


class Upkeep:
    """Remembers the slots it is told to forget."""

    def __init__(self):
        self.forgotten = []

    def lacking(self, batch, rows):
        return []

    def forget(self, slots):
        self.forgotten += slots.tolist()


@pytest.fixture
def upkeep():
    return Upkeep()


@pytest.fixture
def bridge(upkeep):
    config = Config().resolve(3)
    rounds = Rounds(policy=Never(), config=config, depths=config.depths)
    return Bridge(config=config, rounds=rounds, worker=SimpleNamespace(upkeep=upkeep))


def request(*, finished=False, retracted=False):
    return Request(
        rid="r", output_ids=[1], is_finished=finished, is_retracted=retracted, finished_len=None
    )


def settle(bridge, *requests, finish=()):
    """Process a round in which the requests at the rows ``finish`` get their last token."""
    batch = SimpleNamespace(
        reqs=list(requests), req_pool_indices_cpu=torch.tensor(SLOTS[: len(requests)])
    )

    def process():
        for row in finish:
            batch.reqs[row].is_finished = True

    bridge.settle(batch, SimpleNamespace(copy_done=None), process)


@pytest.fixture
def periods(upkeep):
    """Settle rounds, given their iteration, and return the periods; `pause` comes in between."""
    outcomes = []
    scheduler = SimpleNamespace(_pause_intervals=[])
    bridge = Bridge(
        config=Config().resolve(3),
        rounds=SimpleNamespace(learn=outcomes.append),
        worker=SimpleNamespace(upkeep=upkeep),
    )
    bridge.mark(scheduler, SimpleNamespace(forward_mode=SimpleNamespace(is_decode=lambda: False)))

    def run(*steps):
        for step in steps:
            if step == "pause":
                now = time.monotonic()
                scheduler._pause_intervals.append((now, now))
                continue
            batch = SimpleNamespace(reqs=[request()], forward_iter=step, after_idle_gap=False)
            result = SimpleNamespace(
                dynspec_observed=(OBSERVATION, [9]),
                dynspec_planned=0,
                dynspec_launch=0.0,
                copy_done=None,
                speculative_num_draft_tokens=1,
                num_correct_drafts_per_req_cpu=[0],
            )
            bridge.settle(batch, result, lambda: None)
        return [outcome.period for outcome in outcomes]

    return run


def test_a_period_is_the_time_between_two_rounds(periods):
    first, second, third = periods(1, 2, 4)
    assert first is None
    assert 0 <= second < 10
    assert third is None  # a prefill came between


def test_a_pause_is_in_no_period(periods):
    before, across, after = periods(1, "pause", 2, 3)
    assert before is None
    assert across is None
    assert 0 <= after < 10


def test_a_request_that_goes_on_keeps_what_it_owes(bridge, upkeep):
    settle(bridge, request(), request())
    assert upkeep.forgotten == []


def test_a_request_that_finishes_is_forgotten(bridge, upkeep):
    settle(bridge, request(), request(), finish=[1])
    assert upkeep.forgotten == [7]


def test_a_request_that_was_gone_before_is_forgotten(bridge, upkeep):
    # It finished at prefill, or was retracted, when this round was launched already.
    settle(bridge, request(finished=True), request(), request(retracted=True))
    assert upkeep.forgotten == [4, 9]


def test_both_at_once(bridge, upkeep):
    settle(bridge, request(finished=True), request(), request(), finish=[2])
    assert sorted(upkeep.forgotten) == [4, 9]
