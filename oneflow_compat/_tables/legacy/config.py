"""Settings of the job-function API and their effects.

FUNCTION_CONFIG[setter] = (default of its argument or None if required, "honoured" or "ignored", what or why);
RESOURCE likewise for flow.config.* and ENV for flow.env.*. docs/legacy.md shows the tables.
"""

_COMM = "one device: nothing is communicated"
_CUDNN = "torch chooses the algorithm (torch.backends.cudnn)"
_MEMORY = "torch's allocator plans the memory"
_FUSE = "the backend fuses by itself"
_MODE = "the program is rewritten by our own passes"

REQUIRED = object()


def _ignored(reason: str, default: object, names: str) -> dict[str, tuple[object, str, str]]:
    """Return rows of settings that are ignored for one reason."""
    return dict.fromkeys(names.split(), (default, "ignored", reason))


FUNCTION_CONFIG = {
    "default_data_type": (REQUIRED, "honoured", "dtype of variables and constants that name none"),
    "default_placement_scope": (REQUIRED, "honoured", "where the job runs outside any placement scope"),
    "default_logical_view": (
        REQUIRED,
        "honoured",
        "consistent_view() or mirrored_view(); the same on one device",
    ),
    "default_distribute_strategy": (REQUIRED, "honoured", "old name of default_logical_view"),
    "default_initializer_conf": (REQUIRED, "honoured", "initializer of variables that name none"),
    "enable_auto_mixed_precision": (
        True,
        "honoured",
        "the body is captured under autocast (float16 on CUDA, bfloat16 on the CPU)",
    ),
    "enable_fuse_add_to_output": (REQUIRED, "honoured", "engine pass of the same name"),
    "enable_fuse_cast_scale": (True, "honoured", "engine pass of the same name"),
    "enable_fuse_model_update_ops": (True, "ignored", _FUSE),
    "indexed_slices_optimizer_conf": (
        REQUIRED,
        "honoured",
        "listed variables change only in rows with a gradient",
    ),
    "enable_qat": (True, "ignored", "fake quantization is written out with flow.quantization.*"),
    "enable_quantization_aware_training": (
        True,
        "ignored",
        "fake quantization is written out with flow.quantization.*",
    ),
    "enable_ssp": (
        True,
        "honoured",
        "a stage of scope.config(ssp_num_stages, ssp_stage_id) computes with old values",
    ),
    "use_xla_jit": (True, "ignored", "the backend is chosen by ONEFLOW_GRAPH_BACKEND"),
    "use_tensorrt": (True, "ignored", "the backend is chosen by ONEFLOW_GRAPH_BACKEND"),
    "allow_cpu_return_op": (REQUIRED, "ignored", "results are always handed out on the CPU"),
    "concurrency_width": (REQUIRED, "ignored", "calls run one after the other"),
    "exp_run_conf": (None, "ignored", "settings of OneFlow's experiment runner"),
    "cudnn_conv_enable_true_half": (True, "ignored", _CUDNN),
    "enable_cudnn": (True, "ignored", _CUDNN),
    "enable_true_half_config_when_conv": (True, "ignored", _CUDNN),
    "enable_float_compute_for_half_gemm": (True, "ignored", "torch accumulates half products in float"),
    "prune_amp_white_identity_ops": (True, "ignored", _MODE),
    "prune_cast_to_static_shape_ops": (True, "ignored", _MODE),
    "train.primary_lr": (REQUIRED, "honoured", "learning rate of an optimizer given by model_update_conf"),
    "train.secondary_lr": (REQUIRED, "ignored", "OneFlow read it nowhere"),
    "train.model_update_conf": (
        REQUIRED,
        "honoured",
        "optimizer as a dict: {'naive_conf': {}}, {'momentum_conf': {'beta': 0.9}}, ...",
    ),
    "train.loss_scale_factor": (REQUIRED, "honoured", "fixed loss scale of that optimizer"),
    "train.num_gradient_accumulation_steps": (
        REQUIRED,
        "ignored",
        "OneFlow ran it in gradient-accumulation builds only; call the job with bigger batches",
    ),
    "qat.moving_min_max_momentum": (
        REQUIRED,
        "ignored",
        "set it on flow.quantization.moving_average_min_max_observer",
    ),
    "qat.moving_min_max_stop_update_after_iters": (
        REQUIRED,
        "ignored",
        "set it on flow.quantization.moving_average_min_max_observer",
    ),
    "qat.per_channel_weight_quantization": (True, "ignored", "set it on flow.quantization.min_max_observer"),
    "qat.symmetric": (True, "ignored", "set it on flow.quantization.min_max_observer"),
    "qat.target_backend": (REQUIRED, "ignored", "set the formula on flow.quantization.min_max_observer"),
    "tensorrt.int8_calibration": (REQUIRED, "ignored", "the backend is chosen by ONEFLOW_GRAPH_BACKEND"),
    "tensorrt.use_fp16": (True, "ignored", "the backend is chosen by ONEFLOW_GRAPH_BACKEND"),
    "tensorrt.use_int8": (True, "ignored", "the backend is chosen by ONEFLOW_GRAPH_BACKEND"),
    "static_mem_alloc_policy_white_list.add": (REQUIRED, "ignored", _MEMORY),
    "static_mem_alloc_policy_white_list.remove": (REQUIRED, "ignored", _MEMORY),
    "static_mem_alloc_policy_white_list.has": (REQUIRED, "ignored", _MEMORY),
    **_ignored(
        _COMM,
        True,
        "all_reduce_fp16 disable_all_reduce_sequence enable_all_reduce_group "
        "enable_gradients_stats_aggregation enable_nccl enable_non_distributed_optimizer "
        "prune_parallel_cast_ops do_parallel_cast_before_widening_type_cast use_boxing_v2 "
        "use_nccl_inter_node_communication",
    ),
    **_ignored(
        _COMM,
        REQUIRED,
        "all_reduce_group_min_mbyte all_reduce_group_num all_reduce_group_size_warmup "
        "all_reduce_lazy_ratio non_distributed_optimizer_group_size_mbyte "
        "optimizer_placement_optimization_mode optimizer_placement_optimization_threshold "
        "train.optimizer_placement_optimization_mode train.optimizer_placement_optimization_threshold",
    ),
    **_ignored(
        _CUDNN,
        REQUIRED,
        "cudnn_buf_limit_mbyte cudnn_conv_enable_pseudo_half cudnn_conv_force_bwd_data_algo "
        "cudnn_conv_force_bwd_filter_algo cudnn_conv_force_fwd_algo cudnn_conv_heuristic_search_algo "
        "cudnn_conv_use_deterministic_algo_only enable_cudnn_conv_pseudo_half "
        "enable_cudnn_fused_normalization_add_relu",
    ),
    **_ignored(
        _MEMORY,
        True,
        "enable_inplace enable_inplace_in_reduce_struct enable_reused_mem enable_keep_header_only",
    ),
    **_ignored(
        _MEMORY,
        None,
        "static_mem_alloc_algo_white_list.show static_mem_alloc_policy_white_list.policy_mem_size_first "
        "static_mem_alloc_policy_white_list.policy_mutual_exclusion_first "
        "static_mem_alloc_policy_white_list.policy_time_line",
    ),
}

# argument names other than `value`
ARGUMENTS = {
    "optimizer_placement_optimization_mode": "mode",
    "train.optimizer_placement_optimization_mode": "mode",
    "static_mem_alloc_policy_white_list.add": "policy",
    "static_mem_alloc_policy_white_list.remove": "policy",
    "static_mem_alloc_policy_white_list.has": "policy",
}

_RUNTIME = "OneFlow's own runtime threads and buffers; torch has none of them"

RESOURCE = {
    "gpu_device_num": (REQUIRED, "honoured", "recorded; one device is used"),
    "cpu_device_num": (REQUIRED, "honoured", "recorded; one device is used"),
    "machine_num": (REQUIRED, "honoured", "recorded; one machine is used"),
    "enable_debug_mode": (REQUIRED, "honoured", "the engine verifies the program after every stage"),
    "enable_tensor_float_32_compute": (True, "honoured", "torch.backends.cuda.matmul.allow_tf32"),
    "enable_legacy_model_io": (True, "honoured", "recorded; both snapshot layouts are read, one is written"),
    "enable_model_io_v2": (REQUIRED, "honoured", "recorded; both snapshot layouts are read, one is written"),
    "load_library": (REQUIRED, "honoured", "torch.ops.load_library at once"),
    "load_library_now": (REQUIRED, "honoured", "torch.ops.load_library"),
    "collect_act_event": (True, "ignored", _RUNTIME),
    "comm_net_worker_num": (REQUIRED, "ignored", _COMM),
    "compute_thread_pool_size": (REQUIRED, "ignored", "use torch.set_num_threads"),
    "disable_group_boxing_by_dst_parallel": (False, "ignored", _COMM),
    "enable_mem_chain_merge": (True, "ignored", _MEMORY),
    "enable_numa_aware_cuda_malloc_host": (True, "ignored", _MEMORY),
    "max_mdsave_worker_num": (REQUIRED, "ignored", _RUNTIME),
    "persistence_buf_byte": (REQUIRED, "ignored", "snapshots are written by torch and the operating system"),
    "save_downloaded_file_to_local_fs": (True, "ignored", "files are read where they are"),
    "nccl_use_compute_stream": (False, "ignored", _COMM),
    "rdma_mem_block_mbyte": (REQUIRED, "ignored", _COMM),
    "rdma_recv_msg_buf_mbyte": (REQUIRED, "ignored", _COMM),
    "reserved_device_mem_mbyte": (REQUIRED, "ignored", _MEMORY),
    "reserved_host_mem_mbyte": (REQUIRED, "ignored", _MEMORY),
    "thread_enable_local_message_queue": (REQUIRED, "ignored", _RUNTIME),
    "use_rdma": (True, "ignored", _COMM),
}

COLLECTIVE_BOXING = {
    "enable_fusion": (True, "ignored", _COMM),
    "num_callback_threads": (REQUIRED, "ignored", _RUNTIME),
    **_ignored(
        _COMM,
        REQUIRED,
        "nccl_enable_all_to_all nccl_enable_mixed_fusion nccl_fusion_all_gather nccl_fusion_all_reduce "
        "nccl_fusion_all_reduce_use_buffer nccl_fusion_broadcast nccl_fusion_max_ops nccl_fusion_reduce "
        "nccl_fusion_reduce_scatter nccl_fusion_threshold_mb nccl_num_streams",
    ),
}

_PORTS = dict.fromkeys(("ctrl_port", "data_port"), (REQUIRED, "ignored", "one process: nothing listens"))
RESOURCE.update(_PORTS)  # the ports were settings of flow.config until 0.3

ENV = {
    **_PORTS,
    "grpc_use_no_signal": (True, "ignored", "no gRPC is used"),
    "log_dir": (
        REQUIRED,
        "honoured",
        "where flow.env.log_dir_value() points; errors go to stderr through Python's logging",
    ),
    "logbuflevel": (REQUIRED, "ignored", "Python's logging is not buffered"),
    "logtostderr": (REQUIRED, "ignored", "Python's logging goes to stderr"),
}
