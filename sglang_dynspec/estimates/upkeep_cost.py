"""
What upkeep passes cost, and how many plain rounds pay one.
"""

from sglang_dynspec.estimates.cells import bucket_of

#: Cost of a pass before one was measured, as a share of a plain round, and share of plain rounds
#: that pay one before any was seen.
_FIRST_RATIO = 0.06
_FIRST_SHARE = 0.25

#: Passes, and plain rounds, that the means remember.
_PASSES = 64.0
_ROUNDS = 256.0

#: Passes at other batch sizes weigh as much as so many at the own one.
_ELSEWHERE = 4.0

#: How many times the usual a single pass may count as: what is beyond is an outlier.
_CLIP = 3.0


class UpkeepCost:
    """
    The mean seconds a pass adds to a round, by batch size bucket.

    Where a bucket has seen few, their mean share of a plain round over all buckets stands in.

    Attributes:
        share: Share of plain rounds that pay a pass.
    """

    __slots__ = ("_passes", "_ratio", "share")

    def __init__(self) -> None:
        self.share = _FIRST_SHARE
        self._ratio = _FIRST_RATIO
        # Mean seconds and passes, by bucket.
        self._passes: dict[int, tuple[float, float]] = {}

    def set(self, batch_size: int, seconds: float, passes: float) -> None:
        """
        Set the mean of a bucket.
        """
        self._passes[bucket_of(batch_size)] = (seconds, passes)

    def count_plain(self, *, paid: bool) -> None:
        """
        Count a plain round.
        """
        self.share += (paid - self.share) / _ROUNDS

    def count(self, batch_size: int, excess: float, plain: float) -> None:
        """
        Count a pass.

        Args:
            batch_size: Padded batch size of its round.

            excess: Seconds by which the round exceeded one without.

            plain: Seconds of a plain round, above 0.
        """
        excess = min(max(excess, 0.0), _CLIP * self.seconds(batch_size, plain))
        self._ratio += (excess / plain - self._ratio) / _PASSES
        bucket = bucket_of(batch_size)
        seconds, passes = self._passes.get(bucket, (0.0, 0.0))
        passes = min(passes + 1.0, _PASSES)
        self._passes[bucket] = (seconds + (excess - seconds) / passes, passes)

    def seconds(self, batch_size: int, plain: float) -> float:
        """
        Estimate what a pass adds to a round.

        Args:
            batch_size: Padded batch size of the round.

            plain: Seconds of a plain round.

        Returns:
            Seconds.
        """
        seconds, passes = self._passes.get(bucket_of(batch_size), (0.0, 0.0))
        usual = self._ratio * plain
        return (seconds * passes + usual * _ELSEWHERE) / (passes + _ELSEWHERE)
