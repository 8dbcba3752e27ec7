"""
An engine that serves a world: requests arrive, are prefilled, decode and leave, by the clock.
"""

import zlib
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.observation import Observation, Outcome
from sglang_dynspec.simulator.service.load import Arrivals
from sglang_dynspec.simulator.service.noise import Noise, Staleness, Stalls
from sglang_dynspec.simulator.service.pace import ModeNoise
from sglang_dynspec.simulator.service.population import Population
from sglang_dynspec.simulator.service.requests import Drawn
from sglang_dynspec.simulator.service.world import World
from sglang_dynspec.simulator.upkeep import Upkeep

#: Tokens the KV pool of a synthetic server holds.
_KV_POOL = 1_000_000

#: Every so many window passes one guesses a token, as in the engine (`_GUESS_EVERY` there).
GUESS_EVERY = 16


@dataclass(slots=True)
class Log:
    """
    What happened, a value for each decode round.

    Attributes:
        rows: Place of the depth that ran.

        columns: Place of the padded batch size.

        sizes: Requests in the batch.

        contexts: Tokens of context of its requests.

        counts: Requests by row of the table of survival.

        stale: Factor on acceptance because drafts are stale.

        refilled: Whether a request that leaves is followed by another one at once.

        begins: Second at which the round began.

        ends: Second at which it was complete.

        extra: Seconds of passes and re-entry in it, without noise and pace.

        stalled: Seconds of compilation in it.

        tokens: Tokens it delivered.

        idle: Whether nothing ran before it.

        timed: Whether the policy was told its period.
    """

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)
    stale: list[float] = field(default_factory=list)
    refilled: list[bool] = field(default_factory=list)
    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    extra: list[float] = field(default_factory=list)
    stalled: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    idle: list[bool] = field(default_factory=list)
    timed: list[bool] = field(default_factory=list)


class ServiceEngine:
    """
    Serves a world. `advance` to the next decode round, then `decode` it; and so on.

    The scheduler prefers prefill: whatever waits and may run is prefilled before the next decode
    round, in rounds of its own, and arrivals meanwhile as well. The period of a round after a
    prefill or an idle gap is None, as in the engine (`bridge/periods.py`). Tokens beyond what a
    request wants are cut off. What the scheduler's overlap adds, a last round of a request that has
    its tokens, is left out.

    Args:
        world: The world.

        seed: Decides arrivals, requests, drafts and noise.

    Attributes:
        now: Seconds on the clock.

        log: What happened so far.

        population: The running requests.

        prefilled: Tokens delivered by prefills: the first of each request.

        waits: Seconds that requests waited, from arrival to the first token.
    """

    def __init__(self, world: World, *, seed: int) -> None:
        seeds = np.random.SeedSequence([seed, zlib.crc32(world.name.encode())]).spawn(5)
        arriving, asking, drafting, noise, modes = map(np.random.default_rng, seeds)
        self.world = world
        self._costs = world.costs()
        self._arrivals = Arrivals(world.load, arriving)
        self._drawn = Drawn(world.requests, asking)
        self._queue: deque[tuple[float, tuple[int, int, int]]] = deque()
        self.population = Population(
            world.requests, deepest=world.depths[-1], most=world.max_running, rng=drafting
        )
        self._noise = Noise(world.noise, world.outliers, noise)
        self._modes = ModeNoise(world.pace.modes, modes)
        self._stalls = Stalls(world.cold, world.name)
        self._upkeep = Upkeep(world.window, guess_every=GUESS_EVERY)
        self._staleness = Staleness(world)
        self._plain_before = False
        self._timed = False
        self._idle = True
        self._lengths: tuple[int, ...] = ()
        self.now = 0.0
        self.log = Log()
        self.prefilled = 0
        self.waits: list[float] = []
        if world.running and world.load.clients is not None:
            self._start(round(world.load.clients.at(0.0)), seeds[4])

    def advance(self) -> bool:
        """
        Go on to the moment before the next decode round.

        Returns:
            Whether there is one before the world ends.
        """
        world, population, queue = self.world, self.population, self._queue
        while self.now < world.seconds:
            for _ in range(self._arrivals.due(self.now, population.size + len(queue))):
                queue.append((self.now, self._drawn.take()))
            if queue and population.size < world.max_running:
                self._prefill()
            elif population.size:
                self._see()
                return True
            else:
                self.now = min(self._arrivals.next_moment(self.now), world.seconds)
                # Whoever comes is prefilled first, so that the next round has no period.
                self._idle = True
        return False

    def observation(self, index: int, *, depth: int, depth_age: int) -> Observation:
        """
        Observe the round that `advance` came to.

        Args:
            index: Its index.

            depth: The depth in force.

            depth_age: Its age.
        """
        log, world = self.log, self.world
        size = log.sizes[-1]
        return Observation(
            batch_size=size,
            padded_batch_size=self._costs.sizes[log.columns[-1]],
            running=size,
            waiting=len(self._queue),
            seq_len_sum=log.contexts[-1],
            seq_len_max=max(self._lengths),
            kv_free=max(0.0, 1.0 - log.contexts[-1] / _KV_POOL),
            depths=world.depths,
            depth=depth,
            depth_age=depth_age,
            round=index,
            upkeep_window=world.window,
        )

    def decode(self, depth: int) -> Outcome:
        """
        Run the round that `advance` came to.

        Args:
            depth: The depth to run it at.

        Returns:
            What it did.
        """
        world, log, population = self.world, self.log, self.population
        row, column, begin = world.depths.index(depth), log.columns[-1], self.now
        stale = self._staleness.level
        level = world.level.at(begin) * stale
        accepted: tuple[int, ...] = ()
        guesses = right_guesses = 0
        upkeep = self._upkeep.speculative() if depth else self._upkeep.plain()
        extra = float(self._costs.passes[column]) if upkeep else 0.0
        tokens: NDArray[np.int64] | int = 1
        if depth:
            right = population.right_drafts(depth, level)
            accepted = tuple(right.tolist())
            tokens = right + 1
            extra += world.reentry if self._plain_before else 0.0
        elif self._upkeep.guessed:
            guesses = log.sizes[-1]
            right_guesses = int(population.right_drafts(1, level).sum())
        self._plain_before = not depth
        self._staleness.note(depth)
        seconds = self._costs.seconds(row, column, log.contexts[-1]) + extra
        period = seconds * world.pace.factor(depth, begin) * self._noise.factor()
        stalled = self._stalls.first(depth, column, upkeep=upkeep)
        period = period * self._modes.factor(depth) + stalled
        self.now = begin + period
        delivered = population.deliver(tokens, self.now)
        log.rows.append(row)
        log.begins.append(begin)
        log.ends.append(self.now)
        log.extra.append(extra)
        log.stale.append(stale)
        log.stalled.append(stalled)
        log.tokens.append(delivered)
        log.timed.append(self._timed)
        timed, self._timed = self._timed, True
        return Outcome(
            round=len(log.rows) - 1,
            depth=depth,
            planned=depth,
            batch_size=log.sizes[-1],
            accepted=accepted,
            tokens=delivered,
            period=period if timed else None,
            padded_batch_size=self._costs.sizes[column],
            seq_len_sum=log.contexts[-1],
            seq_lens=self._lengths,
            upkeep=upkeep,
            guesses=guesses,
            right_guesses=right_guesses,
        )

    def _start(self, count: int, seed: np.random.SeedSequence) -> None:
        """Let requests be there, at all stages."""
        done = np.random.default_rng(seed.spawn(1)[0]).random(count).tolist()
        requests = [self._drawn.take() for _ in range(count)]
        self.population.admit(
            [
                # One token more, as that of its prefill is behind it.
                (kind, prompt + int(output * part), output - int(output * part) + 1)
                for part, (kind, prompt, output) in zip(done, requests, strict=True)
            ],
            self.now,
        )

    def _see(self) -> None:
        """Log the batch of the round about to run."""
        log, population = self.log, self.population
        lengths = population.lengths.tolist()
        self._lengths = tuple(lengths)
        log.counts.append(population.look())
        log.sizes.append(len(lengths))
        log.columns.append(self._costs.column(len(lengths)))
        log.contexts.append(sum(lengths))
        clients = self.world.load.clients
        wanted = 0 if clients is None else round(clients.at(self.now))
        log.idle.append(self._idle)
        self._idle = False
        log.refilled.append(bool(self._queue) or len(lengths) <= wanted)

    def _prefill(self) -> None:
        """Prefill what waits, as far as it fits."""
        world, queue = self.world, self._queue
        room = world.max_running - self.population.size
        admitted: list[tuple[float, tuple[int, int, int]]] = []
        tokens = 0
        while queue and len(admitted) < room:
            prompt = queue[0][1][1]
            if admitted and tokens + prompt > world.prefill_budget:
                break
            tokens += prompt
            admitted.append(queue.popleft())
        fixed, each = world.prefill
        pace = world.pace.factor(None, self.now)
        self.now += (fixed + each * tokens) * pace * self._noise.factor()
        self._staleness.admit(len(admitted), self.population.size)
        self.population.admit([request for _, request in admitted], self.now)
        self.waits += [self.now - came for came, _ in admitted]
        self.prefilled += len(admitted)
        self._timed = False
