"""Every option of nn.Graph's config: its effect, or the reason why it has none.

GRAPH_CONFIG[method] = ("honoured" | "ignored" | "package" | "ours", its effect or the reason)
docs/graph-options.md and the methods of ignored options are generated from these rows.
"""

_AUTO = (
    "OneFlow searches SBP rules for several ranks. Here the program names them, and DTensor chooses those"
    " of results"
)
_MEMORY = "inductor plans the memory; aten frees a value after its last use"

GRAPH_CONFIG = {
    "set_backend": (
        "ours",
        (
            "aten, inductor, auto, openvino, tensorrt or xla. The default is auto, which starts with aten and"
            " compiles with inductor once that pays. Without a C++ compiler the default is aten"
        ),
    ),
    "pipeline_schedule": (
        "ours",
        (
            "with several ranks, stages and micro batches: gpipe or 1f1b. The default is 1f1b, or gpipe if"
            " there are fewer micro batches than stages"
        ),
    ),
    "dynamic": (
        "ours",
        (
            "which dimensions of arguments may differ between the calls of one program. By default these are"
            " the dimensions that differed before: the first program is static, the second serves all sizes"
        ),
    ),
    "strict": (
        "ours",
        (
            "a call that no program can hold is an error, and so is what build() reads and no guard can"
            " follow: a clock, a file, an iterator, a generator outside torch"
        ),
    ),
    "eager_calls": (
        "ours",
        (
            "a call that no program can hold runs in eager mode, with a warning. eager_calls(False) makes"
            " such a call an error; what build() reads and no guard can follow is then a constant, with a"
            " warning"
        ),
    ),
    "verify": (
        "ours",
        (
            "a compiled program is compared with the captured operators before its first call."
            ' verify(every=N) compares each Nth call, verify("never") none'
        ),
    ),
    "passes": (
        "ours",
        (
            "passes(skip=names) leaves passes over the program out, and check=True verifies the program after"
            " each pass. By default all run"
        ),
    ),
    "enable_cudagraph": ("ours", "the compiled program runs as a CUDA graph"),
    "enable_amp": ("honoured", "build() is captured under autocast with the given dtype"),
    "set_gradient_accumulation_steps": (
        "honoured",
        "the batch is split into micro batches inside the program",
    ),
    "allow_fuse_model_update_ops": (
        "honoured",
        (
            "the optimizer is one fused operator. It also scales the gradients (clipping, static loss scale)"
            " and skips a step with inf or nan. On by default, except with aten"
        ),
    ),
    "enable_multi_tensor_update": ("honoured", "the optimizer is traced through torch's multi-tensor form"),
    "enable_fused_model_update_cast": (
        "ignored",
        "under autocast a weight is cast where it is used, and inductor fuses the cast",
    ),
    "allow_fuse_add_to_output": (
        "honoured",
        (
            "with aten, a sum is written into a term that nothing else needs, and a matrix product is"
            " accumulated into the other term. Inductor does so by default"
        ),
    ),
    "allow_fuse_cast_scale": (
        "honoured",
        "a cast is fused with the multiplication after it: one kernel with inductor, one buffer with aten",
    ),
    "allow_fuse_compositions": (
        "ours",
        (
            "with aten, compositions of plain operators become one kernel each, forward and backward: gelu,"
            " quick_gelu, silu, mish, hardswish, squared relu, bias and gelu, masked softmax, scaled product."
            " With dropout=True the kernels sample dropout too; its masks differ from eager's. Inductor fuses"
            " by default"
        ),
    ),
    "enable_xla_jit": ("package", "backend xla: needs torch_xla"),
    "enable_tensorrt": ("package", "backend tensorrt: needs torch_tensorrt"),
    "enable_openvino": ("package", "backend openvino: needs openvino"),
    "enable_zero": (
        "honoured",
        (
            "with several ranks, optimizer state and gradients of parameters under sbp.broadcast are split"
            " over the ranks. Stages 1 and 2 are one program. In stage 3 each rank also stores a shard of the"
            " parameters, and operators gather them. With one rank nothing is split"
        ),
    ),
    "set_zero_redundancy_optimizer_mode": ("honoured", "older spelling of enable_zero"),
    "set_zero_redundancy_optimizer_min_size_after_split": (
        "honoured",
        "older spelling of enable_zero(shard_min_size=)",
    ),
    "enable_cudnn_conv_heuristic_search_algo": (
        "ignored",
        "torch.backends.cudnn.benchmark chooses between heuristics and measuring",
    ),
    "enable_compress_memory": ("ignored", _MEMORY),
    "enable_choose_best_memory_allocation": ("ignored", _MEMORY),
    "enable_straighten_algorithm": (
        "ignored",
        "operators run in the captured order (aten) or in inductor's order",
    ),
    "set_outputs_buffer_size": (
        "ignored",
        "every call returns fresh tensors, so no later call overwrites an output",
    ),
    "enable_auto_parallel": ("ignored", _AUTO),
    "enable_auto_parallel_ignore_user_sbp_config": ("ignored", _AUTO),
    "enable_auto_parallel_sbp_collector": ("ignored", _AUTO),
    "enable_auto_parallel_trunk_algo": ("ignored", _AUTO),
    "enable_auto_parallel_mainstem_algo": ("ignored", "older spelling of enable_auto_parallel_trunk_algo"),
    "enable_auto_parallel_prune_parallel_cast_ops": (
        "ignored",
        "older spelling of enable_auto_parallel_ignore_user_sbp_config",
    ),
    "set_auto_parallel_computation_cost_ratio": ("ignored", _AUTO),
    "set_auto_parallel_wait_time": ("ignored", _AUTO),
    "enable_auto_memory": ("ignored", _AUTO),
}
