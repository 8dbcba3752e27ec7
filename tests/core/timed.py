"""Rounds that were timed, on a server whose costs are linear in all that counts."""

from sglang_dynspec import Outcome
from sglang_dynspec.estimates.cost_model import CostModel

MS = 1e-3


def ran(depth, batch_size, period, *, tokens=0, upkeep=False):
    return Outcome(
        round=0,
        depth=depth,
        planned=depth,
        batch_size=batch_size,
        accepted=(),
        tokens=batch_size,
        period=period,
        padded_batch_size=batch_size,
        seq_len_sum=tokens,
        upkeep=upkeep,
    )


def seconds(depth, batch_size, tokens=0):
    """A server that is linear in all that counts."""
    return (5.0 + 0.3 * depth + 0.02 * (depth + 1) * batch_size + tokens / 2e4) * MS


def measured(*rounds, depths=(0, 1, 3), count=20):
    """Measure a server of `seconds` at (depth, batch size, tokens), so many rounds each."""
    model = CostModel(depths)
    for depth, batch_size, tokens in rounds:
        for _ in range(count):
            model.observe(ran(depth, batch_size, seconds(depth, batch_size, tokens), tokens=tokens))
    return model
