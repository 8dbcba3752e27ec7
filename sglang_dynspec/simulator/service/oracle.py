"""
What every depth would deliver in the long run: what an oracle knows.

A round of depth k at batch size B delivers n(k) = B E(k) tokens in t(k) seconds, upkeep's share
included, and is followed by a prefill where a request came meanwhile. With a(k) requests expected
per round, of P prompt tokens each, that interruption takes

    w(k) = g (1 - exp(-a(k))) + a(k) P c

seconds on average, g for a prefill round and c for a token in it. Where each request that leaves is
followed by another one (a closed loop, or a queue), a(k) = n(k) / L with L tokens to an output: a
round that delivers more is interrupted less often per token. Where requests come by the clock,
prefills follow one another for as long as one has come during the last, which is 1 - exp(-x t(k))
times exp(x g') of them on average at x requests a second, g' seconds each. **The long-run rate** of
a depth is n(k) / (t(k) + w(k)): tokens per second of the clock if rounds went on like this one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec.simulator.service.run import WorldRun
from sglang_dynspec.simulator.service.world import World

#: An overload lasts no longer than this many prefills on end, for the formula's sake.
_MOST = 50.0

#: Share of the time that requests which come by the clock may need for their prompts.
_BUSY = 0.9


@dataclass(slots=True, kw_only=True)
class Truth:
    """
    What is true of every round of a run.

    Attributes:
        tokens: What a round of every depth delivers in the long run; shape (depths, rounds).

        seconds: How long it takes in the long run, interruption included; likewise.

        ran_tokens: What the round that ran delivered on average, its stale drafts considered; shape
            (rounds,).

        ran_seconds: How long it took without noise and compilation, its own passes and re-entry and
            the interruption to be expected after it included; likewise.

        rows: Place of the depth that ran.
    """

    tokens: NDArray[np.float64]
    seconds: NDArray[np.float64]
    ran_tokens: NDArray[np.float64]
    ran_seconds: NDArray[np.float64]
    rows: NDArray[np.int64]

    @property
    def rates(self) -> NDArray[np.float64]:
        """
        Long-run rate of every depth in every round, in tokens per second; shape (depths, rounds).
        """
        return self.tokens / self.seconds


def truth_of(run: WorldRun) -> Truth:
    """
    Work out what is true of every round of a run.

    Args:
        run: The run, of at least one round.

    Returns:
        The truth.
    """
    world, log = run.world, run.engine.log
    costs, depths = world.costs(), world.depths
    rows, columns, sizes, contexts = map(np.array, (log.rows, log.columns, log.sizes, log.contexts))
    begins, every = np.array(log.begins), np.arange(len(rows))
    shares = np.array(log.counts) / sizes[:, None]
    level = world.level.over(begins)
    lengths = _mean_lengths(world, shares, level)
    own = _mean_lengths(world, shares, level * np.array(log.stale))[rows, every]
    seconds = costs.over(columns, contexts)
    pace = world.pace.over(depths, begins)
    ran_seconds = (seconds[rows, every] + np.array(log.extra)) * pace[rows, every]
    if world.window:
        seconds[0] += costs.passes[columns] / world.window
    seconds = seconds * pace
    tokens, ran_tokens = sizes * lengths, sizes * own
    refilled = np.array(log.refilled)
    return Truth(
        tokens=tokens,
        seconds=seconds + interruptions(world, tokens, seconds, begins, refilled),
        ran_tokens=ran_tokens,
        ran_seconds=ran_seconds + interruptions(world, ran_tokens, ran_seconds, begins, refilled),
        rows=rows,
    )


def interruptions(
    world: World,
    tokens: NDArray[np.float64],
    seconds: NDArray[np.float64],
    begins: NDArray[np.float64],
    refilled: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """
    Give the seconds of prefill that are to be expected after rounds.

    Args:
        world: The world.

        tokens: Tokens that the rounds deliver; shape (..., rounds).

        seconds: Seconds that they take; likewise.

        begins: Second at which each begins; shape (rounds,).

        refilled: Whether a request that leaves is followed by another one; shape (rounds,).

    Returns:
        Seconds, of the shape of `tokens`.
    """
    fixed, each = world.prefill
    prompt = each * world.requests.mean_prompt
    came = tokens / max(world.requests.mean_output() - 1.0, 1.0)
    closed = fixed * -np.expm1(-came) + came * prompt
    opened = np.zeros_like(seconds)
    if world.load.rate is not None:
        rate = world.load.rate.over(begins)
        busy = np.minimum(rate * prompt, _BUSY)
        single = np.exp(np.minimum(rate * (fixed + prompt * np.maximum(1.0, rate * fixed)), 4.0))
        prefills = np.minimum(-np.expm1(-rate * seconds) * single, _MOST)
        opened = (prefills * fixed + rate * seconds * prompt) / (1.0 - busy)
    pace = world.pace.over((-1,), begins)[0]
    waits: NDArray[np.float64] = np.where(refilled, closed, opened) * pace
    return waits


def _mean_lengths(
    world: World, shares: NDArray[np.float64], level: NDArray[np.float64]
) -> NDArray[np.float64]:
    """
    Give the mean tokens of a request at every depth in every round; shape (depths, rounds).
    """
    deepest = world.depths[-1]
    powers = level[:, None] ** np.arange(1, deepest + 1)
    lengths = np.cumsum(powers * (shares @ world.requests.survival(deepest)), axis=1)
    lengths = np.concatenate([np.zeros((len(level), 1)), lengths], axis=1)
    picked: NDArray[np.float64] = 1.0 + lengths[:, list(world.depths)].T
    return picked
