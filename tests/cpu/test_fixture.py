"""Sharing of engines, with stand-ins for them."""

from pathlib import Path

from sglang_dynspec_cpu.fixture import EngineFactory


class StandIn:
    """Remembers what became of it."""

    def __init__(self, **arguments):
        self.arguments = arguments
        self.is_running = False

    def start(self):
        self.is_running = True
        return self

    def shutdown(self):
        self.is_running = False


def test_the_same_arguments_give_the_same_engine():
    with EngineFactory(Path("/models"), StandIn) as factory:
        first = factory(algorithm="EAGLE3", overlap=False)
        assert factory(overlap=False, algorithm="EAGLE3") is first
        assert first.arguments == {
            "algorithm": "EAGLE3",
            "overlap": False,
            "cache": Path("/models"),
        }
    assert not first.is_running


def test_other_arguments_end_it_unless_it_is_kept():
    with EngineFactory(Path("/models"), StandIn) as factory:
        first = factory(page_size=1)
        second = factory(page_size=16, keep=True)
        assert first.is_running
        assert second.is_running
        third = factory(page_size=4)
        assert not first.is_running
        assert not second.is_running
        assert third.is_running
        assert factory(page_size=1) is not first


def test_a_dead_engine_is_replaced():
    with EngineFactory(Path("/models"), StandIn) as factory:
        first = factory()
        first.is_running = False
        assert factory() is not first
