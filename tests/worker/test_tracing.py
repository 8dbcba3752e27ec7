"""What a server says of itself, to its policy and in its trace."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_dynspec import Config
from sglang_dynspec.policies import Never
from sglang_dynspec.trace import read_header
from sglang_dynspec_hooks import carried_config
from sglang_dynspec_hooks.bridge.bridge import Bridge


@pytest.mark.parametrize("overlap", [True, False])
def test_a_bridge_knows_what_sglang_decided(tmp_path: Path, overlap, monkeypatch):
    seen = []
    monkeypatch.setattr(Never, "configure", lambda self, limits: seen.append(limits))
    config = Config(
        policy="never", trace=tmp_path / "trace.jsonl", seed=7, exact_sampling=False
    ).resolve(3)
    args = SimpleNamespace(
        model_path="target",
        speculative_draft_model_path="draft",
        speculative_algorithm="EAGLE3",
        max_running_requests=100,
        tp_size=1,
        attention_backend=None,
        decode_attention_backend=None,
        disable_overlap_schedule=False,
        # What SGLang decided itself stands beside the arguments.
        _resolved_overrides=[
            ("a rule", {"disable_overlap_schedule": not overlap, "attention_backend": "fa3"})
        ],
    )
    carried_config.attach(args, config)
    bridge = Bridge.from_server_args(args, worker=SimpleNamespace())
    bridge.rounds.close()
    (limits,) = seen
    assert (limits.depths, limits.max_running_requests, limits.seed) == ((0, 1, 3), 100, 7)
    assert limits.identity == bridge._identity
    assert limits.identity.attention_backend == "fa3"
    assert (limits.identity.model, limits.identity.draft) == ("target", "draft")
    header = read_header(config.trace)
    assert (header.model, header.draft, header.depths) == ("target", "draft", (0, 1, 3))
    assert header.overlap is overlap
    assert (header.max_running_requests, header.seed) == (100, 7)
    assert header.exact_sampling is False
