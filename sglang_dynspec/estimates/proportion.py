"""
A proportion that is followed through drift and sudden change.
"""

from math import log

#: Trials the estimate remembers: enough for a standard error of 0.012 or better.
_TRIALS = 1500.0

#: Rounds the estimate remembers at least, however many trials each brings.
_ROUNDS = 48.0

#: Evidence, in nats, that calls a change sudden. Chance brings so much once in some 20000 trials.
EVIDENCE = 10.0

#: Trials before there is an estimate that could change.
_ENOUGH = 30.0

#: Rounds between two looks at what a change would look like.
_REFRESH = 16

_EDGE = 0.02

#: Rounds that a correlation remembers, and those that the assumption of none is worth.
_CORRELATION_ROUNDS = 64.0
_UNCORRELATED = 3.0


class Proportion:
    """
    Discounted counts of right ones among trials.

    Old trials fade: the memory is 1500 trials long or 48 rounds, whichever is longer. So one
    request at a time is remembered for as long as an estimate needs, and a batch of 256 no longer.

    A sudden change is found by Page's cumulative sum test on both sides ("Continuous Inspection
    Schemes", Biometrika, 1954): the log likelihood ratio between the present estimate and one three
    quarters of the way to 0 or to 1, summed and floored at zero. Where the sum reaches its bound,
    the trials since it last was zero are those since the change, and become the estimate.

    The trials of one round may be alike: requests that answer the same prompt are right and wrong
    together. So their correlation is measured, and n trials of one round count as n divided by the
    design effect 1 + (n - 1) x correlation (Kish, "Survey Sampling", 1965), as far as evidence of a
    change is concerned.

    Attributes:
        right: Right ones, discounted.

        trials: Trials, discounted.

        hopeful: Whether the last sudden change was a rise, or there was none.

        spread: The design effect of the last round that was counted; at least 1.
    """

    __slots__ = (
        "_age",
        "_correlation",
        "_evidence",
        "_fall",
        "_rise",
        "_rounds",
        "hopeful",
        "right",
        "spread",
        "trials",
    )

    def __init__(
        self, right: float = 0.0, trials: float = 0.0, *, evidence: float = EVIDENCE
    ) -> None:
        self.right = right
        self.trials = trials
        self._evidence = evidence
        self._fall = _Alarm()
        self._rise = _Alarm()
        self._age = 0
        self._correlation = 0.0
        self._rounds = _UNCORRELATED
        self.hopeful = True
        self.spread = 1.0

    def copy(self, trials: float) -> "Proportion":
        """
        Make a proportion like this one, worth at most so many trials.
        """
        made = Proportion(self.right, self.trials, evidence=self._evidence)
        made.forget(trials)
        made._correlation = self._correlation
        made.spread = self.spread
        return made

    def forget(self, trials: float) -> None:
        """
        Keep the proportion, but let it be worth at most so many trials.
        """
        if self.trials > trials:
            self.right *= trials / self.trials
            self.trials = trials

    def count(self, right: float, trials: float) -> bool:
        """
        Count the trials of one round.

        Args:
            right: Right ones, 0 to `trials`.

            trials: Trials, above 0.

        Returns:
            Whether the proportion was found to have changed suddenly.
        """
        self._measure_spread(right, trials)
        keep = 1.0 - trials / max(_TRIALS, trials * _ROUNDS)
        self.right = self.right * keep + right
        self.trials = self.trials * keep + trials
        if self._age % _REFRESH == 0:
            self._expect()
        self._age += 1
        bound = self._evidence * self.spread
        for alarm in (self._fall, self._rise):
            if alarm.sum(right, trials) >= bound:
                self.hopeful = alarm is self._rise
                self.right = alarm.right
                self.trials = alarm.trials
                self._fall.reset()
                self._rise.reset()
                self._expect()
                self._age = 1
                return True
        return False

    def _measure_spread(self, right: float, trials: float) -> None:
        others = trials - 1.0
        if others <= 0.0 or self.trials < _ENOUGH:
            return
        mean = min(max(self.right / self.trials, _EDGE), 1.0 - _EDGE)
        off = right - trials * mean
        seen = (off * off / (trials * mean * (1.0 - mean)) - 1.0) / others
        self._rounds = min(self._rounds + 1.0, _CORRELATION_ROUNDS)
        # A single round may show more than 1: a share of 0.95 shows its correlation in one of 20.
        self._correlation += (seen - self._correlation) / self._rounds
        self.spread = 1.0 + others * min(max(self._correlation, 0.0), 1.0)

    def _expect(self) -> None:
        if self.trials < _ENOUGH:
            self._fall.rest()
            self._rise.rest()
            return
        share = self.right / self.trials
        mean = min(max(share, _EDGE), 1.0 - _EDGE)
        self._fall.expect(mean, mean / 4)
        self._rise.expect(mean, (3 + mean) / 4)
        # At an edge it can only go the other way: the clipped mean would always seem to change.
        if share < mean:
            self._fall.rest()
        elif share > mean:
            self._rise.rest()


class _Alarm:
    """
    One side of the test.
    """

    __slots__ = ("_sum", "_when_right", "_when_wrong", "right", "trials")

    def __init__(self) -> None:
        self._when_right = 0.0
        self._when_wrong = 0.0
        self.reset()

    def expect(self, mean: float, changed: float) -> None:
        self._when_right = log(changed / mean)
        self._when_wrong = log((1.0 - changed) / (1.0 - mean))

    def rest(self) -> None:
        self._when_right = self._when_wrong = 0.0

    def reset(self) -> None:
        self._sum = self.right = self.trials = 0.0

    def sum(self, right: float, trials: float) -> float:
        self._sum += right * self._when_right + (trials - right) * self._when_wrong
        if self._sum <= 0.0:
            self._sum = self.right = self.trials = 0.0
            return 0.0
        self.right += right
        self.trials += trials
        return self._sum
