"""
When to look at a depth that is not in force: what that may bring, and what may be spent on it.
"""

from math import log

from sglang_dynspec.observation import Outcome
from sglang_dynspec.policies._prospects import Prospects

#: Rounds of a probe: the first also pays for the change, the second is measured. Where a depth
#: never ran at the batch size, one is enough to see whether it is out of the question. One that
#: never ran at all has to load and compile its kernels, so that its first round says nothing.
_ROUNDS = 2
_GLANCE = 1

#: Rounds between the end of a probe and the next one: its outcomes have to be in.
_SPACING = 4

#: Rounds between two probes of a depth: first, and doubled each time up to the last.
_FIRST_INTERVAL = 8
_LAST_INTERVAL = 64

#: Share of the budget one depth may use, and rounds between its probes at most on that account.
_DEPTH_SHARE = 0.25
_LONGEST_INTERVAL = 200

#: Rounds between two probes of a depth that cannot win by what is known.
_HOPELESS_INTERVAL = 2000

#: Rounds until a depth is probed that never ran at the batch size, or whose probe was refused.
_NEW = 16
_RETRY = 32

#: Standard errors a depth may be behind and still be worth a look, and the least worth knowing.
_HOPE = 2.5
_SURE = 0.006

#: Rounds without a trial of the first draft after which plain looks at speculation anyway.
_BLIND = 200

#: Change of the tokens of a round that is reason to look at the other depths again.
_DRIFT = 0.04

#: How far the batch size may be from its recent mean: what is passing is not worth measuring.
_PASSING = 0.15
_OTHER = 2.0

#: Rounds' worth of tokens that may be lost before any were earned, and that are saved up at most.
_ALLOWANCE = 4.0
_SAVINGS = 6.0

#: Rounds' worth of tokens that a round of a probe is charged at most. What loses more has stalled;
#: where the depth never ran before, to compile kernels, which it does once and is hardly charged,
#: unless the depth has been seen to be that slow.
_STALL = 3.0
_COMPILED = 0.25


class Probing:
    """
    Chooses probes, spaces them out and keeps within a budget.

    A depth is worth a probe where its predicted rate, given how sure that is, could be the best. It
    is looked at after 8 rounds, then after twice as many each time up to 64, or as often as a
    quarter of the budget pays for, but every 200 rounds at least. So close contenders, which cost
    next to nothing to look at, are known well, and a depth that is out of the question is all but
    left alone.

    The budget is an account: rounds earn a share of their tokens, and probes pay what they lose to
    the depth in force, a re-entry's upkeep pass included. A probe starts where the account covers
    what it is predicted to lose. It is kept in rounds, so that what a small batch earned pays for a
    probe of a large one.

    Args:
        count: Number of candidate depths.

        share: Share of the tokens that may be lost; 0 for no probes.

    Attributes:
        rounds: Rounds' worth of tokens that may be lost now; below 0 where a probe cost more than
            was predicted.

        probes: Probes begun.
    """

    __slots__ = (
        "_due",
        "_intervals",
        "_last",
        "_left",
        "_new",
        "_pending",
        "_place",
        "_quiet_until",
        "_ran",
        "_rate",
        "_share",
        "_size",
        "_slow",
        "_tokens",
        "_tokens_then",
        "_tried",
        "probes",
        "rounds",
    )

    def __init__(self, count: int, share: float) -> None:
        self._share = share
        self._intervals = [_FIRST_INTERVAL] * count
        self._due = [0] * count
        # When each depth was probed or ran last, whether it ever did, and when a first draft was
        # tried last.
        self._last = [0] * count
        self._ran = [False] * count
        # Whether each lost as much as a stall does when it could not be one.
        self._slow = [False] * count
        self._tried = 0
        self._quiet_until = _SPACING
        # The probe that runs: its depth, rounds to go, outcomes to come, the rate it gives up, the
        # tokens of a round at that rate, and whether the depth never ran at the batch size.
        self._place = 0
        self._left = 0
        self._pending: list[int] = []
        self._rate = 0.0
        self._tokens = 1.0
        self._new = False
        # Tokens of a request in a round when intervals were last begun anew; mean batch size.
        self._tokens_then = 0.0
        self._size = 0.0
        self.rounds = _ALLOWANCE
        self.probes = 0

    def continued(self, index: int) -> int | None:
        """
        Go on with the probe that runs.

        Args:
            index: Index of the round about to run.

        Returns:
            The place of its depth, or None where no probe runs.
        """
        if not self._left:
            return None
        self._left -= 1
        self._pending.append(index)
        return self._place

    def earn(self, batch_size: int) -> None:
        """
        Count a round that is no probe.

        Args:
            batch_size: Its requests.
        """
        # What has doubled or halved at once is another load, and no moment of the last one.
        if not self._size / _OTHER < batch_size < self._size * _OTHER:
            self._size = batch_size
        self._size += (batch_size - self._size) / 8
        self.rounds = min(self.rounds + self._share, _SAVINGS)

    def begun(
        self, prospects: Prospects, force: int, now: int, *, batch_size: int, index: int
    ) -> int | None:
        """
        Begin a probe where one is due, may bring something and can be paid for.

        Args:
            prospects: What the depths promise.

            force: Place of the depth in force.

            now: Rounds so far.

            batch_size: Requests of the round about to run.

            index: Its index.

        Returns:
            The place of the depth to probe, or None.
        """
        if now < self._quiet_until or not self._share:
            return None
        if abs(batch_size / self._size - 1.0) > _PASSING:
            return None
        self._note_drift(prospects.tokens[force] / batch_size)
        chosen, promise, price = -1, 0.0, 0.0
        for place in range(len(prospects.rates)):
            if place != force and self._due_now(prospects, force, place, now):
                worth = self._worth(prospects, force, place)
                if worth > promise:
                    loss = prospects.loss(place, force, self._length(prospects, place))
                    loss /= prospects.tokens[force]
                    if loss <= self.rounds:
                        chosen, promise, price = place, worth, loss
        if chosen < 0:
            return None
        rounds = self._length(prospects, chosen)
        self.probes += 1
        self._place = chosen
        self._left = rounds - 1
        self._pending = [index]
        self._rate = prospects.rates[force]
        self._tokens = prospects.tokens[force]
        self._new = not prospects.costs[chosen].rounds
        self._last[chosen] = now
        self._quiet_until = now + rounds + _SPACING
        afforded = price / (self._share * _DEPTH_SHARE)
        self._due[chosen] = now + max(
            self._intervals[chosen], int(min(afforded, _LONGEST_INTERVAL))
        )
        self._intervals[chosen] = min(2 * self._intervals[chosen], _LAST_INTERVAL)
        return chosen

    def learn(self, outcome: Outcome, place: int, now: int) -> bool:
        """
        Take note of a round, and pay for it if it was a probe.

        Args:
            outcome: What it did.

            place: The place of the depth that ran.

            now: Rounds so far.

        Returns:
            Whether it was a round of a probe, and ran as planned.
        """
        self._last[place] = now
        self._ran[place] = True
        if outcome.depth or outcome.guesses:
            self._tried = now
        if outcome.round not in self._pending:
            return False
        self._pending.remove(outcome.round)
        if place != self._place:
            # Held back or forced away: not in vain, but not yet.
            self._due[self._place] = now + _RETRY
            return False
        period = outcome.usable_period
        if period is not None:
            lost = (period * self._rate - outcome.tokens) / self._tokens
            first, self._new = self._new, False
            if lost <= _STALL:
                self._slow[place] = False
            elif not first:
                self._slow[place] = True
            elif not self._slow[place]:
                # It has said nothing but that it was the first.
                self._due[place] = now + _NEW
                lost = _COMPILED
            self.rounds -= min(max(lost, 0.0), _STALL)
        return True

    def restart(self) -> None:
        """
        Probe often again: something changed.
        """
        for place in range(len(self._due)):
            self._intervals[place] = _FIRST_INTERVAL
            self._due[place] = 0

    def _note_drift(self, tokens: float) -> None:
        if abs(tokens - self._tokens_then) > _DRIFT * tokens:
            self._tokens_then = tokens
            self.restart()

    def _due_now(self, prospects: Prospects, force: int, place: int, now: int) -> bool:
        error = prospects.errors[place]
        behind = log(prospects.rates[force] / prospects.rates[place])
        # What plain costs is always worth knowing: it is what all else falls back to.
        hopeful = (behind < _HOPE * error and error > _SURE) or prospects.is_guess(0) > place
        if place == 1 and force == 0 and now - self._tried > _BLIND:
            hopeful = True
        if not hopeful:
            return now >= self._last[place] + _HOPELESS_INTERVAL
        if not prospects.costs[place].rounds:
            return now >= self._last[place] + _NEW
        return now >= self._due[place]

    def _worth(self, prospects: Prospects, force: int, place: int) -> float:
        """Rank those that never ran here first, and of them the shallowest: it costs least."""
        if not prospects.costs[place].rounds:
            return prospects.rates[force] * (2.0 + len(prospects.rates) - place)
        return prospects.rates[place] * (1.0 + _HOPE * prospects.errors[place])

    def _length(self, prospects: Prospects, place: int) -> int:
        """Choose how many rounds a probe takes."""
        return _ROUNDS if prospects.costs[place].rounds or not self._ran[place] else _GLANCE
