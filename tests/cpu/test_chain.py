"""Chain attention against the definition of attention, one query at a time."""

import pytest
import torch

from sglang_dynspec_cpu.chain import ChainPlan

HEADS, KV_HEADS, SIZE, SLOTS = 4, 2, 8, 64


@pytest.fixture
def pool():
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, SLOTS, KV_HEADS, SIZE, generator=generator)
    table = torch.stack([torch.randperm(SLOTS - 1, generator=generator) + 1 for _ in range(5)])
    return keys, values, table.int()


def by_definition(query, keys, values, scaling):
    """Attention of one query ``[heads, size]`` over ``[length, kv_heads, size]``."""
    outputs = []
    for head in range(HEADS):
        kv_head = head // (HEADS // KV_HEADS)
        scores = keys[:, kv_head] @ query[head] * scaling
        outputs.append(scores.softmax(0) @ values[:, kv_head])
    return torch.cat(outputs)


@pytest.mark.parametrize("width", [1, 4])
def test_each_query_sees_the_keys_up_to_its_own(pool, width):
    keys, values, table = pool
    rows, start = torch.tensor([4, 0, 2]), torch.tensor([0, 17, 5])
    query = torch.randn(3 * width, HEADS, SIZE, generator=torch.Generator().manual_seed(5))
    output = ChainPlan.build(table, rows, start, width).attend(query, keys, values, 0.3)
    expected = []
    for request in range(3):
        for node in range(width):
            seen = table[rows[request], : start[request] + node + 1].long()
            one = query[request * width + node]
            expected.append(by_definition(one, keys[seen], values[seen], 0.3))
    torch.testing.assert_close(output, torch.stack(expected))


def test_padding_never_reaches_the_output(pool):
    keys, values, table = pool
    rows, start = torch.tensor([1, 3]), torch.tensor([2, 30])
    query = torch.randn(2, HEADS, SIZE, generator=torch.Generator().manual_seed(5))
    output = ChainPlan.build(table, rows, start, 1).attend(query, keys, values, 1.0)
    unseen = table[1, 3:31].long()
    seen = torch.cat([table[1, :3], table[3, :31]]).long()
    poisoned = [slot for slot in unseen.tolist() if slot not in set(seen.tolist())]
    assert poisoned
    keys[poisoned], values[poisoned] = torch.nan, torch.nan
    again = ChainPlan.build(table, rows, start, 1).attend(query, keys, values, 1.0)
    assert torch.equal(output, again)


def test_a_batch_gives_what_its_requests_give_alone(pool):
    """Batched verification must choose the ids that single decoding does."""
    keys, values, table = pool
    rows, start = torch.tensor([0, 1, 2, 3]), torch.tensor([3, 40, 8, 21])
    query = torch.randn(4 * 3, HEADS, SIZE, generator=torch.Generator().manual_seed(9))
    batched = ChainPlan.build(table, rows, start, 3).attend(query, keys, values, 0.3)
    for request in range(4):
        for node in range(3):
            place = request * 3 + node
            alone = ChainPlan.build(
                table, rows[request : request + 1], start[request : request + 1] + node, 1
            ).attend(query[place : place + 1], keys, values, 0.3)
            torch.testing.assert_close(alone[0], batched[place], atol=1e-6, rtol=1e-5)
