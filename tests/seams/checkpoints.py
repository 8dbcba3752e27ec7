"""Checkpoints of which resolution reads nothing but `config.json`."""

import json
from pathlib import Path

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_MODELS = {
    "llama": {},
    "deeper": {"num_hidden_layers": 8},
    "eagle3": {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 512},
    "eagle": {"architectures": ["LlamaForCausalLMEagle"]},
    # SGLang drafts with its MTP layers when it is given no draft model.
    "mtp": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    "gemma4_draft": {"architectures": ["Gemma4AssistantForCausalLM"]},
    "windowed": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": 512,
    },
    "window_off": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "sliding_window": 512,
        "use_sliding_window": False,
    },
    "chunked": {"attention_chunk_size": 128},
    "mrope": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]},
    },
    "latent": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
    },
    "recurrent": {
        "architectures": ["FalconH1ForCausalLM"],
        "model_type": "falcon_h1",
        "mamba_d_ssm": 64,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_n_groups": 1,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 64,
    },
    "vision": {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": _LLAMA,
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        "image_token_index": 3,
    },
    "encoder": {"architectures": ["BertModel"], "model_type": "bert"},
}


def write_checkpoints(folder: Path) -> None:
    """Write one directory a model."""
    for name, changes in _MODELS.items():
        (folder / name).mkdir()
        text = json.dumps({**_LLAMA, **changes})
        (folder / name / "config.json").write_text(text, encoding="utf-8")
