"""
How often depth may change.
"""

#: Batch sizes closer than this, in requests, are one load, whatever their ratio.
_FEW = 4

#: What a change of depth costs after the load has changed.
_AFTER_CHANGE = 0.25

#: Changes of depth that may follow one another without waiting.
_BURST = 4.0

_PER = 1000.0


class SwitchRate:
    """
    A token bucket: a change of depth takes a token, and tokens come back at a fixed rate.

    Burst and rate are chosen so that a steady load sees no more than `limit` changes in any 1000
    rounds. A change of depth that follows the load (the batch size has moved by a factor of two
    since the last one) takes a quarter of a token, and the last token is kept for those: noise
    cannot use up what a ramp needs.

    Args:
        limit: Changes in 1000 rounds of steady load, at least 1. 1000 allows any.
    """

    __slots__ = ("_full", "_rate", "_round", "_size", "_tokens", "_unlimited")

    def __init__(self, limit: int) -> None:
        burst = min(_BURST, max(1.0, limit / 2))
        self._unlimited = limit >= _PER
        self._rate = max(limit - burst, 0.5) / _PER
        # The one more is what is kept for changes of load.
        self._full = self._tokens = burst + 1.0
        self._round = 0
        self._size = 0

    def allows(self, round_index: int, batch_size: int) -> bool:
        """
        Take what a change of depth costs, if there is enough.

        Args:
            round_index: Index of the round.

            batch_size: Requests in its batch.

        Returns:
            Whether depth may change in this round.
        """
        if self._unlimited:
            return True
        self._refill(round_index)
        cost, kept = (_AFTER_CHANGE, 0.0) if self._has_moved(batch_size) else (1.0, 1.0)
        if self._tokens - cost < kept:
            return False
        self._tokens -= cost
        self._size = batch_size
        return True

    def take(self, round_index: int, batch_size: int) -> None:
        """
        Take a token for a change that nobody may hold back; the next ones wait for it.

        Args:
            round_index: Index of the round.

            batch_size: Requests in its batch.
        """
        self._refill(round_index)
        self._tokens = max(self._tokens - 1.0, 0.0)
        self._size = batch_size

    def start(self, batch_size: int) -> None:
        """
        Note the load under which the first depth came into force, which is no change.

        Args:
            batch_size: Requests in the batch.
        """
        self._size = batch_size

    def _refill(self, round_index: int) -> None:
        elapsed = round_index - self._round
        self._round = round_index
        if elapsed > 0:
            self._tokens = min(self._tokens + elapsed * self._rate, self._full)

    def _has_moved(self, batch_size: int) -> bool:
        size = self._size
        low, high = (size, batch_size) if size < batch_size else (batch_size, size)
        return high >= 2 * low and high - low >= _FEW
