"""
What the draft model still lacks, per request slot.

Every plain round leaves each of its requests one token behind in the draft model's KV cache, and
the draft's input for the next speculative round out of date. The `Ledger` keeps, per request slot,
how many tokens the KV cache lacks, whether the input is out of date, and the rows needed to catch
up: the target's hidden state and the produced token of each of the last ``width`` plain rounds.

Host side (counts) and device side (rows) are both fixed arrays over the request slots: nothing is
allocated per round and nothing grows. Rows lie in a ring over plain rounds, so that a round writes
all its rows at one host-known ring position, without an index going up to the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sglang_dynspec_hooks.worker.rows import Rows, upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


class Ledger:
    """
    Counts and rows of the tokens that plain rounds produced and no upkeep pass has covered.

    Attributes:
        width: Rows kept per slot, the most that one upkeep pass can cover.
        gaps: Requests that skipped a plain round while tokens were owed; expected to stay 0.
        prefills: Passes entered by `enter_prompts` so far.
    """

    def __init__(
        self,
        *,
        width: int,
        slots: int,
        device: str,
        hidden: tuple[int, torch.dtype] | None = None,
    ) -> None:
        """
        Create an empty ledger.

        Args:
            width: Rows kept per slot, the most that one upkeep pass can cover.
            slots: Number of request slots, the padding slot 0 included.
            device: Device of the rows.
            hidden: Length and dtype of a target hidden row; None for a draft that reads none.
        """
        self.width = width
        self._slots = slots
        self._device = device
        #: Newest tokens of each slot that the draft's KV cache lacks, whether its draft input is
        #: older than its newest token, and the index of its last plain round.
        self._counts: npt.NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self._stale: npt.NDArray[np.bool_] = np.zeros(slots, dtype=np.bool_)
        self._last: npt.NDArray[np.int64] = np.full(slots, -2, dtype=np.int64)
        #: Sequence length of each slot after its last plain round; host mirror where kept.
        self._lengths = torch.zeros(slots, dtype=torch.int64, device=device)
        self._host_lengths: npt.NDArray[np.int64] | None = None
        self._tokens = torch.zeros((width, slots), dtype=torch.int32, device=device)
        self._hidden = (
            None
            if hidden is None
            else torch.zeros((width, slots, hidden[0]), dtype=hidden[1], device=device)
        )
        self._offsets = np.arange(width)
        self._round = -1
        #: The newest prefill of each slot, by its number.
        self._prefilled: npt.NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self.prefills = 0
        self.gaps = 0

    def enter(
        self,
        slots: torch.Tensor,
        slots_cpu: npt.NDArray[np.int64],
        *,
        tokens: torch.Tensor,
        hidden: torch.Tensor | None,
        lengths: torch.Tensor,
        lengths_cpu: torch.Tensor | None,
    ) -> None:
        """
        Enter one plain round.

        Args:
            slots: Request slots, int64, shape (batch size,), on the device.
            slots_cpu: The same on the host.
            tokens: Produced tokens, int32 or int64, shape (batch size,).
            hidden: Target hidden rows, shape (batch size, hidden size), or None.
            lengths: Sequence lengths after the round, shape (batch size,).
            lengths_cpu: Their host mirror, when the scheduler keeps one.

        """
        self._round += 1
        self._keep(
            slots, slots_cpu, tokens=tokens, hidden=hidden, lengths=lengths, lengths_cpu=lengths_cpu
        )
        counts = self._counts[slots_cpu]
        skipped = (self._last[slots_cpu] != self._round - 1) & (counts > 0)
        self.gaps += int(skipped.sum())
        counts[skipped] = 0
        counts = np.minimum(counts + 1, self.width)
        self._counts[slots_cpu] = counts
        self._last[slots_cpu] = self._round

    def enter_prompts(
        self,
        slots: torch.Tensor,
        slots_cpu: npt.NDArray[np.int64],
        *,
        tokens: torch.Tensor,
        hidden: torch.Tensor,
        lengths: torch.Tensor,
        lengths_cpu: torch.Tensor | None,
    ) -> None:
        """
        Enter one prefill whose keys and values were written, and whose draft input was not made.

        No plain round: the ring does not move on. Whatever was known of the slots is struck off.

        Args:
            slots: As `enter` takes them, and so the others.
            slots_cpu: The same on the host.
            tokens: The tokens that the target produced.
            hidden: Target hidden rows of the last token of each prompt.
            lengths: Lengths of the prompts so far.
            lengths_cpu: Their host mirror, when the scheduler keeps one.
        """
        self._round = max(self._round, 0)
        self._keep(
            slots, slots_cpu, tokens=tokens, hidden=hidden, lengths=lengths, lengths_cpu=lengths_cpu
        )
        self._counts[slots_cpu] = 0
        self._last[slots_cpu] = self._round
        self.prefills += 1
        self._prefilled[slots_cpu] = self.prefills

    def prefilled_since(
        self, slots_cpu: npt.NDArray[np.int64], prefills: int
    ) -> npt.NDArray[np.bool_]:
        """Tell which slots `enter_prompts` was told of since ``prefills`` of them."""
        return self._prefilled[slots_cpu] > prefills

    def _keep(
        self,
        slots: torch.Tensor,
        slots_cpu: npt.NDArray[np.int64],
        *,
        tokens: torch.Tensor,
        hidden: torch.Tensor | None,
        lengths: torch.Tensor,
        lengths_cpu: torch.Tensor | None,
    ) -> None:
        """Put the slots' rows at the ring's present position; their draft input is older."""
        position = self._round % self.width
        self._tokens[position].index_copy_(0, slots, tokens.to(torch.int32))
        self._lengths.index_copy_(0, slots, lengths.to(torch.int64))
        if self._hidden is not None:
            self._hidden[position].index_copy_(0, slots, hidden)
        self._stale[slots_cpu] = True
        if lengths_cpu is None:
            self._host_lengths = None
            return
        if self._host_lengths is None:
            self._host_lengths = np.zeros(self._slots, dtype=np.int64)
        self._host_lengths[slots_cpu] = lengths_cpu.numpy()

    def unwritten(self, slots_cpu: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Tokens that the KV cache lacks per slot, int64, the shape of ``slots_cpu``."""
        return self._counts[slots_cpu]

    def owed(self, slots_cpu: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """
        Tokens that a pass must cover to bring the draft input up to date, by slot; int64.

        At least the newest one, even if its keys and values are in the KV cache already.
        """
        return np.where(self._stale[slots_cpu], np.maximum(self._counts[slots_cpu], 1), 0)

    def mark_written(self, slots_cpu: npt.NDArray[np.int64] | Sequence[int]) -> None:
        """Note that the slots' KV cache is whole; their draft input stays out of date."""
        self._counts[slots_cpu] = 0

    def settle(self, slots_cpu: npt.NDArray[np.int64] | Sequence[int]) -> None:
        """Strike the slots off: covered by a pass, by a speculative round, or prefilled anew."""
        self._counts[slots_cpu] = 0
        self._stale[slots_cpu] = False

    def clear(self) -> None:
        """Strike every slot off."""
        self._counts[:] = 0
        self._stale[:] = False

    def pending(self) -> int:
        """
        Number of slots whose KV cache lacks something.

        A finished request is settled at most one round after its last; one that lacks for longer
        left without finishing (retracted), and its slot is settled when it is prefilled anew.
        """
        return int(np.count_nonzero((self._counts > 0) & (self._last >= self._round - 1)))

    def lacking(self, slots_cpu: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """
        Where to find every token that the slots' KV cache lacks, oldest first.

        Args:
            slots_cpu: Request slots, int64, shape (n,), on the host.

        Returns:
            int64, shape (3, tokens): the token's place for `gather`, its slot, and how many
            positions before the end of the sequence it belongs, from 1.
        """
        counts = self._counts[slots_cpu]
        slots = np.repeat(slots_cpu, counts)
        ends = np.repeat(np.cumsum(counts), counts)
        back = ends - np.arange(len(slots))
        ring = (self._last[slots] - back + 1) % self.width
        return np.stack([ring * self._slots + slots, slots, back])

    def gather(self, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Get rows by their place in the ring.

        Returns:
            Produced tokens, int32, shape (n,), and target hidden rows, shape (n, hidden size), or
            None.
        """
        hidden = self._hidden
        return (
            self._tokens.view(-1).index_select(0, place),
            None if hidden is None else hidden.view(-1, hidden.shape[-1])[place],
        )

    def length_of(self, slots: torch.Tensor) -> torch.Tensor:
        """Sequence lengths of the slots after their last plain round, int64, on the device."""
        return self._lengths.index_select(0, slots)

    def rows(self, slots_cpu: npt.NDArray[np.int64], owed: npt.NDArray[np.int64]) -> Rows:
        """
        Gather the rows of one upkeep pass, padded to ``width`` per slot.

        Args:
            slots_cpu: Request slots, int64, shape (n,), on the host.
            owed: Tokens owed per slot, int64, shape (n,); 0 marks a slot that only pads the batch.
        """
        take = np.maximum(owed, 1)
        n, count = len(slots_cpu), len(slots_cpu) * self.width
        # One upload: where the rows are, how many count of each request, and which requests do.
        host = np.zeros(3 * count + 2 * n, dtype=np.int64)
        place, slots, back = host[: 3 * count].reshape(3, n, self.width)
        np.maximum(owed[:, None] - self._offsets, 0, out=back)
        # The newest rounds of each slot, oldest first; a padding row is 0 in all three.
        real = back > 0
        np.multiply(slots_cpu[:, None], real, out=slots)
        ring = (self._last[slots_cpu][:, None] - back + 1) % self.width
        np.add(ring * self._slots * real, slots, out=place)
        host[3 * count : 3 * count + n] = take
        host[3 * count + n :] = owed > 0
        up = upload(host, self._device)
        place_of, slots_of, back_of = up[: 3 * count].view(3, count).unbind(0)
        taken, owing = up[3 * count :].view(2, n).unbind(0)
        tokens, hidden = self.gather(place_of)
        return Rows(
            tokens=tokens,
            hidden=hidden,
            slots=slots_of,
            positions=self.length_of(slots_of) - back_of,
            taken=taken,
            taken_cpu=take,
            owing=owing,
        )

    def lengths(
        self, slots: torch.Tensor, slots_cpu: npt.NDArray[np.int64]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Sequence lengths of the slots after their last plain round.

        Returns:
            int64 tensors of shape (n,): on the device, and on the host or None where the scheduler
            keeps no host mirror.
        """
        host = self._host_lengths
        return (
            self.length_of(slots),
            None if host is None else torch.from_numpy(host[slots_cpu]),
        )
