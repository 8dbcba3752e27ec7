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
    """Alternates depths, and makes the second upkeep pass of a kind fail."""

    def __init__(self, *, kind: str) -> None:
        self._kind = kind
        self._rounds = 0

    def decide(self, observation):
        if self._rounds == 0:
            self._break()
        self._rounds += 1
        return Plan(depth=3 if self._rounds % 8 < 3 else 0)

    def _break(self):
        from sglang_dynspec_hooks.worker import kv_write, upkeep

        owner, name = {
            "extend": (upkeep, "extend_draft"),
            "write": (kv_write.KvWriter, "write"),
        }[self._kind]
        run, passes = getattr(owner, name), []

        def fail_second(*args, **more):
            passes.append(args)
            if len(passes) == 2:
                raise RuntimeError("an upkeep pass that fails")
            return run(*args, **more)

        setattr(owner, name, fail_second)
