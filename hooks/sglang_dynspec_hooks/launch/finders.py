"""
What the rules of `refusals` look for in a server's arguments.

A finder takes a view of a `ServerArgs`, from SGLang's `resolving_view`, and says what is wrong
with it in words to be read after "found", or returns `None`. Those that ask for the model's
configuration read the checkpoint's `config.json`, so they are for resolved arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Finder = Callable[[Any], str | None]

#: The algorithms that this package's worker is a subclass of; NEXTN is another name of EAGLE.
ALGORITHMS: Final = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
#: The attention backends that this version's rounds have run on.
BACKENDS: Final = ("fa3", "flashinfer", "torch_native", "triton")


def is_on(*fields: str) -> Finder:
    """
    Make a finder of switches that are on.

    Args:
        fields: Fields of `ServerArgs`.

    Returns:
        A finder that names the flag of the first field that is true.
    """

    def find(view: Any) -> str | None:
        return next((_flag(field) for field in fields if getattr(view, field)), None)

    return find


def is_not(allowed: object, *fields: str) -> Finder:
    """
    Make a finder of arguments that have another value than the allowed one.

    Args:
        allowed: The value that is served.
        fields: Fields of `ServerArgs`; one that is `None` was not given.

    Returns:
        A finder that names the first flag with another value, and the value.
    """

    def find(view: Any) -> str | None:
        for field in fields:
            value = getattr(view, field)
            if value is not None and value != allowed:
                return f"{_flag(field)} {value}"
        return None

    return find


def no_algorithm(view: Any) -> str | None:
    """Find a server without speculative decoding."""
    return None if view.speculative_algorithm else "no --speculative-algorithm"


def frozen_kv_mtp(view: Any) -> str | None:
    """Find the algorithm that SGLang makes of NEXTN and EAGLE for Gemma 4 drafts."""
    name = "FROZEN_KV_MTP"
    return f"{name}, which this draft model makes of it" if _algorithm(view) == name else None


def other_algorithm(view: Any) -> str | None:
    """Find an algorithm whose worker this package does not extend."""
    name = _algorithm(view)
    return None if name in ALGORITHMS else f"--speculative-algorithm {name}"


def missing_draft(view: Any) -> str | None:
    """Find a path to a draft model that cannot be the name of one on a hub, and is not there."""
    path = view.speculative_draft_model_path
    # A name on a hub, or the URL of a store, does not begin like this.
    if path is None or not path.startswith(("/", ".")) or Path(path).exists():
        return None
    return f"nothing at {path}"


def no_eagle3_head(view: Any) -> str | None:
    """
    Find an EAGLE3 server whose draft would be another kind of model.

    SGLang loads the target itself, or its MTP layers, when it is given no draft model, and fails
    over the token map that only an EAGLE3 head has.
    """
    if _algorithm(view) != "EAGLE3":
        return None
    if view.speculative_draft_model_path in (None, view.model_path):
        return "no --speculative-draft-model-path"
    head = _name(_draft(view))
    # Heads of EAGLE 1 and 2 end in Eagle.
    return head if head == _name(_model(view)) or head.endswith("Eagle") else None


def own_draft(view: Any) -> str | None:
    """Find a server that nobody gave a draft model, and whose target has no MTP layers."""
    if view.speculative_draft_model_path is not None or _algorithm(view) not in ALGORITHMS:
        return None
    target = _name(_model(view))
    # SGLang renames a target that it loads for its MTP layers.
    if _algorithm(view) != "STANDALONE" and _name(_draft(view)) != target:
        return None
    return f"{target} as its own draft, for want of --speculative-draft-model-path"


def other_width(view: Any) -> str | None:
    """Find a number of draft tokens that a chain of that many steps does not have."""
    steps, tokens = view.speculative_num_steps, view.speculative_num_draft_tokens
    if tokens is None or (steps is not None and tokens == steps + 1):
        return None
    given = "no --speculative-num-steps" if steps is None else f"--speculative-num-steps {steps}"
    return f"--speculative-num-draft-tokens {tokens} with {given}"


def attention_dp(view: Any) -> str | None:
    """Find attention data parallelism, in its present and its deprecated spelling."""
    if view.attn_dp_size > 1:
        return f"--attn-dp-size {view.attn_dp_size}"
    return "--enable-dp-attention" if view.enable_dp_attention else None


def other_backend(view: Any) -> str | None:
    """Find an attention backend that no round of this package has run on."""
    from sglang.srt.arg_groups.overrides import attention_backends_of

    prefill, decode = attention_backends_of(view)
    draft = view.speculative_draft_attention_backend
    for purpose, backend in {"prefill": prefill, "decode": decode, "draft": draft}.items():
        if backend is not None and backend not in BACKENDS:
            return f"{backend} for {purpose}"
    return None


def not_generative(view: Any) -> str | None:
    """Find a model that generates no text, or is not asked to."""
    if view.is_embedding:
        return "--is-embedding"
    model = _model(view)
    return None if model.is_generation else _name(model)


def not_text_only(view: Any) -> str | None:
    """Find a target with an encoder."""
    model = _model(view)
    return _name(model) if model.is_multimodal or model.is_encoder_decoder else None


def not_multi_head(view: Any) -> str | None:
    """Find a target whose attention is neither multi-head nor grouped-query."""
    model = _model(view)
    arch = model.attention_arch.name
    return None if arch == "MHA" else f"{_name(model)} ({arch})"


def sparse_attention(view: Any) -> str | None:
    """Find a target with DeepSeek's sparse attention."""
    from sglang.srt.configs.model_config import is_deepseek_dsa, is_deepseek_v4

    model = _model(view)
    config = model.hf_config
    return _name(model) if is_deepseek_dsa(config) or is_deepseek_v4(config) else None


def sliding_window(view: Any) -> str | None:
    """Find a target that attends over a window or a chunk in some layers."""
    model = _model(view)
    if model.is_hybrid_swa or model.sliding_window_size or model.attention_chunk_size:
        return _name(model)
    return None


def recurrent(view: Any) -> str | None:
    """Find a target with linear-attention or state-space layers."""
    from sglang.srt.configs.hybrid_arch import mambaish_config

    model = _model(view)
    return None if mambaish_config(model) is None else _name(model)


def multi_axis_rope(view: Any) -> str | None:
    """Find a target whose positions have several axes."""
    model = _model(view)
    return _name(model) if model.model_is_mrope else None


def _algorithm(view: Any) -> str:
    return str(view.speculative_algorithm or "").upper()


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _model(view: Any) -> Any:
    from sglang.srt.arg_groups.overrides import model_config_of

    return model_config_of(view)


def _draft(view: Any) -> Any:
    """The draft model's configuration, as the scheduler will read it."""
    from sglang.srt.arg_groups.overrides import record_of
    from sglang.srt.configs.model_config import ModelConfig

    return ModelConfig.from_server_args(
        record_of(view),
        model_path=view.speculative_draft_model_path,
        model_revision=view.speculative_draft_model_revision,
        is_draft_model=True,
    )


def _name(model: Any) -> str:
    return str(model.hf_config.architectures[0])
