import pluggy
import pytest

from sglang_dynspec import Config, hookimpl, hookspecs
from sglang_dynspec.marker import PROJECT
from sglang_dynspec.policies import Always, Threshold


class Watching:
    """Implements every per-round hook."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def dynspec_before_round(self, observation, plan):
        self.seen.append(("before", observation.round, plan.depth))

    @hookimpl
    def dynspec_after_round(self, outcome):
        self.seen.append(("after", outcome.round, outcome.depth))

    @hookimpl
    def dynspec_depth_changed(self, old, new, reason):
        self.seen.append(("changed", old, new, reason))


class Failing:
    def __init__(self, error):
        self.error = error

    @hookimpl
    def dynspec_after_round(self):
        raise self.error


@pytest.fixture
def manager():
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def test_observers_follow_every_round(manager, cycle):
    watching = Watching()
    manager.register(watching)
    run = cycle(Threshold(batch_size=8), config=Config(min_dwell=1), hooks=manager)
    run(1)
    run(9)
    assert watching.seen == [
        ("before", 0, 3),
        ("after", 0, 3),
        ("before", 1, 0),
        ("changed", 3, 0, "above_threshold"),
        ("after", 1, 0),
    ]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)], ids=repr)
def test_a_raising_observer_hurts_nobody(manager, cycle, caplog, error):
    watching = Watching()
    manager.register(Failing(error), name="failing")
    manager.register(watching)
    manager.register(Failing(error), name="failing too")
    run = cycle(Always(), hooks=manager)
    run()
    run()
    assert [seen for seen in watching.seen if seen[0] == "after"] == [
        ("after", 0, 3),
        ("after", 1, 3),
    ]
    assert run.rounds.counters.observer_errors == 4
    (message,) = caplog.messages
    assert message.startswith("observer_failed plugin='failing too' hook=dynspec_after_round")


def test_a_keyboard_interrupt_passes(manager, cycle):
    manager.register(Failing(KeyboardInterrupt()))
    run = cycle(Always(), hooks=manager)
    with pytest.raises(KeyboardInterrupt):
        run()


def test_nothing_is_called_where_nobody_listens(manager, cycle, monkeypatch):
    run = cycle(Threshold(batch_size=8), config=Config(min_dwell=1), hooks=manager)
    monkeypatch.setattr(
        "sglang_dynspec.rounds.observers.Observers.tell", lambda *_, **__: pytest.fail("called")
    )
    run(1)
    run(9)
    assert run.rounds.counters.switches == 1
