"""A plain round: what it runs the target on, and the result that it hands on."""

from types import SimpleNamespace

import pytest
import torch

from sglang_dynspec_hooks.worker.plain import run_plain_round

#: SGLang warns where it is imported without a GPU.
pytestmark = pytest.mark.filterwarnings("ignore")


class Runner:
    """A target that notes, in order, what is asked of it."""

    def __init__(self, log):
        self.log = log
        self.shared_read_done_event = "of a verify round"
        self.logits = SimpleNamespace(
            next_token_logprobs=torch.tensor([-1.0, -2.0]), hidden_states="hidden rows"
        )

    def forward(self, forward_batch):
        # An eager round publishes no event of its own.
        assert self.shared_read_done_event is None
        self.log.append(("forward", forward_batch))
        return SimpleNamespace(
            logits_output=self.logits,
            can_run_graph="graph",
            routed_experts_output="experts",
            indexer_topk_output="indexer",
            expert_distribution_metrics="metrics",
        )

    def sample(self, logits, forward_batch):
        assert logits is self.logits
        self.log.append(("sample", forward_batch))
        return torch.tensor([11, 12])


@pytest.fixture
def log():
    return []


@pytest.fixture
def round_(monkeypatch, log):
    """Run a round; return the batch's fields as the target saw them, its options, the result."""
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

    def run(*, standalone=False, published=None, **fields):
        seen = {}

        def init_new(batch, runner, **options):
            seen.update(vars(batch), runner=runner, options=options)
            log.append("init")
            return "forward batch"

        monkeypatch.setattr(ForwardBatch, "init_new", init_new)
        runner = Runner(log)
        worker = SimpleNamespace(
            target_worker=SimpleNamespace(model_runner=runner),
            req_to_token_pool=SimpleNamespace(req_to_token=torch.arange(32).view(4, 8).int()),
            speculative_algorithm=SimpleNamespace(is_standalone=lambda: standalone),
        )
        spec_info = SimpleNamespace(
            bonus_tokens=torch.tensor([7, 8], dtype=torch.int32),
            topk_p="p",
            topk_index="index",
            hidden_states="hidden",
        )
        batch = SimpleNamespace(
            **{
                "reqs": ["one", "two"],
                "spec_info": spec_info,
                "seq_lens": torch.tensor([3, 5], dtype=torch.int32),
                "seq_lens_cpu": torch.tensor([3, 5]),
                "seq_lens_sum": 8,
                "req_pool_indices": torch.tensor([1, 2], dtype=torch.int32),
                "has_grammar": False,
                "return_logprob": False,
                "enable_overlap": False,
                **fields,
            }
        )

        def publish(lengths):
            log.append("publish")
            published.append(lengths.tolist())

        result, hidden = run_plain_round(
            worker,
            batch,
            on_publish=None if published is None else publish,
            grammar_barrier=lambda: log.append("barrier"),
        )
        assert seen["runner"] is runner
        return SimpleNamespace(
            seen=seen, spec_info=spec_info, result=result, hidden=hidden, logits=runner.logits
        )

    return run


def test_lengths_are_published_before_the_round_runs(round_, log):
    """The next launch may have to wait for them."""
    published = []
    round_(published=published)
    assert published == [[4, 6]]
    steps = [step if isinstance(step, str) else step[0] for step in log]
    assert steps == ["publish", "init", "forward", "sample"]


def test_the_target_runs_on_the_newest_tokens(round_, log):
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode

    seen = round_().seen
    assert seen["spec_info"] is None
    assert (seen["input_ids"].tolist(), seen["input_ids"].dtype) == ([7, 8], torch.int64)
    # A newest token goes where the lengths that the round began with end.
    assert seen["out_cache_loc"].tolist() == [8 + 3, 16 + 5]
    assert seen["out_cache_loc"].dtype == torch.int64
    assert (seen["seq_lens"].tolist(), seen["seq_lens_cpu"].tolist()) == ([4, 6], [4, 6])
    assert seen["seq_lens_sum"] is None
    assert seen["options"] == {
        "capture_hidden_mode": CaptureHiddenMode.FULL,
        "return_hidden_states_before_norm": False,
    }
    assert [step[1] for step in log if step[0] in {"forward", "sample"}] == ["forward batch"] * 2


def test_without_a_host_mirror_it_makes_none(round_):
    assert round_(seq_lens_cpu=None).seen["seq_lens_cpu"] is None


def test_a_draft_that_reads_no_hidden_rows_gets_none(round_):
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode

    ran = round_(standalone=True)
    assert ran.seen["options"]["capture_hidden_mode"] is CaptureHiddenMode.NULL
    assert (ran.hidden, round_().hidden) == (None, "hidden rows")


@pytest.mark.parametrize("grammar", [False, True])
def test_grammars_move_on_between_the_forward_and_the_sampler(round_, log, grammar):
    round_(has_grammar=grammar)
    steps = [step if isinstance(step, str) else step[0] for step in log]
    assert steps == ["init", "forward", *(["barrier"] if grammar else []), "sample"]


def test_the_result_is_one_of_width_one(round_):
    ran = round_()
    result = ran.result
    assert (result.next_token_ids.tolist(), result.speculative_num_draft_tokens) == ([11, 12], 1)
    assert (result.accept_lens.tolist(), result.accept_lens.dtype) == ([1, 1], torch.int32)
    assert result.new_seq_lens.tolist() == [4, 6]
    assert result.logits_output is ran.logits
    assert result.can_run_cuda_graph == "graph"
    assert (result.routed_experts_output, result.indexer_topk_output) == ("experts", "indexer")
    assert result.expert_distribution_metrics == "metrics"
    # The forward stream may still read them after the batch has moved on.
    assert result.extra_keep_alive_refs == ["forward batch", ran.spec_info]


def test_the_synchronous_loop_gets_the_draft_input_of_before(round_):
    result = round_().result
    kept = result.next_draft_input
    assert result.next_token_ids.dtype == torch.int32
    assert kept.bonus_tokens is result.next_token_ids
    assert (kept.topk_p, kept.topk_index, kept.hidden_states) == ("p", "index", "hidden")


def test_the_overlap_loop_keeps_its_rows(round_):
    result = round_(enable_overlap=True).result
    kept = result.next_draft_input
    # The relay's own dtype.
    assert result.next_token_ids.dtype == torch.int64
    assert kept.bonus_tokens is result.next_token_ids
    assert (kept.topk_p, kept.topk_index, kept.hidden_states) == (None, None, None)


@pytest.mark.parametrize(("asked", "shape"), [(True, (2, 1)), (False, (2,))])
def test_log_probabilities_are_one_row_each(round_, asked, shape):
    assert round_(return_logprob=asked).logits.next_token_logprobs.shape == shape
