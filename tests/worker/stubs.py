"""A scheduler, its requests and its policy, of stubs: they bring the odd orders that may come."""

from types import SimpleNamespace

import torch

from sglang_dynspec import Plan
from sglang_dynspec.policies import Never

SLOTS = (4, 7, 9, 2)

PARAMETERS = SimpleNamespace(
    frequency_penalty=0.0,
    presence_penalty=0.0,
    repetition_penalty=1.0,
    min_new_tokens=0,
    min_p=0.0,
)


class Request(SimpleNamespace):
    def finished(self):
        return self.is_finished


class Upkeep:
    """Remembers what it is told."""

    def __init__(self):
        self.window = 4
        self.prefills = 0
        self.forgotten = []
        self.released = []

    def release(self, scheduler, batch, rows):
        self.released.append((scheduler, list(rows)))

    def forget_gone(self, slots, prefills):
        self.forgotten += [(slot, prefills) for slot in slots.tolist()]

    def summary(self):
        return {"window": self.window}


class Planned(Never):
    """Plans one depth, and keeps what it is told."""

    def __init__(self):
        self.depth = 0
        self.learned = []

    def decide(self, observation):
        self.observation = observation
        return Plan(depth=self.depth, reason="test")

    def learn(self, outcome):
        self.learned.append(outcome)


def request(length=10, *, rid="r", output=1, finished=False, retracted=False, **parameters):
    return Request(
        rid=rid,
        output_ids=[1] * output,
        is_finished=finished,
        is_retracted=retracted,
        finished_len=None,
        kv=SimpleNamespace(kv_committed_len=length),
        sampling_params=SimpleNamespace(**vars(PARAMETERS) | parameters),
        custom_logit_processor=None,
    )


def sampling_of(*, penalties=False, min_p=False, processor=False):
    return SimpleNamespace(
        penalizer_orchestrator=SimpleNamespace(is_required=penalties),
        need_min_p_sampling=min_p,
        has_custom_logit_processor=processor,
    )


def batch_of(*requests, iteration=1, decode=True, sampling=None):
    return SimpleNamespace(
        reqs=list(requests),
        req_pool_indices_cpu=torch.tensor(SLOTS[: len(requests)]),
        forward_mode=SimpleNamespace(is_decode=lambda: decode),
        forward_iter=iteration,
        after_idle_gap=False,
        sampling_info=sampling,
    )


def result_of(bridge, batch, *, depth=0, accepted=None, copy_done=None, **fields):
    """Launch a batch that was marked, and return its result."""
    result = SimpleNamespace(
        copy_done=copy_done,
        speculative_num_draft_tokens=depth + 1,
        num_correct_drafts_per_req_cpu=accepted or [0] * len(batch.reqs),
        **fields,
    )
    assert bridge.planned_depth(batch) in (0, depth)
    bridge.stamp(batch, result)
    return result


def deliver(*tokens, finish=(), cut=()):
    """Process a result: give each request its tokens; some finish, a stop cuts some short."""

    def process(batch):
        for row, count in enumerate(tokens):
            req = batch.reqs[row]
            req.output_ids += [1] * count
            if row in finish:
                req.is_finished = True
                req.finished_len = len(req.output_ids) - dict(cut).get(row, 0)

    return process


def settle(bridge, batch, result, process=lambda batch: None):
    bridge.settle(batch, result, lambda: process(batch))
