"""
Running a policy through a scenario, behind the same `Rounds` and guard that serve.
"""

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_dynspec._plugins import build_policy, find_policy
from sglang_dynspec.config import Config
from sglang_dynspec.counters import Counters
from sglang_dynspec.observation import Observation, Outcome, Plan
from sglang_dynspec.policy import Limits, Policy
from sglang_dynspec.rounds import Rounds
from sglang_dynspec.simulator.batch import SyntheticBatch
from sglang_dynspec.simulator.load import Rollouts
from sglang_dynspec.simulator.scenario import Scenario

#: Tokens the KV pool of a synthetic server holds.
_KV_POOL = 1_000_000

#: Outliers take so many times as long.
_OUTLIER = (2.0, 6.0)


@dataclass(slots=True, kw_only=True)
class ScenarioRun:
    """
    What a policy did in a scenario, round by round.

    Attributes:
        scenario: The scenario.

        policy: The policy, as it is afterwards.

        counters: The counters of `Rounds`.

        plans: Plan of each round, after the guard.

        batch_sizes: Batch size of each round; shape (rounds,), as all that follow.

        padded_batch_sizes: The batch size it ran at.

        seq_len_sums: Tokens of context of its requests.

        kind_counts: Requests of each row of the table of survival; shape (rounds, 2 x kinds).

        seconds: Its time without noise, upkeep and re-entry included.

        periods: Its time with noise, whether the policy was told or not.

        tokens: Tokens it delivered.
    """

    scenario: Scenario
    policy: Policy
    counters: Counters
    plans: list[Plan]
    batch_sizes: NDArray[np.int64]
    padded_batch_sizes: NDArray[np.int64]
    seq_len_sums: NDArray[np.int64]
    kind_counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    periods: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @property
    def depths(self) -> NDArray[np.int64]:
        """
        Depth of each round.
        """
        return np.array([plan.depth for plan in self.plans])

    @property
    def probes(self) -> NDArray[np.bool_]:
        """
        Whether each round was a probe.
        """
        return np.array([plan.probe for plan in self.plans])


def run_scenario(  # noqa: PLR0915  # one round, top to bottom
    policy: Policy | type[Policy] | str,
    scenario: Scenario,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    lag: int = 1,
    rounds: int | None = None,
    **guard: Any,
) -> ScenarioRun:
    """
    Run a policy through a scenario.

    Args:
        policy: A policy that was never configured, its class, or its name.

        scenario: The scenario.

        seed: Decides load, drafts and noise, and seeds the policy's limits.

        options: Options of the policy, where `policy` is a class or a name.

        lag: Rounds planned before an outcome arrives: 1 as under SGLang's overlap loop, 0 as
            without it.

        rounds: Rounds to run; by default the scenario's warm-up and horizon.

        **guard: Fields of `Config` that bound the policy, for example ``min_dwell=1``.

    Returns:
        What the policy did. The same arguments give the same result, bit by bit.

    Raises:
        ConfigError: The policy refuses its options or limits.
    """
    total = scenario.rounds if rounds is None else rounds
    server, depths = scenario.server, scenario.depths
    seeds = np.random.SeedSequence([seed, zlib.crc32(scenario.name.encode())]).spawn(4)
    load_rng, noise_rng = (np.random.default_rng(each) for each in seeds[:2])
    load = scenario.load
    path = None if isinstance(load, Rollouts) else load(total, load_rng)
    noise = _noise(scenario, total, noise_rng)
    followed_prefill = (noise_rng.random(total) < scenario.prefills).tolist()
    levels, pace = scenario.levels(total).tolist(), scenario.pace(total).tolist()
    batch = SyntheticBatch(scenario, path, (seeds[2], seeds[3]))

    limits = Limits(depths=depths, max_running_requests=256, seed=seed)
    built = _built(policy, options or {}, limits)
    now = 0.0
    cycle = Rounds(
        policy=built,
        config=Config(depths=depths, seed=seed, **guard).resolve(depths[-1]),
        depths=depths,
        log=silent_logger(),
        clock=lambda: now,
    )
    plans: list[Plan] = []
    # Columns of ScenarioRun, a row for each round.
    rows: list[tuple[int, int, int, float, float, int]] = []
    counts: list[NDArray[np.int64]] = []
    waiting: list[Outcome] = []
    window, pending, guessed = server.upkeep_window, 0, False
    for index in range(total):
        batch.begin(index)
        size, level = batch.size, levels[index]
        padded = server.padded(size)
        seq_lens = tuple(batch.lengths.tolist())
        seq_len_sum = sum(seq_lens)
        plan = cycle.plan(
            Observation(
                batch_size=size,
                padded_batch_size=padded,
                running=size,
                waiting=0,
                seq_len_sum=seq_len_sum,
                seq_len_max=max(seq_lens),
                kv_free=max(0.0, 1.0 - seq_len_sum / _KV_POOL),
                depths=depths,
                depth=cycle.depth,
                depth_age=cycle.depth_age,
                round=cycle.round,
            )
        )
        depth = plan.depth
        counts.append(batch.kind_counts())
        seconds = server.seconds(depth, padded, seq_len_sum)
        accepted: tuple[int, ...] = ()
        guesses = right_guesses = 0
        if depth:
            # Re-entry writes what plain rounds left out of the draft model's KV.
            upkeep = pending > 0
            pending, guessed = 0, False
            right = batch.right_drafts(index, depth, level)
            accepted = tuple(right.tolist())
            batch.advance(right + 1)
        else:
            if guessed:
                guesses = size
                right_guesses = int(batch.right_drafts(index, 1, level).sum())
            pending += 1
            upkeep = pending == window
            guessed = upkeep
            if upkeep:
                pending = 0
            batch.advance(1)
        if upkeep and window:
            seconds += server.upkeep_seconds(padded)
        seconds *= pace[index]
        period = seconds * noise[index]
        now += period
        tokens = size + sum(accepted)
        plans.append(plan)
        rows.append((size, padded, seq_len_sum, seconds, period, tokens))
        waiting.append(
            Outcome(
                round=index,
                depth=depth,
                planned=depth,
                batch_size=size,
                accepted=accepted,
                tokens=tokens,
                period=None if index == 0 or followed_prefill[index] else period,
                padded_batch_size=padded,
                seq_len_sum=seq_len_sum,
                seq_lens=seq_lens,
                upkeep=upkeep and window > 0,
                guesses=guesses,
                right_guesses=right_guesses,
            )
        )
        if len(waiting) > lag:
            cycle.learn(waiting.pop(0))
    for outcome in waiting:
        cycle.learn(outcome)
    sizes, paddeds, sums, true, periods, delivered = map(np.array, zip(*rows, strict=True))
    return ScenarioRun(
        scenario=scenario,
        policy=built,
        counters=cycle.counters,
        plans=plans,
        batch_sizes=sizes,
        padded_batch_sizes=paddeds,
        seq_len_sums=sums,
        kind_counts=np.array(counts),
        seconds=true,
        periods=periods,
        tokens=delivered,
    )


def silent_logger() -> logging.Logger:
    """
    Make a logger that drops everything.

    Returns:
        A logger outside the hierarchy: what a policy provokes here is not for the user's log.
    """
    return logging.Logger("sglang_dynspec.replay", logging.CRITICAL + 1)  # noqa: LOG001


def _noise(scenario: Scenario, rounds: int, rng: np.random.Generator) -> list[float]:
    noise = rng.lognormal(0.0, scenario.noise, rounds)
    outlying = rng.random(rounds) < scenario.outliers
    factors: list[float] = np.where(
        outlying, noise * rng.uniform(*_OUTLIER, rounds), noise
    ).tolist()
    return factors


def _built(
    policy: Policy | type[Policy] | str, options: Mapping[str, Any], limits: Limits
) -> Policy:
    if isinstance(policy, Policy):
        policy.configure(limits)
        return policy
    kind = find_policy(policy) if isinstance(policy, str) else policy
    return build_policy(kind, options, limits, name=getattr(kind, "__name__", str(kind)))
