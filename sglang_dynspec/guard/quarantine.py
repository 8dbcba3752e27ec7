"""
Depths that have been measured below the plain rate.
"""

from sglang_dynspec.guard.rates import Rates, bucket_of, sizes_of
from sglang_dynspec.observation import Outcome

#: Rounds that a depth has to lose in, more than it wins, before it is quarantined.
_LOSING = 64

#: The same for a depth that has been in quarantine before.
_LOSING_AGAIN = 16

#: Rounds that a depth has to win in, in a row, to be taken for cured.
_WINNING = 64

#: Rounds of the first quarantine; each later one is twice as long.
_FIRST = 256

#: Rounds of the longest.
_LONGEST = 2048

#: Relative difference of two rates that counts as one. An upkeep pass in four plain rounds is about
#: as much, and the rates are means of tens of rounds.
_MARGIN = 0.02

#: Rounds of a speculative depth, and of plain, from which their rates are compared.
_KNOWN = 16.0
_KNOWN_PLAIN = 4.0

#: Rounds measured during a quarantine, by probes, from which it may end early.
_KNOWN_BY_PROBES = 4.0


class Ward:
    """
    How one depth stands at one bucket of batch sizes.

    Attributes:
        losing: Rounds it lost in, less those it won in; not below 0.

        winning: Rounds it won in since it last lost in one.

        until: Index of the round its quarantine ends before; 0 if it never was in one.

        length: Rounds of its next quarantine.
    """

    __slots__ = ("length", "losing", "until", "winning")

    def __init__(self) -> None:
        self.losing = 0
        self.winning = 0
        self.until = 0
        self.length = _FIRST


class Quarantine:
    """
    Compares each speculative round's depth with plain, both as measured at similar batch sizes.

    A depth that loses against plain by more than 2 % for 64 rounds is quarantined at those
    batch sizes: for 256 rounds, then for twice as long each time, up to 2048. After a quarantine it
    has 16 rounds to show that it pays. Probes may run in quarantine, and end it where they win.

    Nothing is compared unless both have been measured within the last `rates.RECENT` rounds. What
    re-entry costs is in the speculative rate and what upkeep costs in the plain one.

    Args:
        rates: The measurements.

        depths: Candidate depths.
    """

    __slots__ = ("_rates", "_wards")

    def __init__(self, rates: Rates, depths: tuple[int, ...]) -> None:
        self._rates = rates
        buckets = bucket_of(1 << 30) + 1
        self._wards = {depth: [Ward() for _ in range(buckets)] for depth in depths if depth}

    def holds(self, depth: int, batch_size: int, round_index: int) -> bool:
        """
        Tell whether a depth is in quarantine.

        Args:
            depth: The depth, a candidate above 0.

            batch_size: Requests in the batch.

            round_index: Index of the round.
        """
        return self._wards[depth][bucket_of(batch_size)].until > round_index

    def judge(self, outcome: Outcome) -> bool:
        """
        Compare a round's depth with plain. Call it after the round was added to the rates.

        Args:
            outcome: A round whose period is usable.

        Returns:
            Whether a quarantine begins.
        """
        depth, size, now = outcome.depth, outcome.batch_size, outcome.round
        wards = self._wards.get(depth)
        cell, plain = self._rates.cell(depth, size), self._rates.cell(0, size)
        if wards is None or cell is None or plain is None:
            return False
        ward = wards[bucket_of(size)]
        confined = ward.until > now
        enough = _KNOWN_BY_PROBES if confined else _KNOWN
        if not (cell.known(now, enough) and plain.known(now, _KNOWN_PLAIN)):
            return False
        rate = cell.tokens / cell.seconds
        plain_rate = self._rates.plain_rate(size, cell.requests / cell.rounds)
        if confined:
            if rate > (1.0 + _MARGIN) * plain_rate:
                ward.until = now
            return False
        if rate >= (1.0 - _MARGIN) * plain_rate:
            ward.losing = max(ward.losing - 1, 0)
            ward.winning += 1
            if ward.winning >= _WINNING:
                ward.length = _FIRST
            return False
        ward.winning = 0
        ward.losing += 1
        if ward.losing < (_LOSING if ward.length == _FIRST else _LOSING_AGAIN):
            return False
        ward.losing = 0
        ward.until = now + ward.length
        ward.length = min(2 * ward.length, _LONGEST)
        # So that what is measured from now on decides what comes after.
        cell.clear()
        return True

    def confined(self, round_index: int) -> list[tuple[int, tuple[int, int], int]]:
        """
        List the quarantines.

        Args:
            round_index: Index of the round.

        Returns:
            For each its depth, its smallest and largest batch size, and the rounds it has left.
        """
        return [
            (depth, sizes_of(bucket), ward.until - round_index)
            for depth, wards in self._wards.items()
            for bucket, ward in enumerate(wards)
            if ward.until > round_index
        ]
