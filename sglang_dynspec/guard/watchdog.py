"""
Acceptance that has collapsed.
"""

from sglang_dynspec.observation import Outcome

#: Score at which the watchdog trips: rounds in a row in which no first draft is right.
_TRIPS = 20.0

#: Usual share of right first drafts below which tripping takes longer, in proportion: a single
#: request whose drafts are mostly wrong has runs of 20 wrong ones by chance. And how much longer.
_MODEST = 0.4
_LONGER = 5.0

#: What is taken for usual before the first round, and the weight of a round in what is usual.
_UNKNOWN = 0.5
_WEIGHT = 1.0 / 256

#: What a round in which every first draft is right takes from the score. With the 1 that a round
#: without any adds, the score stands still where a ninth of them are: speculating one deep then
#: delivers 11 % more tokens a round, which pays for neither draft nor verification.
_RELIEF = 8.0

#: Rounds to the first retry; each wait after one that failed is twice as long.
_FIRST = 32

#: Rounds of the longest wait: three retries within 512 rounds of a recovery.
_LONGEST = 160

#: A collapse within this many rounds of a recovery goes on waiting where the one before left off.
_SOON = 512

#: Batch size from which one round is evidence enough for a retry; below it a retry has two.
_EVIDENCE = 4


class Watchdog:
    """
    Watches the share of requests whose first draft is right, and tells when it has collapsed.

    The score is a CUSUM test: it rises while next to nothing is accepted and falls back to 0 while
    anything is, so that single bad rounds add up to nothing. A server whose acceptance drops to
    zero trips it in 20 rounds, or more where it was low all along.

    After that there is one retry of one or two rounds, and further ones after waits that double up
    to 160 rounds, until a first draft is right again. What upkeep guesses in plain rounds may show
    a recovery sooner and brings one retry forward.

    Attributes:
        has_tripped: Whether acceptance has collapsed and not come back.
    """

    __slots__ = (
        "_due",
        "_hinted",
        "_misled",
        "_recovered",
        "_retry_until",
        "_score",
        "_usual",
        "_wait",
        "has_tripped",
    )

    def __init__(self) -> None:
        self.has_tripped = False
        self._score = 0.0
        self._usual = _UNKNOWN
        self._wait = _FIRST
        self._due = 0
        self._retry_until = -1
        self._recovered = -_SOON
        self._hinted = False
        self._misled = False

    def see(self, outcome: Outcome) -> None:
        """
        Take note of a round.

        Args:
            outcome: What the round did.
        """
        if outcome.depth:
            requests = len(outcome.accepted)
            if requests:
                self._see_drafts((requests - outcome.accepted.count(0)) / requests, outcome.round)
        elif self.has_tripped and outcome.guesses > 0:
            self._hinted = _is_alive(outcome.right_guesses / outcome.guesses)

    def allows(self, round_index: int, batch_size: int) -> bool:
        """
        Tell whether a round that would speculate may do so, as a retry.

        Args:
            round_index: Index of the round.

            batch_size: Requests in its batch.

        Returns:
            Whether it may. If so, it is expected to run.
        """
        if round_index <= self._retry_until:
            return True
        if round_index >= self._due:
            self._misled = False
            self._wait = min(2 * self._wait, _LONGEST)
            self._due = round_index + self._wait
        elif self._hinted and not self._misled:
            # Taken for wrong until a draft is right, so that there is one such retry to a wait.
            self._misled = True
            self._hinted = False
        else:
            return False
        self._retry_until = round_index + (batch_size < _EVIDENCE)
        return True

    def _see_drafts(self, right: float, round_index: int) -> None:
        if self.has_tripped:
            if _is_alive(right):
                self.has_tripped = False
                self._recovered = round_index
            return
        self._usual += _WEIGHT * (right - self._usual)
        self._score = max(self._score + 1.0 - (1.0 + _RELIEF) * right, 0.0)
        if self._score >= _TRIPS * min(max(_MODEST / max(self._usual, 0.01), 1.0), _LONGER):
            self.has_tripped = True
            self._score = 0.0
            if round_index - self._recovered > _SOON:
                self._wait = _FIRST
            self._due = round_index + self._wait
            self._retry_until = -1
            self._hinted = self._misled = False


def _is_alive(right: float) -> bool:
    return (1.0 + _RELIEF) * right > 1.0
