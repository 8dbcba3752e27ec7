"""
What the core costs a round: observation, plan, guard and outcome, with a policy that does little.

    python -m pytest benchmarks/test_round_cost.py --benchmark-columns=median,iqr,max

The bound to keep is a median of 25 us at 64 requests, on an idle core. A round takes milliseconds.
"""

from pytest_benchmark.fixture import BenchmarkFixture

from sglang_dynspec import Config, Limits, Observation, Outcome
from sglang_dynspec.policies import DepthTable
from sglang_dynspec.rounds.rounds import Rounds

BATCH = 64


def test_one_cycle(benchmark: BenchmarkFixture) -> None:
    limits = Limits(depths=(0, 1, 3))
    policy = DepthTable(table={"1-16": 3, "17-128": 1, "129-": 0})
    policy.configure(limits)
    rounds = Rounds(policy=policy, config=Config().resolve(None))
    lengths = list(range(100, 100 + BATCH))
    drafts = [row % 2 for row in range(BATCH)]

    def one_cycle() -> None:
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
            observation,
            plan,
            Outcome(
                round=observation.round,
                depth=plan.depth,
                planned=plan.depth,
                batch_size=BATCH,
                accepted=tuple(drafts),
                tokens=BATCH + sum(drafts),
                period=0.01,
            ),
        )

    benchmark(one_cycle)

    assert rounds.counters.rounds > 0
    assert rounds.counters.rounds_by_depth[1] == rounds.counters.rounds
