"""
An engine that decodes synthetic batches: it observes, runs the depth it is told to, and reports.
"""

import zlib
from typing import TYPE_CHECKING

import numpy as np

from sglang_dynspec.observation import Observation, Outcome
from sglang_dynspec.simulator.batch import SyntheticBatch
from sglang_dynspec.simulator.load import Rollouts
from sglang_dynspec.simulator.scenario import Scenario
from sglang_dynspec.simulator.upkeep import Upkeep

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Tokens the KV pool of a synthetic server holds.
_KV_POOL = 1_000_000

#: Outliers take so many times as long.
_OUTLIER = (2.0, 6.0)


class SyntheticEngine:
    """
    Runs the rounds of a scenario.

    Args:
        scenario: The scenario.

        seed: Decides load, drafts and noise.

        rounds: Rounds that will be run.

    Attributes:
        now: Seconds since the start, by its noisy clock.

        sizes: Batch size, padded batch size and tokens of context of each round so far.

        times: Seconds of each round so far: without noise, and with it.

        tokens: Tokens delivered by each round so far.

        kind_counts: Requests of each row of the table of survival, in each round so far.
    """

    def __init__(self, scenario: Scenario, *, seed: int, rounds: int) -> None:
        seeds = np.random.SeedSequence([seed, zlib.crc32(scenario.name.encode())]).spawn(4)
        load_rng, noise_rng = (np.random.default_rng(each) for each in seeds[:2])
        load = scenario.load
        path = None if isinstance(load, Rollouts) else load(rounds, load_rng)
        self._scenario = scenario
        self._batch = SyntheticBatch(scenario, path, (seeds[2], seeds[3]))
        self._noise = _noise(scenario, rounds, noise_rng)
        self._followed_prefill = (noise_rng.random(rounds) < scenario.prefills).tolist()
        self._levels = scenario.levels(rounds).tolist()
        self._slowdown = scenario.slowdown(rounds).tolist()
        self._owed = Upkeep(scenario.server.upkeep_window)
        self._compiled: set[tuple[int, int, bool]] = set()
        self._seq_lens: tuple[int, ...] = ()
        self.now = 0.0
        self.sizes: list[tuple[int, int, int]] = []
        self.times: list[tuple[float, float]] = []
        self.tokens: list[int] = []
        self.kind_counts: list[NDArray[np.int64]] = []

    def observe(self, index: int, *, depth: int, depth_age: int) -> Observation:
        """
        Bring the batch to a round, and observe it.

        Args:
            index: The round.

            depth: The depth in force.

            depth_age: Its age.

        Returns:
            What a policy may see.
        """
        batch = self._batch
        batch.begin(index)
        self._seq_lens = tuple(batch.lengths.tolist())
        seq_len_sum = sum(self._seq_lens)
        padded = self._scenario.server.padded(batch.size)
        self.sizes.append((batch.size, padded, seq_len_sum))
        self.kind_counts.append(batch.kind_counts())
        return Observation(
            batch_size=batch.size,
            padded_batch_size=padded,
            running=batch.size,
            waiting=0,
            seq_len_sum=seq_len_sum,
            seq_len_max=max(self._seq_lens),
            kv_free=max(0.0, 1.0 - seq_len_sum / _KV_POOL),
            depths=self._scenario.depths,
            depth=depth,
            depth_age=depth_age,
            round=index,
            upkeep_window=self._scenario.server.upkeep_window,
        )

    def run(self, observation: Observation, depth: int) -> Outcome:
        """
        Run the round that was observed.

        Args:
            observation: What was observed.

            depth: The depth to run it at.

        Returns:
            What it did.
        """
        index, size, batch = observation.round, observation.batch_size, self._batch
        server, level, seq_lens = self._scenario.server, self._levels[index], self._seq_lens
        accepted: tuple[int, ...] = ()
        guesses = right_guesses = 0
        if depth:
            upkeep = self._owed.speculative()
            right = batch.right_drafts(index, depth, level)
            accepted = tuple(right.tolist())
            batch.advance(right + 1)
        else:
            if self._owed.guessed:
                guesses = size
                right_guesses = int(batch.right_drafts(index, 1, level).sum())
            upkeep = self._owed.plain()
            batch.advance(1)
        padded = observation.padded_batch_size
        seconds = server.seconds(depth, padded, observation.seq_len_sum)
        if upkeep:
            seconds += server.upkeep_seconds(padded)
        seconds *= self._slowdown[index]
        period = seconds * self._noise[index]
        kernels = (depth, padded, upkeep)
        if kernels not in self._compiled:
            self._compiled.add(kernels)
            period += self._scenario.cold
        self.now += period
        tokens = size + sum(accepted)
        self.times.append((seconds, period))
        self.tokens.append(tokens)
        return Outcome(
            round=index,
            depth=depth,
            planned=depth,
            batch_size=size,
            accepted=accepted,
            tokens=tokens,
            period=None if index == 0 or self._followed_prefill[index] else period,
            padded_batch_size=padded,
            seq_len_sum=observation.seq_len_sum,
            seq_lens=seq_lens,
            upkeep=upkeep,
            guesses=guesses,
            right_guesses=right_guesses,
        )


def _noise(scenario: Scenario, rounds: int, rng: np.random.Generator) -> list[float]:
    """
    Draw the factor by which noise lengthens each round.
    """
    noise = rng.lognormal(0.0, scenario.noise, rounds)
    outlying = rng.random(rounds) < scenario.outliers
    slowed = noise * rng.uniform(*_OUTLIER, rounds)
    factors: list[float] = np.where(outlying, slowed, noise).tolist()
    return factors
