"""
`Goodput`: the depth that delivers the most tokens per second, by what was measured.
"""

from math import log

from sglang_dynspec.acceptance import AcceptanceModel
from sglang_dynspec.cost import CostModel
from sglang_dynspec.errors import ConfigError
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policies._exploration import Budget, Schedule
from sglang_dynspec.policies._prospects import Forecast, Prospects
from sglang_dynspec.policy import Limits, Policy

#: Rounds between two predictions for a batch that stays as it is.
_REFRESH = 4

#: Rounds a probe takes: the first also pays for the change, the second is measured.
_PROBE_ROUNDS = 2

#: Largest batch that starts at the largest depth: one probe of it would teach too little.
_SMALL = 8

#: Standard errors a depth may be behind and still be worth a look, and the least worth knowing.
_HOPE = 2.5
_SURE = 0.006

#: Rounds' worth of tokens to lose, by prediction, before a switch.
_PATIENCE = 0.25

#: Rounds after which a past switch weighs half in how patient to be with the next.
_RESTLESS = 150

#: Share of the pressure to switch that stays when the depth in force looks best again.
_RELIEF = 0.8

#: Change of the tokens of a request in a round that is reason to look at the other depths again.
_DRIFT = 0.04

#: Rounds without any trial of the first position after which plain looks at speculation anyway.
_BLIND = 200


class Goodput(Policy):
    """
    Run the depth of the largest B x E(k) / t(k, B, S), tokens per second, by what was measured.

    Attributes:
        exploration: Share of the tokens that probes may cost.

        min_gain: Smallest predicted gain to switch for.
    """

    uses_time = True

    def __init__(self, *, exploration: float = 0.004, min_gain: float = 0.01) -> None:
        for name, value in (("exploration", exploration), ("min_gain", min_gain)):
            if not 0.0 <= value < 1.0:
                raise ConfigError(
                    expected=f"{name} from 0 to below 1",
                    found=str(value),
                    remedy="it is a share: 0.005 is 0.5 %",
                )
        self.exploration = exploration
        self.min_gain = min_gain

    def configure(self, limits: Limits) -> None:
        """
        Start afresh within the limits.
        """
        super().configure(limits)
        self._depths = limits.depths
        self._place = {depth: index for index, depth in enumerate(limits.depths)}
        self.acceptance = AcceptanceModel(limits.largest)
        self.cost = CostModel(limits.depths)
        self._forecast = Forecast(limits.depths, self.acceptance, self.cost)
        self._budget = Budget(self.exploration)
        self._schedule = Schedule(len(limits.depths))
        self._prospects: Prospects | None = None
        self._now = 0
        self._refresh_at = 0
        self._padded = 0
        self._force = 0
        self._mean_batch = 0.0
        self._pressure = 0.0
        self._restless = 0.0
        self._probe: Plan | None = None
        self._probe_left = 0
        self._tokens_then = 1.0
        self._probe_rounds: dict[int, float] = {}
        self._probe_rate = 0.0
        self._last_first = 0
        self._plan = Plan(depth=0, reason="start")

    def decide(self, observation: Observation) -> Plan:
        """
        Decide by the predictions, and now and then look at another depth.
        """
        self._now += 1
        size = observation.batch_size
        force = self._place.get(observation.depth, 0)
        if size < 1:
            return self._stay(force, "empty")
        if observation.depth_age == 0:
            depth = self._depths[-1] if size <= _SMALL else 0
            return Plan(depth=depth, reason="start")
        if self._probe_left and self._probe is not None:
            self._probe_left -= 1
            self._probe_rounds[observation.round] = 0.0
            return self._probe
        padded = observation.padded_batch_size
        if force != self._force:
            self._restless = self._restless + 1.0
            self._pressure = 0.0
        if (
            padded != self._padded
            or force != self._force
            or self._now >= self._refresh_at
            or self._prospects is None
        ):
            self._padded = padded
            self._force = force
            self._refresh(observation)
        prospects = self._prospects
        self._restless *= 1.0 - 0.7 / _RESTLESS
        self._mean_batch += (size - self._mean_batch) / 8 if self._mean_batch else size
        if prospects is None:
            return self._stay(force, "measuring")
        self._budget.earn(prospects.tokens[force])
        best = prospects.best
        gain = prospects.scores[best] / prospects.scores[force] - 1.0
        if best == 0 and force and prospects.costs[force].error > 0.13:
            return self._say(best, "unmeasured", None, "")
        if best != force:
            self._pressure += gain - max(self.min_gain / 2, 0.15 * prospects.errors[best])
            self._pressure = max(self._pressure, 0.0)
            patience = _PATIENCE * (1.0 + self._restless * self._restless)
            if force == 0:
                upkeep = self.cost.upkeep_seconds(padded)
                patience += upkeep / prospects.costs[best].seconds
            if gain >= self.min_gain and self._pressure >= patience:
                return self._say(best, "goodput", gain, "")
        else:
            self._pressure *= _RELIEF
        probe = self._probing(observation, prospects, force)
        if probe is not None:
            return probe
        return self._say(force, "goodput", None, "hysteresis" if best != force else "")

    def learn(self, outcome: Outcome) -> None:
        """
        Follow acceptance and cost.
        """
        changed = self.acceptance.observe(outcome)
        measured = self.cost.observe(outcome)
        index = self._place.get(outcome.depth)
        if index is not None:
            self._schedule.ran(index, self._now)
        if outcome.depth or outcome.guesses:
            self._last_first = self._now
        charged = self._probe_rounds.pop(outcome.round, None)
        if charged is not None and outcome.depth != self._depths[self._probed]:
            self._schedule.refuse(self._probed, self._now)
        elif charged is not None:
            if outcome.period is not None and 0.0 < outcome.period < 1e3:
                self._budget.spend(max(outcome.period * self._probe_rate - outcome.tokens, 0.0))
            if measured:
                self._forecast.forget()
                self._refresh_at = self._now
        if changed:
            self._schedule.restart()
            self._refresh_at = self._now

    def _refresh(self, observation: Observation) -> None:
        self._refresh_at = self._now + _REFRESH
        self._prospects = self._forecast.prospects(
            observation.batch_size,
            observation.padded_batch_size,
            observation.seq_len_sum,
            self._force,
            self._now,
        )
        if self._prospects is not None:
            self._sure = self._prospects.confidence()

    def _probing(self, observation: Observation, prospects: Prospects, force: int) -> Plan | None:
        """Begin a probe where one is due, may bring something and can be paid for."""
        now = self._now
        if self._schedule.quiet(now) or self.exploration == 0.0:
            return None
        size = observation.batch_size
        if not 0.85 * self._mean_batch <= size <= 1.15 * self._mean_batch:
            return None
        drifted = prospects.tokens[force] / size / self._tokens_then - 1.0
        if not -_DRIFT < drifted < _DRIFT:
            self._schedule.restart()
            self._tokens_then = prospects.tokens[force] / size
        blind = force == 0 and now - self._last_first > _BLIND
        top = prospects.rates[force]
        chosen, promise, price = -1, 0.0, 0.0
        for index, rate in enumerate(prospects.rates):
            if index == force:
                continue
            error = prospects.errors[index]
            hopeful = log(top / rate) < _HOPE * error and error > _SURE
            # What plain costs is always worth knowing: it is what all else falls back to.
            if (index == 0 and prospects.costs[0].error > 0.13) or (index == 1 and blind):
                hopeful = True
            unmeasured = prospects.costs[index].rounds == 0.0
            if not self._schedule.due(index, now, hopeless=not hopeful, unmeasured=unmeasured):
                continue
            # Unmeasured ones first, the shallowest of them before the deeper ones: it is the
            # cheapest, and what it costs says something about those.
            bound = (
                top * (2.0 + len(self._depths) - index)
                if unmeasured
                else rate * (1.0 + _HOPE * error)
            )
            if bound > promise:
                loss = self._loss(prospects, index, force, 1 if unmeasured else _PROBE_ROUNDS)
                if loss <= self._budget.tokens:
                    chosen, promise, price = index, bound, loss
        if chosen < 0:
            return None
        rounds = _PROBE_ROUNDS if prospects.costs[chosen].rounds else 1  # see _loss
        earned = self.exploration * prospects.tokens[force]
        self._schedule.begin(chosen, now, rounds, price / earned)
        self._tokens_then = prospects.tokens[force] / size
        self._probe_rate = top
        self._probed = chosen
        self._probe_left = rounds - 1
        self._probe_rounds.clear()
        self._probe_rounds[observation.round] = 0.0
        self._probe = Plan(
            depth=self._depths[chosen],
            reason="probe",
            probe=True,
            predicted=prospects.rates,
            confidence=self._sure,
        )
        return self._probe

    def _loss(self, prospects: Prospects, index: int, force: int, rounds: int) -> float:
        """Predict the tokens a probe loses."""
        top = prospects.rates[force]
        lost = rounds * (prospects.costs[index].seconds * top - prospects.tokens[index])
        if index == 0 or force == 0:
            lost += self.cost.upkeep_seconds(self._padded) * top
        return lost

    def _stay(self, force: int, reason: str) -> Plan:
        depth = self._depths[force]
        if self._plan.depth != depth or self._plan.reason != reason:
            self._plan = Plan(depth=depth, reason=reason)
        return self._plan

    def _say(self, index: int, reason: str, gain: float | None, blocked: str) -> Plan:
        prospects = self._prospects
        assert prospects is not None
        plan = self._plan
        depth = self._depths[index]
        if (
            plan.predicted is not prospects.rates
            or plan.depth != depth
            or plan.blocked is not blocked
            or plan.gain is not gain
        ):
            plan = self._plan = Plan(
                depth=depth,
                reason=reason,
                gain=gain,
                predicted=prospects.rates,
                confidence=self._sure,
                blocked=blocked,
            )
        return plan
