"""What a decision costs: it is paid between two rounds of every server."""

from sglang_dynspec import Config, Observation, Outcome
from sglang_dynspec.policies import DepthTable
from sglang_dynspec.rounds import Rounds

#: Seconds. A round takes milliseconds.
LIMIT = 25e-6

BATCH = 64


def test_one_cycle_is_cheap(benchmark, limits):
    policy = DepthTable(table={"1-16": 3, "17-128": 1, "129-": 0})
    policy.configure(limits)
    rounds = Rounds(policy=policy, config=Config().resolve(None), depths=limits.depths)
    lengths = list(range(100, 100 + BATCH))
    drafts = [row % 2 for row in range(BATCH)]

    def one_cycle():
        observation = Observation(
            batch_size=BATCH,
            padded_batch_size=BATCH,
            running=BATCH,
            waiting=3,
            seq_len_sum=sum(lengths),
            seq_len_max=max(lengths),
            kv_free=0.5,
            depths=limits.depths,
            depth=rounds.depth,
            depth_age=rounds.depth_age,
            round=rounds.round,
        )
        plan = rounds.plan(observation)
        rounds.learn(
            Outcome(
                round=observation.round,
                depth=plan.depth,
                planned=plan.depth,
                batch_size=BATCH,
                accepted=tuple(drafts),
                tokens=BATCH + sum(drafts),
                period=0.01,
            )
        )

    benchmark(one_cycle)

    assert rounds.counters.rounds > 0
    assert rounds.counters.rounds_by_depth[1] == rounds.counters.rounds
    # --benchmark-disable runs it once and measures nothing.
    assert benchmark.disabled or benchmark.stats.stats.median <= LIMIT
