"""The shadow's kernels against plain loops that do what SGLang's Triton kernels do."""

import importlib.util
import sys

import pytest
import torch

from sglang_dynspec_cpu.environment import SHADOW

QLEN_ONLY = 1


def load_shadow():
    """Load the shadow under a name of its own: the wheel may be installed beside it."""
    init = SHADOW / "sgl_kernel" / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        "shadow_sgl_kernel", init, submodule_search_locations=[str(init.parent)]
    )
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sgl_kernel = load_shadow()


def table(generator, requests=8, context=40):
    slots = torch.randperm(requests * context, generator=generator)
    return slots.view(requests, context).int()


@pytest.fixture(params=range(3))
def generator(request):
    return torch.Generator().manual_seed(request.param)


@pytest.mark.parametrize("columns", [1, 4])
def test_draft_slots_follow_the_committed_length(generator, columns):
    req_to_token = table(generator)
    rows, lengths = torch.tensor([5, 0, 7]), torch.tensor([3, 30, 11])
    out = torch.empty(3 * columns, dtype=torch.int64)
    sgl_kernel.assign_draft_cache_locs_contiguous_cpu(
        rows, req_to_token, lengths, out, req_to_token.shape[1], 1, columns
    )
    expected = [
        int(req_to_token[row, length + column])
        for row, length in zip(rows, lengths, strict=True)
        for column in range(columns)
    ]
    assert out.tolist() == expected


def test_extend_slots_are_packed_request_after_request(generator):
    req_to_token = table(generator)
    rows, start, end = torch.tensor([2, 6, 1]), torch.tensor([0, 7, 9]), torch.tensor([5, 7, 12])
    out = torch.full((10,), -7)
    sgl_kernel.assign_extend_cache_locs_cpu(rows, req_to_token, start, end, out, 40)
    expected = req_to_token[2, :5].tolist() + req_to_token[1, 9:12].tolist()
    # A request without tokens takes no room, and what lies behind the spans is left alone.
    assert out.tolist() == [*expected, -7, -7]


def test_new_slots_are_written_where_they_are_read(generator):
    req_to_token = table(generator)
    before = req_to_token.clone()
    rows, start, end = torch.tensor([3, 4]), torch.tensor([10, 0]), torch.tensor([12, 3])
    slots = torch.tensor([901, 902, 903, 904, 905])
    sgl_kernel.assign_req_to_token_pool_cpu(rows, req_to_token, start, end, slots, 40)
    before[3, 10:12] = torch.tensor([901, 902], dtype=torch.int32)
    before[4, :3] = torch.tensor([903, 904, 905], dtype=torch.int32)
    assert torch.equal(req_to_token, before)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_tree_is_a_chain(width):
    lengths = torch.tensor([7, 100])
    mask = torch.ones(2 * width * width + 3, dtype=torch.bool)
    positions = torch.empty(2 * width, dtype=torch.int64)
    index, child, sibling = torch.full((3, 2, width), 99)
    sgl_kernel.build_tree_kernel_efficient_cpu(
        torch.empty(2, 0, dtype=torch.int64),
        torch.arange(width - 1).repeat(2, 1),
        lengths,
        mask,
        positions,
        index,
        child,
        sibling,
        1,
        width - 1,
        width,
        QLEN_ONLY,
    )
    causal = [[column <= row for column in range(width)] for row in range(width)]
    assert mask[: 2 * width * width].view(2, width, width).tolist() == [causal, causal]
    assert positions.tolist() == [7 + node for node in range(width)] + [
        100 + node for node in range(width)
    ]
    assert index.flatten().tolist() == list(range(2 * width))
    assert child.tolist() == [[*range(1, width), -1]] * 2
    assert sibling.unique().tolist() == [-1]


@pytest.mark.parametrize(("topk", "drafts", "mode"), [(2, 3, 1), (1, 7, 1), (1, 3, 0)])
def test_other_trees_and_masks_are_refused(topk, drafts, mode):
    empty = torch.empty(0)
    with pytest.raises(NotImplementedError, match=r"expected .*; found .*; "):
        sgl_kernel.build_tree_kernel_efficient_cpu(
            empty,
            torch.zeros(2, drafts),
            torch.tensor([7, 9]),
            *([empty] * 5),
            topk,
            3,
            4,
            mode,
        )


def verified_by_loop(candidates, target, accept_index, predicts):
    """What the kernel writes, one request and one node at a time."""
    batch, width = candidates.shape
    counts = []
    for request in range(batch):
        node = 0
        accept_index[request, 0] = request * width
        while node + 1 < width and candidates[request, node + 1] == target[request, node]:
            predicts[request * width + node] = target[request, node]
            node += 1
            accept_index[request, node] = request * width + node
        predicts[request * width + node] = target[request, node]
        counts.append(node)
    return counts


@pytest.mark.parametrize("width", [1, 2, 4])
def test_drafts_are_accepted_up_to_the_first_wrong_one(generator, width):
    batch = 400
    # Three ids: some drafts are right at every depth.
    candidates = torch.randint(3, (batch, width), generator=generator)
    target = torch.randint(3, (batch, width), generator=generator)
    index = torch.arange(batch * width).view(batch, width)
    sibling = torch.full((batch, width), -1)
    predicts = torch.zeros(batch * width, dtype=torch.int32)
    accept_index = torch.full((batch, width), -1, dtype=torch.int32)
    expected_predicts, expected_index = predicts.clone(), accept_index.clone()
    counts = torch.empty(batch, dtype=torch.int32)
    sgl_kernel.verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=counts,
        candidates=candidates,
        retrive_index=index,
        retrive_next_token=index,
        retrive_next_sibling=sibling,
        target_predict=target,
    )
    expected = verified_by_loop(candidates, target, expected_index, expected_predicts)
    assert counts.tolist() == expected
    assert set(expected) == set(range(width))
    assert torch.equal(accept_index, expected_index)
    assert torch.equal(predicts, expected_predicts)


def test_siblings_are_refused():
    nodes = torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(NotImplementedError, match="siblings"):
        sgl_kernel.verify_tree_greedy_cpu(
            nodes, nodes, nodes, nodes, nodes, nodes, torch.tensor([[-1, 2, -1]]), nodes
        )


def test_the_bonus_is_the_last_accepted_token():
    tokens = torch.tensor([10, 11, 12, 13, 20, 21, 22, 23])
    bonus = torch.empty(2, dtype=torch.int32)
    sgl_kernel.fill_bonus_tokens_cpu(tokens, torch.tensor([1, 4], dtype=torch.int32), bonus, 4)
    assert bonus.tolist() == [10, 23]


def test_kv_rows_never_move():
    there = torch.tensor([4, 5])
    empty = torch.empty(0)
    sgl_kernel.copy_all_layer_kv_cache_cpu(empty, empty, there, there.clone())
    with pytest.raises(NotImplementedError, match="KV rows"):
        sgl_kernel.copy_all_layer_kv_cache_cpu(empty, empty, there, there + 1)


def test_any_other_kernel_is_a_stub_that_names_itself():
    stub = sgl_kernel.merge_state_v2
    assert stub.__name__ == "merge_state_v2"
    with pytest.raises(NotImplementedError, match=r"sgl_kernel\.merge_state_v2"):
        stub(1, two=2)
    with pytest.raises(AttributeError, match="__wrapped__"):
        _ = sgl_kernel.__wrapped__
