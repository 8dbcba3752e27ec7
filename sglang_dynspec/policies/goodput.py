"""
`Goodput`: the depth that delivers the most tokens per second, by what was measured.
"""

from sglang_dynspec.errors import ConfigError
from sglang_dynspec.estimates import AcceptanceModel, Calibration, CostModel
from sglang_dynspec.log import structured
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policies._probing import Probing
from sglang_dynspec.policies._prospects import Forecast, Prospects
from sglang_dynspec.policy import Limits, Policy

#: Rounds between two predictions for a batch that stays as it is.
_REFRESH = 4

#: Largest batch that starts at the largest depth: a probe of so few requests would teach little of
#: what is accepted, so that is learned in force.
_SMALL = 8

#: Rounds of which none could be timed, from which the rest are plain until one can.
_UNTIMED = 64

#: Rounds' worth of tokens to lose, by prediction, before a switch.
_PATIENCE = 0.25

#: Share of its standard error that a predicted gain has to exceed to count.
_DOUBT = 0.15

#: Rounds in which the memory of past switches fades by half.
_RESTLESS = 150

#: Share of the pressure to switch that stays when the depth in force looks best again.
_RELIEF = 0.8

#: Reasons of plans, and what keeps the best depth from being planned.
START = "start"
MEASURING = "measuring"
GOODPUT = "goodput"
PROBE = "probe"
HYSTERESIS = "hysteresis"


class Goodput(Policy):
    """
    Run the depth of the largest B x E(k) / t(k, B, S): tokens per second, by what was measured.

    E(k) comes from `AcceptanceModel` and t(k, B, S) from `CostModel`, which starts from a
    calibration where there is one. At a fixed batch size the same depth also has the least time per
    output token.

    - **Switching** waits until the depth in force has lost, by prediction, a quarter of a round's
      tokens, plus an upkeep pass where plain rounds are left: at once for a gain of half, after
      dozens of rounds for one of a percent. Recent switches make it wait longer. So noise does not
      flip it, and neither does a tie.
    - **Probing** looks at other depths for a round or two, as `Probing` says.
    - **At a batch size far above all that were measured** the depth in force stays until its first
      rounds there have shown what it costs. What a single round shows is not enough to leave it:
      the first one of a depth or a batch size may have loaded and compiled kernels.
    - **It starts** plain and probes, or at the largest depth where the batch is small, or at the
      best depth by its calibration. A calibration of another version of SGLang or another attention
      backend is used, with a line in the log.
    - **Where no round can be timed**, because each follows a prefill, it goes plain after 64:
      nobody knows what speculating costs there.

    Args:
        exploration: Share of the tokens that probes may cost; 0 for no probes. The guard has a
            budget of its own, ``exploration_budget``, and holds what exceeds it.

        min_gain: Smallest predicted relative gain to switch for. The guard's ``dead_band`` holds
            what is below it as well.

    Raises:
        ConfigError: An option is out of range.

    Attributes:
        acceptance: What is known of acceptance.

        cost: What is known of the cost of rounds.
    """

    uses_time = True

    def __init__(self, *, exploration: float = 0.003, min_gain: float = 0.01) -> None:
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
        Start afresh within the limits, from their calibration where they have one.

        Raises:
            ConfigError: The calibration cannot be read, or was measured on another server.
        """
        super().configure(limits)
        self._place = {depth: place for place, depth in enumerate(limits.depths)}
        self.acceptance = AcceptanceModel(limits.largest)
        self.cost = CostModel(limits.depths)
        if limits.calibration is not None:
            calibration = Calibration.load(limits.calibration)
            for name, (measured, found) in calibration.check(limits.identity).items():
                structured(None, "sglang_dynspec.goodput").warning(
                    "calibration_differed", what=name, measured_on=measured, found=found
                )
            self.cost.load(calibration)
        self._forecast = Forecast(limits.depths, self.acceptance, self.cost)
        self._probing = Probing(len(limits.depths), self.exploration)
        self._prospects: Prospects | None = None
        self._now = 0
        self._refresh_at = 0
        # What the last prediction was for: padded batch size and place of the depth in force.
        self._batch = (0, 0)
        self._pressure = 0.0
        self._restless = 0.0
        self._plan = Plan(depth=0, reason=START)

    def decide(self, observation: Observation) -> Plan:
        """
        Decide by the predictions, and now and then look at another depth.
        """
        self._now += 1
        force = self._place.get(observation.depth, 0)
        if observation.batch_size < 1:
            return self._said(force, MEASURING)
        probed = self._probing.continued(observation.round)
        if probed is not None:
            return self._said(probed, PROBE, probe=True)
        prospects = self._predicted(observation, force)
        if observation.depth_age == 0:
            return self._said(self._first(observation.batch_size), START)
        if prospects is None:
            return self._said(force if self._now <= _UNTIMED else 0, MEASURING)
        self._probing.earn(observation.batch_size)
        return self._switched(prospects, force) or self._kept(prospects, force, observation)

    def learn(self, outcome: Outcome) -> None:
        """
        Follow acceptance and cost.
        """
        changed = self.acceptance.observe(outcome)
        measured = self.cost.observe(outcome)
        place = self._place.get(outcome.depth)
        if place is None:
            return
        probed = self._probing.learn(outcome, place, self._now)
        if measured and (probed or self.cost.has_news):
            self._forecast.forget()
            self._refresh_at = self._now
        if changed:
            # A reason to move, whatever moves there were before.
            self._restless = 0.0
            self._probing.restart()
            self._refresh_at = self._now

    def _first(self, batch_size: int) -> int:
        """Choose the place to start at."""
        if self._prospects is not None:
            return self._prospects.best
        return len(self._place) - 1 if batch_size <= _SMALL else 0

    def _predicted(self, observation: Observation, force: int) -> Prospects | None:
        """Predict anew if the batch, the depth in force or enough rounds have changed."""
        self._restless *= 1.0 - 0.7 / _RESTLESS
        batch = (observation.padded_batch_size, force)
        if force != self._batch[1]:
            self._restless += 1.0
            self._pressure = 0.0
        if batch != self._batch or self._now >= self._refresh_at or self._prospects is None:
            self._batch = batch
            self._refresh_at = self._now + _REFRESH
            self._prospects = self._forecast.prospects(
                observation.batch_size,
                observation.padded_batch_size,
                observation.seq_len_sum,
                force,
                self._now,
            )
        return self._prospects

    def _switched(self, prospects: Prospects, force: int) -> Plan | None:
        """Switch once the depth in force has lost enough; else note what it loses."""
        best = prospects.best
        if best == force:
            self._pressure *= _RELIEF
            return None
        gain = prospects.gain(best, force)
        doubt = max(self.min_gain / 2, _DOUBT * prospects.errors[best])
        self._pressure = max(self._pressure + gain - doubt, 0.0)
        patience = _PATIENCE * (1.0 + self._restless * self._restless)
        if force == 0:
            patience += prospects.upkeep / prospects.costs[best].seconds
        if gain < self.min_gain or self._pressure < patience:
            return None
        return self._said(best, GOODPUT, gain=gain)

    def _kept(self, prospects: Prospects, force: int, observation: Observation) -> Plan:
        """Keep the depth in force, or begin to probe another one."""
        probed = self._probing.begun(
            prospects,
            force,
            self._now,
            batch_size=observation.batch_size,
            index=observation.round,
        )
        if probed is not None:
            return self._said(probed, PROBE, probe=True)
        return self._said(force, GOODPUT, blocked="" if prospects.best == force else HYSTERESIS)

    def _said(
        self,
        place: int,
        reason: str,
        *,
        gain: float | None = None,
        probe: bool = False,
        blocked: str = "",
    ) -> Plan:
        """Give a plan, the last one where it says the same: most rounds allocate nothing."""
        depth = self.limits.depths[place]
        prospects, plan = self._prospects, self._plan
        predicted = () if prospects is None else prospects.rates
        if (
            plan.predicted is predicted
            and plan.depth == depth
            and plan.reason is reason
            and plan.blocked is blocked
            and plan.gain == gain
        ):
            return plan
        self._plan = Plan(
            depth=depth,
            reason=reason,
            gain=gain,
            probe=probe,
            predicted=predicted,
            confidence=None if prospects is None else prospects.confidence,
            blocked=blocked,
        )
        return self._plan
