"""Policies that misbehave in the scheduler process. Test-only."""

from sglang_dynspec import Plan, Policy

#: Rounds of good behaviour before the fault, so that speculation is in force when it comes.
GOOD_ROUNDS = 10


class Misbehaving(Policy):
    """Speculates, then does what ``how`` says for the rest of its life."""

    def __init__(self, *, how: str) -> None:
        self._how = how
        self._rounds = 0

    def decide(self, observation):
        self._rounds += 1
        if self._rounds <= GOOD_ROUNDS:
            return Plan(depth=3)
        if self._how == "raises":
            raise RuntimeError("a policy that raises")
        if self._how == "exits":
            raise SystemExit(3)
        if self._how == "garbage":
            return "plain, please"
        if self._how == "unknown_depth":
            return Plan(depth=2)
        return Plan(depth=self._sleep())

    def _sleep(self):
        """Take longer than a policy may, by work rather than by the clock."""
        return 0 * sum(range(400_000)) + 3


class SpeculateAlways(Policy):
    """Asks for the largest depth, whatever happens."""

    def decide(self, observation):
        return Plan(depth=observation.depths[-1])


class BreaksUpkeep(Policy):
    """Alternates depths, and makes the second upkeep pass fail."""

    def __init__(self):
        self._rounds = 0

    def decide(self, observation):
        if self._rounds == 0:
            self._break()
        self._rounds += 1
        return Plan(depth=3 if self._rounds % 8 < 3 else 0)

    def _break(self):
        from sglang_dynspec_hooks.worker.upkeep import Upkeep

        run, passes = Upkeep._pass, []

        def fail_second(*args):
            passes.append(args)
            if len(passes) == 2:
                raise RuntimeError("an upkeep pass that fails")
            run(*args)

        Upkeep._pass = fail_second
