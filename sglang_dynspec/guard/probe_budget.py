"""
What probes may cost.
"""

from sglang_dynspec.guard.rates import Rates
from sglang_dynspec.observation import Outcome

#: Rounds' worth of tokens that may be spent before any have been earned.
_ADVANCE = 4.0

#: Rounds' worth of tokens that may be saved up.
_SAVED = 10.0

#: Share of its tokens a probe is taken to cost where it cannot be measured.
_ASSUMED = 0.25

#: Rounds of the depth in force from which its rate is known.
_KNOWN = 4.0

#: No round of a probe takes longer than this many of the depth in force: what does has stalled. The
#: first one of a depth at a batch size compiles kernels, which it does once, as the first one back
#: may: such a stall is taken for a quarter of a round's tokens.
_LONGEST = 4.0

#: Weight of a new round in the mean tokens of a round.
_WEIGHT = 1.0 / 64


class ProbeBudget:
    """
    An account of tokens: rounds earn a share of what they deliver, probes pay what they lose.

    A probe loses what the depth in force would have delivered in its time, less what it delivered
    itself; the first round after it, which may hold an upkeep pass, belongs to its cost. Probes may
    run while the account is not empty, so that one may overdraw it, and the next waits.

    Args:
        share: Share of the tokens that may be lost, 0.0 to 1.0. 0 allows no probe, 1 any.

        rates: What the depths in force have delivered.

    Attributes:
        lost: Tokens lost so far. Less than zero where probes have won more than they lost.
    """

    __slots__ = ("_balance", "_mean", "_ran", "_rates", "_share", "lost")

    def __init__(self, share: float, rates: Rates) -> None:
        self._share = share
        self._rates = rates
        self._balance = 0.0
        self._mean = 0.0
        # Padded batch sizes that each depth has run at.
        self._ran: dict[int, set[int]] = {}
        self.lost = 0.0

    @property
    def is_empty(self) -> bool:
        """
        Whether probes have to wait.
        """
        if self._share in (0.0, 1.0):
            return self._share == 0.0
        # Before the first outcome there is an advance, but no scale to write it in.
        return self._balance <= 0.0 < self._mean

    def earn(self, outcome: Outcome) -> None:
        """
        Add a round's share. To be called for every round, after `pay`.

        Args:
            outcome: What the round did.
        """
        ran = self._ran.get(outcome.depth)
        if ran is None:
            ran = self._ran[outcome.depth] = set()
        ran.add(outcome.padded_batch_size)
        tokens = max(outcome.tokens, 0)
        if self._mean:
            self._mean += _WEIGHT * (tokens - self._mean)
        elif tokens:
            self._mean = float(tokens)
            self._balance += _ADVANCE * tokens
        self._balance = min(self._balance + self._share * tokens, _SAVED * self._mean)

    def pay(self, outcome: Outcome, depth: int, *, usable: bool) -> None:
        """
        Pay for a round of a probe, or for the first one after it.

        Args:
            outcome: What the round did.

            depth: The depth in force.

            usable: Whether its period and tokens can be measured by.
        """
        cell = self._rates.cell(depth, outcome.batch_size)
        if cell is None or outcome.period is None or not usable:
            cost = _ASSUMED * max(outcome.tokens, 0) if outcome.depth != depth else 0.0
        elif not cell.known(outcome.round, _KNOWN):
            cost = _ASSUMED * outcome.tokens if outcome.depth != depth else 0.0
        else:
            longest = _LONGEST * cell.seconds / cell.rounds
            period = min(outcome.period, longest)
            cost = period * cell.tokens / cell.seconds - outcome.tokens
            if outcome.period > longest and self._compiles(outcome, depth):
                cost = _ASSUMED * outcome.tokens
        self.lost += cost
        self._balance -= cost

    def _compiles(self, outcome: Outcome, depth: int) -> bool:
        ran = self._ran.get(outcome.depth, ())
        return outcome.depth == depth or outcome.padded_batch_size not in ran
