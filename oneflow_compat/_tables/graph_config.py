"""Every option of nn.Graph's config: what it does here, or why it has no effect.

GRAPH_CONFIG[method] = ("honoured" | "ignored" | "package" | "ours", what it does or why nothing follows)
docs/graph.md's table is generated from these rows; methods of ignored rows are made from them.
"""

_AUTO = (
    "OneFlow's search for SBP rules over several ranks; here the program names them, and DTensor chooses"
    " those of results"
)
_MEMORY = "memory is planned by the backend (inductor) or freed as soon as a value is dead (aten)"

GRAPH_CONFIG = {
    "set_backend": (
        "ours",
        (
            "aten, inductor, auto, openvino, tensorrt or xla; default: auto, which starts with aten and"
            " compiles with inductor when it pays; aten without a C++ compiler"
        ),
    ),
    "dynamic": (
        "ours",
        (
            "which dimensions of arguments may differ between the calls of one program; by default those that"
            " differed before: the first program is static, the second one serves all sizes"
        ),
    ),
    "strict": (
        "ours",
        (
            "a value that build() reads and that no guard can follow (a clock, a generator outside torch, a"
            " file, an iterator) is an error instead of a warning"
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
            "the optimizer is one fused operator, which also scales the gradients (clipping, static loss"
            " scale) and leaves a step with inf or nan out; on by itself but with aten"
        ),
    ),
    "enable_multi_tensor_update": ("honoured", "the optimizer is traced through torch's multi-tensor form"),
    "enable_fused_model_update_cast": (
        "ignored",
        "under autocast the half copy of a weight is made where it is used; inductor fuses it there",
    ),
    "allow_fuse_add_to_output": (
        "honoured",
        (
            "a sum is written into a term that nothing else needs; a matrix product is accumulated into the"
            " other term (with aten; inductor does so by itself)"
        ),
    ),
    "allow_fuse_cast_scale": (
        "honoured",
        "a cast is fused with the multiplication after it: one kernel with inductor, one buffer with aten",
    ),
    "allow_fuse_compositions": (
        "ours",
        (
            "with aten, gelu, quick_gelu, silu, mish, hardswish, squared relu, bias and gelu, masked softmax"
            " and scaled products of plain operators become one kernel each, forward and backward;"
            " dropout=True draws dropout inside kernels as well, other numbers than eager's; inductor fuses"
            " by itself"
        ),
    ),
    "enable_xla_jit": ("package", "backend xla: needs torch_xla"),
    "enable_tensorrt": ("package", "backend tensorrt: needs torch_tensorrt"),
    "enable_openvino": ("package", "backend openvino: needs openvino"),
    "enable_zero": (
        "honoured",
        (
            "with several ranks, optimizer states and gradients of parameters under sbp.broadcast are split"
            " over them; stage 3 is stage 2: parameters themselves are split by to_global(sbp=sbp.split(0));"
            " with one rank there is nothing to split"
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
        "every call returns tensors of its own, so no output is overwritten by a later call",
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
