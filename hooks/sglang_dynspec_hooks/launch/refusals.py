"""
What a server may not be combined with, one rule each.

A rule is tried twice. On the arguments as they were given, so that our message comes before any
of SGLang's; and on the resolved ones, because SGLang changes its mind on the way: NEXTN becomes
FROZEN_KV_MTP with some drafts, and HIP turns rejection sampling on by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from sglang_dynspec_hooks.launch import finders as find


class Stage(Enum):
    """When a rule is tried."""

    ASKED = "asked"
    RESOLVED = "resolved"


_BOTH: Final = frozenset(Stage)
_RESOLVED: Final = frozenset({Stage.RESOLVED})
_ASKED: Final = frozenset({Stage.ASKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that this version does not serve."""

    #: Names the rule in tests.
    name: str
    #: What would be right, to be read after "expected".
    expected: str
    found: find.Finder
    #: What to do about it.
    remedy: str
    stages: frozenset[Stage] = _BOTH
    #: Whether `allow_unproved` lifts the rule: nothing is known to break, nobody has run it.
    is_liftable: bool = False


def refuse(view: Any, *, stage: Stage, allow_unproved: bool = False) -> None:
    """
    Refuse the first combination that this version does not serve.

    Args:
        view: SGLang's view of the server's arguments at that stage.
        stage: Which rules to try.
        allow_unproved: Whether the user lifts the rules that may be lifted.

    Raises:
        ConfigError: For the first rule that finds something, with the rule's own text.
    """
    from sglang_dynspec.errors import ConfigError

    for rule in RULES:
        if stage not in rule.stages or (rule.is_liftable and allow_unproved):
            continue
        found = rule.found(view)
        if found is None:
            continue
        remedy = rule.remedy
        if rule.is_liftable:
            remedy += ", or try it with --dynspec-option allow_unproved=true"
        raise ConfigError(expected=rule.expected, found=found, remedy=remedy)


def _family(name: str, trait: str, found: find.Finder) -> Rule:
    """Make the rule for a family of target models that nobody has run."""
    return Rule(
        name=name,
        expected=f"a target model without {trait}",
        found=found,
        remedy="serve it without --enable-plugin dynspec",
        stages=_RESOLVED,
        is_liftable=True,
    )


#: Tried in this order: what decides whether there is anything to do comes first.
RULES: Final = (
    Rule(
        name="no_algorithm",
        expected="a speculative server (--speculative-algorithm and a draft model)",
        found=find.no_algorithm,
        remedy="add them, or drop --enable-plugin dynspec",
    ),
    Rule(
        name="frozen_kv_mtp",
        expected="EAGLE with its own draft KV cache",
        found=find.frozen_kv_mtp,
        remedy="use a draft model with a KV cache of its own",
    ),
    Rule(
        name="algorithm",
        expected="--speculative-algorithm EAGLE, EAGLE3, NEXTN or STANDALONE",
        found=find.other_algorithm,
        remedy="change the algorithm, or drop --enable-plugin dynspec",
    ),
    Rule(
        name="missing_draft",
        expected="the draft model at --speculative-draft-model-path",
        found=find.missing_draft,
        remedy="correct the path",
        stages=_ASKED,
    ),
    Rule(
        name="eagle3_head",
        expected="an EAGLE3 head as the draft model",
        found=find.no_eagle3_head,
        remedy="name one with --speculative-draft-model-path, or choose the algorithm that fits",
        stages=_RESOLVED,
    ),
    Rule(
        name="own_draft",
        expected="a draft model, or a target with MTP layers",
        found=find.own_draft,
        # SGLang makes no room for the KV of such a draft, and it costs what it saves.
        remedy="name a draft model with --speculative-draft-model-path",
        stages=_RESOLVED,
        is_liftable=True,
    ),
    Rule(
        name="adaptive",
        expected="one controller of the draft depth",
        found=find.is_on("speculative_adaptive"),
        remedy="drop it: the dynspec policy decides the depth of every round",
        stages=_ASKED,
    ),
    Rule(
        name="topk",
        expected="a chain of drafts (--speculative-eagle-topk 1)",
        found=find.is_not(1, "speculative_eagle_topk"),
        remedy="set it to 1: draft trees are not supported",
    ),
    Rule(
        name="width",
        expected="--speculative-num-draft-tokens to be --speculative-num-steps + 1",
        found=find.other_width,
        remedy="drop --speculative-num-draft-tokens: it follows from the steps",
    ),
    Rule(
        name="rejection_sampling",
        expected="SGLang's default verification",
        found=find.is_on(
            "speculative_use_rejection_sampling", "speculative_use_block_verification"
        ),
        remedy="drop it: plain rounds leave it no draft probabilities "
        "(SGLang turns it on by itself for EAGLE on ROCm: use EAGLE3 there)",
    ),
    Rule(
        name="lossy_acceptance",
        expected="exact acceptance",
        found=find.is_not(
            1.0, "speculative_accept_threshold_single", "speculative_accept_threshold_acc"
        ),
        remedy="drop the threshold: plain and speculative rounds would differ in distribution",
    ),
    Rule(
        name="multi_layer_eagle",
        expected="a single-layer EAGLE draft",
        found=find.is_on("enable_multi_layer_eagle"),
        remedy="drop --enable-plugin dynspec for this draft model",
    ),
    Rule(
        name="draft_window",
        expected="a draft model that attends over the whole context",
        found=find.is_not(None, "speculative_draft_window_size"),
        remedy="drop --speculative-draft-window-size",
        is_liftable=True,
    ),
    Rule(
        name="decoupled",
        expected="drafting and verification in one server",
        found=find.is_not("null", "decoupled_spec_role"),
        remedy="drop --decoupled-spec-role",
    ),
    Rule(
        name="attention_dp",
        expected="no attention data parallelism",
        found=find.attention_dp,
        remedy="drop it: its ranks do not agree on a depth",
    ),
    Rule(
        name="tensor_parallel",
        expected="--tp-size 1",
        found=find.is_not(1, "tp_size"),
        remedy="serve on one GPU: ranks that choose different depths would hang",
    ),
    Rule(
        name="data_parallel",
        expected="--dp-size 1",
        found=find.is_not(1, "dp_size"),
        remedy="start one server for each replica",
    ),
    Rule(
        name="pipeline_parallel",
        expected="--pp-size 1",
        found=find.is_not(1, "pp_size"),
        remedy="serve on one GPU: pipeline stages do not share the depth",
    ),
    Rule(
        name="two_batch_overlap",
        expected="one batch at a time",
        found=find.is_on("enable_two_batch_overlap"),
        remedy="drop it: it wraps the attention backends that a change of depth replaces",
    ),
    Rule(
        name="pdmux",
        expected="no PD multiplexing",
        found=find.is_on("enable_pdmux"),
        remedy="drop it: its attention backends do not follow a change of depth",
    ),
    Rule(
        name="disaggregation",
        expected="prefill and decode in one server",
        found=find.is_not("null", "disaggregation_mode"),
        remedy="drop --disaggregation-mode",
    ),
    Rule(
        name="encoder_only",
        expected="a server that decodes",
        found=find.is_on("encoder_only"),
        remedy="drop --enable-plugin dynspec for the encoder's server",
    ),
    Rule(
        name="mixed_chunk",
        expected="prefill and decode in separate batches",
        found=find.is_on("enable_mixed_chunk"),
        remedy="drop it: a mixed batch loses what the draft model still has to catch up on",
        # SGLang turns it off for STANDALONE, which is fine.
        stages=_RESOLVED,
    ),
    Rule(
        name="lora",
        expected="one set of weights",
        found=find.is_on("enable_lora", "lora_paths"),
        remedy="drop it: drafts and adapters have not been combined",
    ),
    Rule(
        name="hisparse",
        expected="the whole KV cache on the device",
        found=find.is_on("enable_hisparse"),
        remedy="drop --enable-hisparse",
    ),
    Rule(
        name="second_cache",
        expected="one KV cache, on the device",
        found=find.is_on(
            "enable_hierarchical_cache", "enable_lmcache", "enable_flexkv", "enable_unified_memory"
        ),
        remedy="drop it",
        is_liftable=True,
    ),
    Rule(
        name="streaming_session",
        expected="requests that are independent or share the radix cache",
        found=find.is_on("enable_streaming_session"),
        # Not ours: the next turn reads the KV of a turn's last token, which no round has written.
        remedy="drop it: SGLang's own speculative server answers its later turns wrongly",
    ),
    Rule(
        name="ray",
        expected="schedulers in processes of this launcher",
        found=find.is_on("use_ray"),
        remedy="drop it: SGLang loads no plugins in Ray actors",
    ),
    Rule(
        name="tokenizer_workers",
        expected="--tokenizer-worker-num 1",
        found=find.is_not(1, "tokenizer_worker_num"),
        remedy="drop it: SGLang loads no plugins in further tokenizer workers",
    ),
    Rule(
        name="generation",
        expected="a model that generates text",
        found=find.not_generative,
        remedy="drop --enable-plugin dynspec",
        stages=_RESOLVED,
    ),
    Rule(
        name="attention_backend",
        expected=f"an attention backend among {', '.join(find.BACKENDS)}",
        found=find.other_backend,
        remedy="choose one of them with --attention-backend",
        stages=_RESOLVED,
        is_liftable=True,
    ),
    _family("encoder", "an encoder", find.not_text_only),
    _family("recurrent", "linear-attention or state-space layers", find.recurrent),
    _family("sparse_attention", "sparse attention (DSA)", find.sparse_attention),
    _family("latent_attention", "latent attention (MLA) or none at all", find.not_multi_head),
    _family("sliding_window", "sliding-window attention", find.sliding_window),
    _family("multi_axis_rope", "multi-axis rotary positions (mrope)", find.multi_axis_rope),
)
