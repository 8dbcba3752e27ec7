"""What an upkeep pass puts into the draft input of the round that follows."""

from types import SimpleNamespace

import torch

from sglang_dynspec_hooks.worker.draft_extend import merge_draft_input


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
    kept = draft_input(1, hidden=False)
    merge_draft_input(kept, draft_input(2), OWING, whole=False)
    assert kept.hidden_states is None
    assert kept.topk_index.view(-1).tolist() == [2, 1, 2]
