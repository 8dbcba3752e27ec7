"""
Recording rounds in a trace, so that no disk can hurt the server.
"""

from contextlib import suppress

from structlog.stdlib import BoundLogger

from sglang_dynspec.account.counters import Counters
from sglang_dynspec.log import describe
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.trace import TraceWriter

#: Seconds that serving may stand still, once, to save the rest of a trace that failed.
_PATIENCE = 0.1


class Recorder:
    """
    Writes rounds to a trace until that fails; serving goes on without it.

    Args:
        trace: Where to write; None for nowhere.

        counters: Where a fault is counted.

        log: A structlog logger.
    """

    __slots__ = ("_counters", "_log", "_trace")

    def __init__(self, trace: TraceWriter | None, *, counters: Counters, log: BoundLogger) -> None:
        self._trace = trace
        self._counters = counters
        self._log = log

    def write(self, observation: Observation, plan: Plan, outcome: Outcome) -> None:
        """
        Write a round.
        """
        trace = self._trace
        if trace is None:
            return
        try:
            trace.write(observation, plan, outcome)
        # Not only OSError: a value that JSON cannot hold must not stop the server either.
        except Exception as error:  # noqa: BLE001
            self._stop(error)
            with suppress(OSError):
                trace.close(_PATIENCE)

    def close(self) -> None:
        """
        Finish the trace. Does nothing the second time.
        """
        trace = self._trace
        if trace is not None:
            try:
                trace.close()
            except OSError as error:
                self._stop(error)
        self._trace = None

    def _stop(self, error: Exception) -> None:
        self._trace = None
        self._counters.trace_errors += 1
        self._log.error("trace_stopped", error=describe(error), note="serving goes on")
