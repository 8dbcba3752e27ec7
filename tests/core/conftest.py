"""Shared pieces of the core's tests, and the blocker that proves the core needs no engine."""

import importlib.abc
import os
import sys

import pytest

from sglang_dynspec import Config, Limits, Outcome, Plan, Policy
from sglang_dynspec.account.counters import Counters
from sglang_dynspec.guard import Guard
from sglang_dynspec.rounds.rounds import Rounds
from sglang_dynspec.trace import TraceHeader, TraceWriter
from tests.core.scripted import Asking, Clock, observation

ENGINE = ("sglang", "torch", "sglang_dynspec_hooks")

DEPTHS = (0, 1, 3)


class EngineBlocker(importlib.abc.MetaPathFinder):
    """Refuses to import the engine and the code that knows it."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ENGINE:
            raise ModuleNotFoundError(f"{name} is blocked: the core must not import it", name=name)


if os.environ.get("DYNSPEC_BLOCK_ENGINE") == "1":
    imported = [name for name in ENGINE if name in sys.modules]
    if imported:
        raise RuntimeError(f"blocked modules are imported already: {imported}")
    sys.meta_path.insert(0, EngineBlocker())


@pytest.fixture
def limits():
    return Limits(depths=DEPTHS)


@pytest.fixture
def observe():
    return observation


class Cycle:
    """Drives `Rounds` one whole round at a time."""

    def __init__(self, rounds, observe):
        self.rounds = rounds
        self.observe = observe

    def __call__(self, batch_size=1, accepted=None, period=None, upkeep=False, **fields):
        rounds = self.rounds
        observation = self.observe(
            batch_size, depth=rounds.depth, depth_age=rounds.depth_age, round=rounds.round, **fields
        )
        plan = rounds.plan(observation)
        if callable(accepted):
            accepted = accepted(plan.depth) if plan.depth else ()
        elif accepted is None:
            accepted = (0,) * batch_size if plan.depth else ()
        rounds.learn(
            observation,
            plan,
            Outcome(
                round=observation.round,
                depth=plan.depth,
                planned=plan.depth,
                batch_size=batch_size,
                accepted=accepted,
                tokens=batch_size + sum(accepted),
                period=period(plan.depth) if callable(period) else period,
                upkeep=upkeep,
            ),
        )
        return plan


@pytest.fixture
def cycle(observe, limits):
    """Build `Rounds` around a policy and give a function that runs one round."""

    def build(policy, *, config=None, **arguments):
        assert isinstance(policy, Policy)
        policy.configure(limits)
        config = (config or Config()).resolve(None)
        return Cycle(Rounds(policy=policy, config=config, **arguments), observe)

    return build


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "dynspec.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def guard(observe):
    """Build a guard whose `ask()` keeps depth and age as `Rounds` would."""

    def build(policy, *, clock=None, **fields):
        counters = Counters(DEPTHS)
        guard = Guard(
            policy,
            config=Config(**fields).resolve(None),
            counters=counters,
            clock=clock or Clock(),
        )
        return Asking(guard, counters, observe())

    return build


HEADER = TraceHeader(
    sglang="0.5.23",
    dynspec="0.1.0",
    model="/models/target",
    draft="/models/draft",
    algorithm="EAGLE3",
    depths=(0, 1, 3),
    policy="depth_table",
    options={"table": {"1-": 3}},
    started="2026-01-02T03:04:05+00:00",
)

NEVER = 3600.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


@pytest.fixture
def open_writer(path):
    """Open writers that write to the file only when told to."""
    writers = []

    def build(target=path, **arguments):
        arguments = {"flush_interval": NEVER, **arguments}
        writers.append(TraceWriter(target, HEADER, **arguments))
        return writers[-1]

    yield build
    for writer in writers:
        try:
            writer.close()
        except OSError:
            continue


@pytest.fixture
def put(observe):
    """Write a round."""

    def write(writer, index=0, **fields):
        ran = {"depth": 3, "planned": 3, "batch_size": 2, "accepted": (3, 0), "tokens": 5}
        writer.write(
            observe(2, kv_free=0.123456789, waiting=7),
            Plan(depth=3, reason="row 1-: 3"),
            Outcome(round=index, **(ran | fields)),
        )

    return write
