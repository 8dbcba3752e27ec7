"""
What a world is: a server, its requests, and how they come.
"""

from dataclasses import dataclass, field

from sglang_dynspec.simulator.server import SyntheticServer
from sglang_dynspec.simulator.service.costs import Bend, CostTable
from sglang_dynspec.simulator.service.load import Load, Moves, held
from sglang_dynspec.simulator.service.pace import Pace
from sglang_dynspec.simulator.service.requests import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """
    A server in service, for some seconds of its clock.

    Attributes:
        name: What to call it; begins with its kind.

        kind: What it is hard by.

        summary: What is special about it, in a line.

        server: What a round costs by formula.

        requests: What requests are like.

        load: When they come.

        seconds: How long it lasts, by its own clock.

        bends: Where costs leave the formula.

        depths: Candidate depths.

        level: The level of acceptance, by the clock.

        pace: What moves the time of rounds.

        upkeep_window: Plain rounds between two upkeep passes, 0 for none; None for the server's.

        stale: With no upkeep, the level of acceptance after many plain rounds.

        freshening: Speculative rounds after which two thirds of that are gone.

        reentry: Seconds that the first speculative round after plain ones takes besides its pass.

        prefill: Seconds of a prefill round, and of each token of a prompt in it.

        prefill_budget: Prompt tokens of one prefill round at most, one request aside.

        max_running: Requests that may run; the rest wait.

        running: Whether its first clients are there from the start, their answers at all stages, as
            on a server that has been running; otherwise they all ask in its first moment.

        cold: Seconds that the first round of each depth at each padded batch size takes more, with
            and without an upkeep pass: it compiles kernels. From half to twice as much, by depth
            and size.

        noise: Standard deviation of the logarithm of a period's noise.

        outliers: Share of rounds that take 2 to 6 times as long.
    """

    name: str
    kind: str
    summary: str
    server: SyntheticServer
    requests: Requests
    load: Load
    seconds: float
    bends: tuple[Bend, ...] = ()
    depths: tuple[int, ...] = (0, 1, 3)
    level: Moves = field(default_factory=lambda: held(1.0))
    pace: Pace = field(default_factory=Pace)
    upkeep_window: int | None = None
    stale: float = 0.4
    freshening: float = 24.0
    reentry: float = 0.001
    prefill: tuple[float, float] = (0.012, 2.0e-5)
    prefill_budget: int = 8192
    max_running: int = 256
    running: bool = False
    cold: float = 0.0
    noise: float = 0.02
    outliers: float = 0.003

    @property
    def window(self) -> int:
        """
        Plain rounds between two upkeep passes; 0 for none.
        """
        return self.server.upkeep_window if self.upkeep_window is None else self.upkeep_window

    def costs(self) -> CostTable:
        """
        Tabulate what rounds cost.
        """
        return CostTable(self.server, self.depths, self.bends)
