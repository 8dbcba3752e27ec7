"""What a server's trace says of it, for a replay to be told the same."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_dynspec import Config
from sglang_dynspec.trace import read_header
from sglang_dynspec_hooks.bridge.tracing import open_trace


@pytest.mark.parametrize("overlap", [True, False])
def test_the_header_says_what_a_policy_was_told_and_when(tmp_path: Path, overlap):
    args = SimpleNamespace(
        model_path="target",
        speculative_draft_model_path="draft",
        speculative_algorithm="EAGLE3",
        max_running_requests=100,
        disable_overlap_schedule=False,
        # What SGLang decided itself stands beside the arguments.
        _resolved_overrides=[("a rule", {"disable_overlap_schedule": not overlap})],
    )
    config = Config(trace=tmp_path / "trace.jsonl", seed=7, exact_sampling=False).resolve(3)
    open_trace(config, args).close()
    header = read_header(config.trace)
    assert (header.model, header.draft, header.depths) == ("target", "draft", (0, 1, 3))
    assert header.overlap is overlap
    assert (header.max_running_requests, header.seed) == (100, 7)
    assert header.exact_sampling is False
