"""What this package calls, overrides or builds on in SGLang without hooking it."""

from __future__ import annotations

from typing import Final

from sglang_dynspec_hooks.contract.seam import Called

#: Module or class -> function -> its parameters, as `Seam.parameters` but in one string.
_FUNCTIONS: Final = {
    "sglang.srt.arg_groups.memory_hook": {
        "handle_gpu_memory_settings": "server_args",
    },
    "sglang.srt.arg_groups.model_override_base": {
        "attention_backends_of": "cfg",
        "model_config_of": "server_args",
        "record_of": "view",
        "resolving_view": "server_args",
    },
    "sglang.srt.arg_groups.overrides": {
        "declare_resolution": "server_args, source, **fields",
    },
    "sglang.srt.arg_groups.pipeline": {
        "run_resolution_pipeline": "server_args",
    },
    "sglang.srt.arg_groups.resolution_hooks": {
        "register_resolution_hook": "name",
        "run_hook": "builtin, server_args",
    },
    "sglang.srt.configs.hybrid_arch": {
        "mambaish_config": "model_config",
    },
    "sglang.srt.configs.model_config": {
        "is_deepseek_dsa": "config",
        "is_deepseek_v4": "config",
    },
    "sglang.srt.configs.model_config.ModelConfig": {
        "_config_draft_model": "self",
        "from_server_args": (
            "server_args, model_path, model_revision, is_draft_model, context_length, **kwargs"
        ),
    },
    "sglang.srt.entrypoints.warmup": {
        "execute_warmups": "disaggregation_mode, warmup_names, tokenizer_manager",
        "warmup": "name",
    },
    "sglang.srt.layers.radix_attention.RadixAttention": {
        "forward": ("self, q, k, v, forward_batch, save_kv_cache, key_value_num_tokens, **kwargs"),
    },
    "sglang.srt.managers.data_parallel_controller": {
        "run_data_parallel_controller_process": (
            "server_args, port_args, pipe_writer, run_scheduler_process_func, "
            "prelaunched_schedulers"
        ),
    },
    "sglang.srt.managers.detokenizer_manager": {
        "run_detokenizer_process": "server_args, port_args, detokenizer_manager_class",
    },
    "sglang.srt.managers.overlap_utils.FutureMap": {
        "_resolve_spec_extras": "self, batch",
        "publish": "self, future_indices, new_seq_lens, confidence",
        "stash": "self, future_indices, payload",
    },
    "sglang.srt.managers.schedule_batch.ScheduleBatch": {
        "copy": "self",
        "filter_batch": "self, reqs_to_exclude, keep_indices",
        "merge_batch": "self, other",
    },
    "sglang.srt.managers.scheduler": {
        "run_scheduler_process": (
            "server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank, pipe_writer, "
            "display_tp_rank, display_dp_rank, display_moe_ep_rank"
        ),
    },
    "sglang.srt.managers.scheduler.Scheduler": {
        "_forward_isolation": "self, batch, *, overlap",
        "_relay_forward_payload": "self, batch, future_indices, batch_result",
        "event_loop_normal": "self",
        "event_loop_overlap": "self",
        "process_batch_result": "self, batch, result",
    },
    "sglang.srt.managers.scheduler_components.batch_result_processor."
    "SchedulerBatchResultProcessor": {
        "_handle_finish_state_updated_req": "self, req, batch, result, i, logits_output",
        "_resolve_spec_v2_tokens": "self, result, batch",
    },
    "sglang.srt.mem_cache.common": {
        "release_kv_cache": "req, tree_cache, *, checkpoint",
    },
    "sglang.srt.mem_cache.memory_pool.KVWriteLoc": {
        "for_layer": "cls, forward_batch, layer, *, swa_loc, full_loc",
    },
    "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool": {
        "set_kv_buffer": (
            "self, layer, loc_info, cache_k, cache_v, k_scale, v_scale, layer_id_override, "
            "dcp_kv_mask"
        ),
    },
    "sglang.srt.mem_cache.kv_cache_configurator.KVCacheConfigurator": {
        "resolve_max_num_reqs": "self, token_capacity",
    },
    "sglang.srt.model_executor.forward_batch_info.ForwardBatch": {
        "init_new": (
            "cls, batch, model_runner, *, capture_hidden_mode, "
            "return_hidden_states_before_norm, extend_position_info, spec_mrope_positions, "
            "kv_loc_plan, write_cols"
        ),
    },
    "sglang.srt.model_executor.forward_context": {
        "forward_context": "ctx, *, forward_batch",
        "get_attn_backend": "",
    },
    "sglang.srt.model_executor.model_runner.ModelRunner": {
        "_get_attention_backend": "self, init_new_workspace",
        "forward": (
            "self, forward_batch, skip_attn_backend_init, pp_proxy_tensors, "
            "reinit_attn_backend, split_forward_count"
        ),
        "sample": "self, logits_output, forward_batch",
    },
    "sglang.srt.model_executor.runner_utils.capture_mode": {
        "model_capture_mode": "",
    },
    "sglang.srt.model_executor.runner_utils.pool": {
        "get_or_create_global_graph_capture_stream": "",
        "get_or_create_global_graph_memory_pool": "device_module",
        "graph_pool_capture_scope": "",
        "graph_pool_replay_scope": "",
    },
    "sglang.srt.plugins": {
        "load_plugins": "",
    },
    "sglang.srt.plugins.hook_registry": {
        "_wrap_fn": "original_fn, hook, hook_type",
    },
    "sglang.srt.plugins.hook_registry.HookRegistry": {
        "_apply_target": "cls, target, hooks",
        "apply_hooks": "cls",
        "register": "cls, target, hook, hook_type, *, source",
    },
    "sglang.srt.speculative.base_spec_worker.EagleDraftWorkerBase": {
        "_rebuild_topk1_chain_buffers": "self",
    },
    "sglang.srt.speculative.eagle_utils": {
        "_eagle_prefill_tail_tokens": "batch, next_token_ids",
        "eagle_prepare_for_decode": "batch",
        "get_draft_input_from_target_hidden_dim": "model_runner",
        "get_draft_recurrent_hidden_state_spec": "model_runner",
    },
    "sglang.srt.speculative.eagle_worker_common": {
        "prepare_for_draft_extend": (
            "draft_extend_input, batch, predict, num_draft_tokens, draft_model_runner, "
            "cuda_graph_runner, *, return_hidden_states_before_norm, widened_out_cache_loc, "
            "widened_positions, kv_loc_plan"
        ),
        "run_eagle_verify": (
            "batch, *, target_worker, req_to_token_pool, token_to_kv_pool_allocator, "
            "plan_stream, plan_stream_ctx, topk, num_draft_tokens, device, "
            "metadata_ready_pre_pad, finalize_tree_path, pp_proxy_tensors, grammar_barrier, "
            "uno_target_max_top_k"
        ),
    },
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2": {
        "__init__": "self, server_args, gpu_id, nccl_port, target_worker",
        "_forward_prefill_batch": "self, batch, on_publish, pp_proxy_tensors, coordination_plan",
        "_override_worker_state": (
            "self, speculative_num_steps, speculative_num_draft_tokens, cuda_graph_bs"
        ),
        "apply_runtime_state": "self, state",
        "build_adaptive_runtime_state": (
            "self, speculative_num_steps, speculative_num_draft_tokens, cuda_graph_bs"
        ),
        "forward_batch_generation": "self, batch, on_publish, grammar_barrier, pp_proxy_tensors",
        "init_cuda_graphs": "self",
        "last_shared_read_runner": "self",
        "verify": "self, batch, pp_proxy_tensors, grammar_barrier",
    },
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker": {
        "_draft_extend_for_decode": "self, batch, batch_result, *, kv_loc_plan",
        "_draft_extend_for_prefill": (
            "self, batch, target_hidden_states, next_token_ids, mm_input_embeds, kv_loc_plan"
        ),
        "draft": "self, batch, *, with_topology",
    },
    "sglang.srt.speculative.standalone_worker_v2.StandaloneWorkerV2": {
        "__init__": "self, server_args, gpu_id, nccl_port, target_worker",
    },
}

#: In the order of the table.
CALLED: Final = tuple(
    Called(target=f"{owner}.{name}", parameters=tuple(parameters.split(", ")) if parameters else ())
    for owner, functions in _FUNCTIONS.items()
    for name, parameters in functions.items()
)
