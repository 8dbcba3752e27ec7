"""Everything that is refused, on SGLang's real resolution, before a model loads."""

from types import SimpleNamespace

import pytest

from sglang_dynspec_hooks.launch import finders
from sglang_dynspec_hooks.launch import refusals as _refusals
from tests.seams.harness import Resolver

RULES = {rule.name: rule for rule in _refusals.RULES}
LIFT = ", or try it with --dynspec-option allow_unproved=true"

OWN = "{} as its own draft, for want of --speculative-draft-model-path"

#: Rule -> flags that break it, and what the message says was found.
BY_FLAGS = {
    "frozen_kv_mtp": (
        ["--speculative-algorithm", "NEXTN", "--speculative-draft-model-path", "{gemma4_draft}"],
        "FROZEN_KV_MTP, which this draft model makes of it",
    ),
    "missing_draft": (["--speculative-draft-model-path", "/no/such"], "nothing at /no/such"),
    "algorithm": (["--speculative-algorithm", "NGRAM"], "--speculative-algorithm NGRAM"),
    "adaptive": (["--speculative-adaptive"], "--speculative-adaptive"),
    "topk": (["--speculative-eagle-topk", "4"], "--speculative-eagle-topk 4"),
    "width": (
        ["--speculative-num-steps", "3", "--speculative-num-draft-tokens", "8"],
        "--speculative-num-draft-tokens 8 with --speculative-num-steps 3",
    ),
    "rejection_sampling": (
        ["--speculative-use-rejection-sampling"],
        "--speculative-use-rejection-sampling",
    ),
    "lossy_acceptance": (
        ["--speculative-accept-threshold-acc", "0.5"],
        "--speculative-accept-threshold-acc 0.5",
    ),
    "multi_layer_eagle": (["--enable-multi-layer-eagle"], "--enable-multi-layer-eagle"),
    "draft_window": (
        ["--speculative-draft-window-size", "128"],
        "--speculative-draft-window-size 128",
    ),
    "decoupled": (["--decoupled-spec-role", "verifier"], "--decoupled-spec-role verifier"),
    "attention_dp": (
        ["--tp-size", "2", "--attn-dp-size", "2"],
        "--attn-dp-size 2",
    ),
    "tensor_parallel": (["--tp-size", "2"], "--tp-size 2"),
    "data_parallel": (["--dp-size", "2"], "--dp-size 2"),
    "pipeline_parallel": (["--pp-size", "2"], "--pp-size 2"),
    "two_batch_overlap": (["--enable-two-batch-overlap"], "--enable-two-batch-overlap"),
    "pdmux": (["--enable-pdmux"], "--enable-pdmux"),
    "disaggregation": (["--disaggregation-mode", "decode"], "--disaggregation-mode decode"),
    "encoder_only": (["--encoder-only"], "--encoder-only"),
    "mixed_chunk": (["--enable-mixed-chunk"], "--enable-mixed-chunk"),
    "lora": (["--enable-lora"], "--enable-lora"),
    "hisparse": (["--enable-hisparse"], "--enable-hisparse"),
    "second_cache": (["--enable-hierarchical-cache"], "--enable-hierarchical-cache"),
    "streaming_session": (["--enable-streaming-session"], "--enable-streaming-session"),
    "ray": (["--use-ray"], "--use-ray"),
    "tokenizer_workers": (["--tokenizer-worker-num", "2"], "--tokenizer-worker-num 2"),
    "generation": (["--is-embedding"], "--is-embedding"),
    "attention_backend": (["--attention-backend", "fa4"], "fa4 for prefill"),
}

#: Rule, the algorithm, target and draft that break it, and what the message says was found.
BY_DRAFT = [
    ("eagle3_head", "EAGLE3", ("llama", ""), "no --speculative-draft-model-path"),
    # A target whose MTP layers serve EAGLE.
    ("eagle3_head", "EAGLE3", ("mtp", ""), "no --speculative-draft-model-path"),
    ("eagle3_head", "EAGLE3", ("mtp", "mtp"), "no --speculative-draft-model-path"),
    ("eagle3_head", "EAGLE3", ("llama", "deeper"), "LlamaForCausalLM"),
    ("eagle3_head", "EAGLE3", ("llama", "eagle"), "LlamaForCausalLMEagle"),
    ("own_draft", "EAGLE", ("llama", ""), OWN.format("LlamaForCausalLM")),
    ("own_draft", "NEXTN", ("llama", ""), OWN.format("LlamaForCausalLM")),
    ("own_draft", "STANDALONE", ("llama", ""), OWN.format("LlamaForCausalLM")),
    ("own_draft", "STANDALONE", ("mtp", ""), OWN.format("Qwen3MoeForCausalLM")),
]

#: Rule -> target models that break it, and what the message says was found.
BY_TARGET = {
    "encoder": {"vision": "LlavaForConditionalGeneration"},
    "latent_attention": {"latent": "DeepseekV2ForCausalLM (MLA)"},
    "sliding_window": {"windowed": "MistralForCausalLM", "chunked": "LlamaForCausalLM"},
    "multi_axis_rope": {"mrope": "Qwen2ForCausalLM"},
    "generation": {"encoder": "--is-embedding"},
    "recurrent": {"recurrent": "FalconH1ForCausalLM"},
}


def text(name: str, found: str) -> str:
    rule = RULES[name]
    lift = LIFT if rule.is_liftable else ""
    return f"expected {rule.expected}; found {found}; {rule.remedy}{lift}"


@pytest.mark.parametrize("name", BY_FLAGS)
def test_flags_are_refused(resolver: Resolver, name: str) -> None:
    flags, found = BY_FLAGS[name]
    flags = [resolver.path(flag[1:-1]) if flag.startswith("{") else flag for flag in flags]
    assert resolver.refusal(resolver.argv(*flags)) == text(name, found)


@pytest.mark.parametrize(("name", "algorithm", "models", "found"), BY_DRAFT)
def test_drafts_are_refused(
    resolver: Resolver, name: str, algorithm: str, models: tuple[str, str], found: str
) -> None:
    target, draft = models
    argv = resolver.argv("--speculative-algorithm", algorithm, target=target, draft=draft)
    assert resolver.refusal(argv) == text(name, found)


@pytest.mark.parametrize(
    ("algorithm", "target", "draft"),
    [
        ("EAGLE", "mtp", ""),
        ("NEXTN", "mtp", ""),
        ("EAGLE", "llama", "eagle"),
        ("STANDALONE", "llama", "deeper"),
        # The same model twice, but asked for, so that SGLang makes room for it.
        ("STANDALONE", "llama", "llama"),
    ],
)
def test_drafts_are_served(resolver: Resolver, algorithm: str, target: str, draft: str) -> None:
    argv = resolver.argv("--speculative-algorithm", algorithm, target=target, draft=draft)
    assert resolver.ask(argv=argv)["config"]["depths"] == [0, 1, 3]


def test_the_target_as_its_own_draft_is_served_when_the_rule_is_lifted(resolver: Resolver) -> None:
    flags = ["--speculative-algorithm", "STANDALONE", "--dynspec-option", "allow_unproved=true"]
    assert resolver.ask(argv=resolver.argv(*flags, draft=""))["config"]["depths"] == [0, 1, 3]


@pytest.mark.parametrize("path", ["owner/model", "s3://bucket/model", "owner/model:Q4_K_M", None])
def test_a_draft_that_may_be_elsewhere_is_left_to_sglang(path: str | None) -> None:
    view = SimpleNamespace(speculative_draft_model_path=path)
    assert finders.missing_draft(view) is None


@pytest.mark.parametrize(
    ("name", "target", "found"),
    [(name, *case) for name, cases in BY_TARGET.items() for case in cases.items()],
)
def test_targets_are_refused(resolver: Resolver, name: str, target: str, found: str) -> None:
    # A radix cache of recurrent states is something SGLang itself refuses on a CPU.
    flags = ["--disable-radix-cache"] if target == "recurrent" else []
    assert resolver.refusal(resolver.argv(*flags, target=target)) == text(name, found)


def test_a_server_without_speculation_is_refused(resolver: Resolver) -> None:
    argv = ["--model-path", resolver.path("llama"), "--device", "cpu", "--enable-plugin", "dynspec"]
    assert resolver.refusal(argv) == text("no_algorithm", "no --speculative-algorithm")


def test_sparse_attention_is_found(resolver: Resolver) -> None:
    # Resolving such a target asks for a GPU, so the finder is given its configuration alone.
    answer = resolver.ask(finder="sparse_attention", config={"index_topk": 64})
    assert answer == {"found": "DeepseekV32ForCausalLM"}
    assert resolver.ask(finder="sparse_attention", config={}) == {"found": None}


def test_every_rule_is_tested_and_says_something_of_its_own() -> None:
    tested = {
        *BY_FLAGS,
        *BY_TARGET,
        *(case[0] for case in BY_DRAFT),
        "no_algorithm",
        "sparse_attention",
    }
    assert tested == set(RULES)
    assert len({rule.expected for rule in RULES.values()}) == len(_refusals.RULES)


def test_every_field_is_a_field_of_server_args(resolver: Resolver) -> None:
    # A finder reads fields by name; one that SGLang renames would raise in every server of ours.
    path = resolver.path("llama")
    for rule in _refusals.RULES:
        assert "error" not in resolver.ask(finder_of_rule=rule.name, model_path=path), rule.name


@pytest.mark.parametrize("target", ["windowed", "latent", "mrope", "vision"])
def test_a_family_is_served_when_the_rule_is_lifted(resolver: Resolver, target: str) -> None:
    argv = resolver.argv("--dynspec-option", "allow_unproved=true", target=target)
    answer = resolver.ask(argv=argv)
    assert answer["config"]["allow_unproved"] is True
    assert answer["config"]["depths"] == [0, 1, 3]


def test_what_is_known_to_break_cannot_be_lifted(resolver: Resolver) -> None:
    argv = resolver.argv("--tp-size", "2", "--dynspec-option", "allow_unproved=true")
    assert resolver.refusal(argv) == text("tensor_parallel", "--tp-size 2")


def test_a_window_that_is_switched_off_is_none(resolver: Resolver) -> None:
    assert resolver.ask(argv=resolver.argv(target="window_off"))["config"]["depths"] == [0, 1, 3]


def test_mixed_chunks_that_sglang_turns_off_itself_are_fine(resolver: Resolver) -> None:
    argv = resolver.argv("--enable-mixed-chunk", "--speculative-algorithm", "STANDALONE")
    answer = resolver.ask(argv=[*argv, "--speculative-draft-model-path", resolver.path("llama")])
    assert answer["resolved"]["enable_mixed_chunk"] is False
    assert answer["config"]["policy"] == "goodput"
