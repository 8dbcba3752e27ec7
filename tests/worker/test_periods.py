"""Periods of rounds, by a clock that the tests set."""

from types import SimpleNamespace

import pytest

from sglang_dynspec_hooks.bridge.periods import Periods, is_ready


class Server:
    """Launches and settles rounds at given times."""

    def __init__(self):
        self.now = 0.0
        self.periods = Periods(lambda: self.now)
        self.scheduler = SimpleNamespace(_pause_intervals=[])

    def launch(self, seconds, *, decode=True):
        self.periods.launching()
        self.now += seconds
        return self.periods.launched() if decode else None

    def settle(self, index, launch, *, ready, after=0.0, idle=False):
        self.now += after
        batch = SimpleNamespace(forward_iter=index, after_idle_gap=idle)
        return self.periods.settled(self.scheduler, batch, launch=launch, ready=ready)


@pytest.fixture
def server():
    return Server()


def test_a_device_that_is_slower_sets_the_period(server):
    """Launches of 1, a device that takes 5: the host waits 4 each round."""
    launches = [server.launch(1.0)]
    periods = []
    for index in range(4):
        launches.append(server.launch(1.0))
        periods.append(server.settle(index, launches[index], ready=False, after=4.0))
    assert periods == [None, 5.0, 5.0, 5.0]


def test_a_host_that_is_slower_is_charged_with_each_rounds_own_launch(server):
    """Plain rounds launch in 2, the speculative one in 6, and the device is done before."""
    costs = [2.0, 2.0, 6.0, 2.0, 2.0]
    launches = [server.launch(costs[0])]
    periods = []
    for index in range(4):
        launches.append(server.launch(costs[index + 1]))
        periods.append(server.settle(index, launches[index], ready=True, after=0.5))
    # Without the exchange the round before the speculative one would seem to take 6.5.
    assert periods == [None, 2.5, 6.5, 2.5]


def test_the_synchronous_loop_launches_nothing_in_between(server):
    periods = []
    for index, cost in enumerate([2.0, 6.0, 2.0]):
        launch = server.launch(cost)
        periods.append(server.settle(index, launch, ready=True, after=0.5))
    assert periods == [None, 6.5, 2.5]


def test_a_prefill_launched_in_between_is_in_no_period_of_a_busy_host(server):
    launch = server.launch(2.0)
    server.settle(0, launch, ready=True)
    launch = server.launch(2.0)
    server.launch(30.0, decode=False)
    assert server.settle(1, launch, ready=True) is None


@pytest.mark.parametrize("index", [0, 2])
def test_rounds_that_do_not_follow_one_another_have_none(server, index):
    server.settle(0, server.launch(1.0), ready=False)
    assert server.settle(index, server.launch(1.0), ready=False) is None


def test_an_idle_gap_has_none(server):
    server.settle(0, server.launch(1.0), ready=False)
    assert server.settle(1, server.launch(1.0), ready=False, idle=True) is None


def test_a_pause_has_none(server):
    server.settle(0, server.launch(1.0), ready=False)
    server.scheduler._pause_intervals.append((1.2, 1.7))
    assert server.settle(1, server.launch(1.0), ready=False) is None
    assert server.settle(2, server.launch(1.0), ready=False) == 1.0
    # One that began before the last settlement and ended after it.
    server.scheduler._pause_intervals.append((2.5, 3.5))
    assert server.settle(3, server.launch(1.0), ready=False) is None


@pytest.mark.parametrize("launch", [-3.0, -0.5, 0.0])
def test_no_period_is_negative_or_nothing(server, launch):
    """The newest launch may be longer than all of the time between two settlements."""
    server.settle(0, server.launch(1.0), ready=True)
    server.launch(1.0)
    assert server.settle(1, launch, ready=True) is None


def test_launches_are_not_exchanged_while_the_device_is_the_slower(server):
    """Launches of 2 and of 6, but the host waited for the round in any case."""
    first, second = server.launch(2.0), server.launch(2.0)
    server.settle(0, first, ready=False)
    server.launch(6.0)
    assert server.settle(1, second, ready=False, after=1.0) == 7.0


class Arrived:
    def query(self):
        return True


class OnItsWay:
    def query(self):
        return False


@pytest.mark.parametrize(
    ("copy_done", "ready"),
    [(Arrived(), True), (OnItsWay(), False), (None, False), (object(), False)],
)
def test_a_result_says_whether_it_has_arrived(copy_done, ready):
    assert is_ready(SimpleNamespace(copy_done=copy_done)) is ready
