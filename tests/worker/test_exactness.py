"""Which requests need plain rounds: each kind alone."""

from types import SimpleNamespace

import pytest

from sglang_dynspec_hooks.bridge.exactness import count_plain_requests
from tests.worker.stubs import batch_of, request, sampling_of


@pytest.mark.parametrize(
    ("flag", "parameter"),
    [
        ("penalties", {"frequency_penalty": 0.1}),
        ("penalties", {"presence_penalty": -0.1}),
        ("penalties", {"repetition_penalty": 1.1}),
        ("penalties", {"min_new_tokens": 1}),
        ("min_p", {"min_p": 0.1}),
    ],
    ids=str,
)
def test_a_request_that_needs_plain_rounds(flag, parameter):
    batch = batch_of(request(), request(**parameter), sampling=sampling_of(**{flag: True}))
    assert count_plain_requests(batch) == 1


def test_a_logit_processor_needs_plain_rounds():
    batch = batch_of(request(), request(), sampling=sampling_of(processor=True))
    batch.reqs[1].custom_logit_processor = "one"
    assert count_plain_requests(batch) == 1


def test_a_flag_may_outlast_its_request():
    batch = batch_of(request(), sampling=sampling_of(penalties=True, min_p=True, processor=True))
    assert count_plain_requests(batch) == 0


@pytest.mark.parametrize("sampling", [None, sampling_of()], ids=["unknown", "no flag"])
def test_requests_are_not_looked_at_without_need(sampling):
    assert count_plain_requests(SimpleNamespace(reqs=None, sampling_info=sampling)) == 0
