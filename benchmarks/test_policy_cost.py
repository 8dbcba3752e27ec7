"""
What a decision of each policy costs, `decide` and `learn` together.

    python -m pytest benchmarks/test_policy_cost.py --benchmark-columns=median,iqr,max

The bound to keep is a median of 60 us at 256 requests for goodput.
"""

import random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from sglang_dynspec import Limits, Observation, Outcome
from sglang_dynspec.loading.plugins import build_policy

DEPTHS = (0, 1, 3)

#: Rounds that come before the ones measured.
WARM_UP = 500


class Server:
    """Answers a policy's plans with rounds that were drawn beforehand."""

    def __init__(self, name: str, batch_size: int, lengths: tuple[int, int]) -> None:
        draw = random.Random(1)
        self.policy = build_policy(name, {}, Limits(depths=DEPTHS))
        self.batch_size = batch_size
        self.accepted = {
            depth: [tuple(draw.choices(range(depth + 1), k=batch_size)) for _ in range(16)]
            for depth in DEPTHS
        }
        self.lengths = tuple(draw.randrange(*lengths) for _ in range(batch_size))
        self.noise = [draw.lognormvariate(0, 0.02) for _ in range(64)]
        self.depth = self.age = self.index = 0

    def round(self) -> None:
        """Run one round; what is not the policy's is a few microseconds."""
        index = self.index
        size = self.batch_size
        plan = self.policy.decide(
            Observation(
                batch_size=size,
                padded_batch_size=size,
                running=size,
                waiting=0,
                seq_len_sum=1000 * size,
                seq_len_max=2000,
                kv_free=0.5,
                depths=DEPTHS,
                depth=self.depth,
                depth_age=self.age,
                round=index,
            )
        )
        depth = plan.depth
        accepted = self.accepted[depth][index % 16] if depth else ()
        upkeep = depth == 0 and index % 4 == 0
        self.policy.learn(
            Outcome(
                round=index,
                depth=depth,
                planned=depth,
                batch_size=size,
                accepted=accepted,
                tokens=size + sum(accepted),
                # Tokens are free, so that goodput speculates and has acceptance to count.
                period=(0.005 + 1e-4 * depth) * self.noise[index % 64],
                padded_batch_size=size,
                seq_len_sum=1000 * size,
                seq_lens=self.lengths,
                upkeep=upkeep,
                guesses=size if upkeep else 0,
                right_guesses=size // 2 if upkeep else 0,
            )
        )
        if not plan.probe:
            self.age = self.age + 1 if depth == self.depth else 1
            self.depth = depth
        self.index += 1


@pytest.mark.parametrize("lengths", [(100, 1000), (100, 20_000)], ids=["alike", "mixed"])
@pytest.mark.parametrize("batch_size", [1, 32, 256])
@pytest.mark.parametrize("name", ["threshold", "bandit", "goodput"])
def test_a_round(
    benchmark: BenchmarkFixture, name: str, batch_size: int, lengths: tuple[int, int]
) -> None:
    server = Server(name, batch_size, lengths)
    for _ in range(WARM_UP):
        server.round()
    # One call a measurement: what is done every fourth or hundredth round shows in the spread.
    benchmark.pedantic(server.round, rounds=3000, iterations=1)
