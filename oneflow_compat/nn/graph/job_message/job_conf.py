"""JobConfigProto: the settings of a OneFlow job as a message with OneFlow's defaults; here they are only
carried (see `Message`).
"""

from ...._message import Message


class JobConfigProto(Message):
    """Settings of a job.

    Enumerations are their numbers; initializers and optimizers are not described further.
    """

    FIELDS = {
        "job_name": "",
        "train_conf": {
            "optimizer_conf": [],
            "loss_lbn": [],
            "loss_grad_lbn": [],
            "train_step_lbn": "",
            "loss_scale_factor": 1.0,
            "primary_lr": 0.0,
            "secondary_lr": 0.0,
            "primary_lr_lbn": "",
            "secondary_lr_lbn": "",
        },
        "predict_conf": {},
        "default_data_type": 2,
        "default_initialize_with_snapshot_path": "",
        "memory_allocation_algorithm_conf": {
            "use_mem_size_first_algo": True,
            "use_mutual_exclusion_first_algo": False,
            "use_time_line_algo": False,
        },
        "indexed_slices_optimizer_conf": {"enable": True},
        "enable_fuse_model_update_ops": False,
        "enable_gradients_stats_aggregation": True,
        "optimizer_placement_optimization_mode": "",
        "optimizer_placement_optimization_threshold": 1024,
        "optimizer_placement_optimization_shard_restore_level": 2,
        "enable_cudnn": True,
        "cudnn_buf_limit_mbyte": 1024,
        "cudnn_conv_force_fwd_algo": 0,
        "cudnn_conv_force_bwd_data_algo": 0,
        "cudnn_conv_force_bwd_filter_algo": 0,
        "cudnn_conv_heuristic_search_algo": True,
        "cudnn_conv_use_deterministic_algo_only": False,
        "enable_cudnn_fused_normalization_add_relu": False,
        "enable_fuse_add_to_output": False,
        "enable_fuse_cast_scale": False,
        "num_gradient_accumulation_steps": 0,
        "enable_reuse_mem": True,
        "enable_inplace": True,
        "enable_inplace_in_reduce_struct": True,
        "do_parallel_cast_before_widening_type_cast": True,
        "prune_parallel_cast_ops": True,
        "prune_cast_to_static_shape_ops": True,
        "prune_amp_white_identity_ops": True,
        "cudnn_conv_enable_pseudo_half": True,
        "enable_auto_mixed_precision": False,
        "enable_quantization_aware_training": False,
        "mixed_precision_data_type": 9,
        "enable_multi_tensor_update": False,
        "enable_fused_model_update_cast": False,
        "enable_auto_parallel": False,
        "auto_parallel_computation_cost_ratio": 0.05,
        "auto_parallel_wait_time": 16500.0,
        "enable_auto_parallel_trunk_algo": True,
        "enable_auto_parallel_sbp_collector": False,
        "enable_auto_parallel_ignore_user_sbp_config": False,
        "straighten_algorithm_tag_in_task_graph": 3,
        "enable_compress_memory": False,
        "concurrency_width": 128,
        "logical_object_id": 0,
    }
