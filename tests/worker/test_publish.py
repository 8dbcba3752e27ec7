"""A plain round publishes its lengths before it runs: the next launch may have to wait for them."""

from types import SimpleNamespace

import pytest
import torch

from sglang_dynspec_hooks.worker.plain import run_plain_round

#: SGLang warns where it is imported without a GPU.
pytestmark = pytest.mark.filterwarnings("ignore")


class BeganError(Exception):
    pass


def test_lengths_are_published_before_the_round_runs(monkeypatch):
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

    def begin(*_args, **_kwargs):
        raise BeganError

    monkeypatch.setattr(ForwardBatch, "init_new", begin)
    pool = SimpleNamespace(req_to_token=torch.arange(32).view(4, 8))
    worker = SimpleNamespace(
        target_worker=SimpleNamespace(model_runner=None),
        req_to_token_pool=pool,
        speculative_algorithm=SimpleNamespace(is_standalone=lambda: False),
    )
    batch = SimpleNamespace(
        spec_info=SimpleNamespace(bonus_tokens=torch.tensor([7, 8])),
        seq_lens=torch.tensor([3, 5]),
        seq_lens_cpu=torch.tensor([3, 5]),
        req_pool_indices=torch.tensor([1, 2]),
    )
    published = []
    with pytest.raises(BeganError):
        run_plain_round(worker, batch, on_publish=published.append, grammar_barrier=None)
    assert [lengths.tolist() for lengths in published] == [[4, 6]]
    # The newest token goes where the lengths that the round began with end.
    assert batch.out_cache_loc.tolist() == [8 + 3, 16 + 5]
