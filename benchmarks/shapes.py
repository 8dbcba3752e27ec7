"""Configurations that give random models the shapes of Llama-3.1-8B and an EAGLE3 head."""

from __future__ import annotations

from typing import Any

from sglang_dynspec_cpu.checkpoint import HEAD_VOCABULARY, LLAMA_8B, configuration

TARGET: dict[str, Any] = {
    **configuration(LLAMA_8B),
    "bos_token_id": 128000,
    "eos_token_id": 128009,
    "initializer_range": 0.02,
}
HEAD: dict[str, Any] = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": HEAD_VOCABULARY,
}
