"""
The draft's guesses of what plain rounds produce.

A draft-extend over everything before a plain round ends in a prediction of that round's token.
Nobody verifies it; comparing it with the token that the target produces says how often a first
draft would have been accepted, while speculation is off.
"""

from __future__ import annotations

from typing import Any

import torch

#: Results that may wait to be processed at once; overlap needs two.
_IN_FLIGHT = 4


class Guesses:
    """The guesses of one plain round, until its tokens are known and the right ones counted."""

    def __init__(self) -> None:
        #: Guessed ids, which of them are guesses, and how many are.
        self._noted: tuple[torch.Tensor, torch.Tensor, int] | None = None
        #: Where counts of right guesses arrive from the device, used in turn.
        self._arrivals: torch.Tensor | None = None
        self._next = 0

    def note(self, worker: Any, guessed: torch.Tensor, valid: torch.Tensor, count: int) -> None:
        """
        Keep the guesses for the round about to run.

        Args:
            worker: The speculative worker, which knows the draft's vocabulary.
            guessed: Token ids of the draft's vocabulary, int64, shape (batch size, 1).
            valid: 1 for rows that are guesses, else 0; int64, shape (batch size,).
            count: How many of them are.
        """
        ids = guessed.view(-1)
        vocabulary = worker.draft_worker.hot_token_id
        self._noted = ids if vocabulary is None else vocabulary[ids], valid, count

    def compare(self, result: Any) -> None:
        """
        Count the right guesses, on the device, and let the result say where the count arrives.

        Args:
            result: The round's result. Gets ``dynspec_guesses``: the number of guesses, and the
                tensor that holds the number of right ones once the result has been copied to the
                host.
        """
        if self._noted is None:
            return
        guessed, valid, count = self._noted
        self._noted = None
        if self._arrivals is None:
            self._arrivals = torch.zeros(_IN_FLIGHT, dtype=torch.int64, pin_memory=guessed.is_cuda)
        arrival = self._arrivals[self._next % _IN_FLIGHT]
        self._next += 1
        right = (guessed == result.next_token_ids) & (valid > 0)
        arrival.copy_(right.sum(), non_blocking=True)
        result.dynspec_guesses = count, arrival


def acceptance_is_simulated() -> bool:
    """Whether SGLang's verification draws its verdicts: the draft's guesses contradict them."""
    from sglang.srt.environ import envs

    return float(envs.SGLANG_SIMULATE_ACC_LEN.get()) > 0
