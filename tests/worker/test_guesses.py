"""Guesses of a plain round, where the engine tests' models cannot tell right from wrong."""

from types import SimpleNamespace

import torch

from sglang_dynspec_hooks.worker.guesses import Guesses


def compared(*, guessed, valid, produced, vocabulary=None):
    guesses = Guesses()
    worker = SimpleNamespace(draft_worker=SimpleNamespace(hot_token_id=vocabulary))
    guesses.note(worker, torch.tensor(guessed)[:, None], torch.tensor(valid), count=sum(valid))
    result = SimpleNamespace(next_token_ids=torch.tensor(produced))
    guesses.compare(result)
    count, right = result.dynspec_guesses
    return count, int(right)


def test_a_row_that_only_pads_the_pass_is_not_right_by_chance():
    valid = [1, 0, 1, 1]
    assert compared(guessed=[5, 6, 7, 8], valid=valid, produced=[5, 6, 7, 0]) == (3, 2)


def test_guesses_are_in_the_drafts_vocabulary():
    vocabulary = torch.tensor([70, 60, 50])
    right = compared(guessed=[0, 1, 2], valid=[1] * 3, produced=[70, 1, 50], vocabulary=vocabulary)
    assert right == (3, 2)


def test_a_guess_is_compared_once():
    guesses = Guesses()
    worker = SimpleNamespace(draft_worker=SimpleNamespace(hot_token_id=None))
    guesses.note(worker, torch.tensor([[5]]), torch.tensor([1]), count=1)
    first, second = (SimpleNamespace(next_token_ids=torch.tensor([5])) for _ in range(2))
    guesses.compare(first)
    guesses.compare(second)
    assert int(first.dynspec_guesses[1]) == 1
    assert not hasattr(second, "dynspec_guesses")


def test_results_that_wait_keep_their_own_counts():
    guesses = Guesses()
    worker = SimpleNamespace(draft_worker=SimpleNamespace(hot_token_id=None))
    results = [SimpleNamespace(next_token_ids=torch.tensor([token])) for token in (5, 6)]
    for result in results:
        guesses.note(worker, torch.tensor([[5]]), torch.tensor([1]), count=1)
        guesses.compare(result)
    assert [int(result.dynspec_guesses[1]) for result in results] == [1, 0]
