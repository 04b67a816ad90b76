"""The names of `oneflow.compatible.single_client`, their modules, and which of them mean something else in
`oneflow.*`.
"""

MODULES = """
advanced autograd checkpoint config data deprecated detection distribute distributed env experimental image
keras layers
linalg losses math model nn optimizer profiler quantization random regularizers saved_model sbp scope serving
summary
sysconfig system tensorrt train typing unittest util vm
""".split()

NAMES = {
    "_jobs.job": "global_function=api_global_function current_global_function_desc",
    "_jobs.function_config": "FunctionConfig ExecutionConfig function_config",
    "_jobs.session": (
        """clear_default_session sync_default_session enable_eager_execution eager_execution_enabled
        get_all_variables load_variables"""
    ),
    "_jobs.variables": "get_variable=api_get_variable assign watch watch_diff find_or_create_module",
    "_functions.initializers": (
        """constant_initializer zeros_initializer ones_initializer empty_initializer
        random_uniform_initializer random_normal_initializer truncated_normal_initializer truncated_normal
        variance_scaling_initializer glorot_uniform_initializer glorot_normal_initializer
        xavier_uniform_initializer
        xavier_normal_initializer kaiming_initializer"""
    ),
    "typing": "FixedTensorDef MirroredTensorDef MirroredTensorListDef",
    "_functions.array": (
        """constant constant_scalar constant_like zeros ones zeros_like ones_like range reshape reshape_like
        dynamic_reshape transpose copy flatten squeeze expand_dims expand broadcast_like
        broadcast_to_compatible_with identity
        identity_n amp_white_identity cast_to_static_shape cast_to_current_logical_view parallel_cast
        hierarchical_parallel_cast cast concat stack reverse sort argsort elem_cnt clip_by_value clamp clip
        clip_by_scalar
        matmul diag pad pad_grad constant_pad2d zero_pad2d reflection_pad2d replication_pad2d same_padding
        count_not_finite multi_count_not_finite smooth_l1_loss masked_fill ctc_loss combined_margin_loss"""
    ),
    "_functions.indexing": (
        """gather local_gather dim_gather gather_nd scatter_nd tensor_scatter_nd_update tensor_scatter_nd_add
        one_hot where
        argwhere nonzero slice slice_v2 slice_update in_top_k unsorted_segment_sum unsorted_segment_sum_like
        unsorted_batch_segment_sum sync_dynamic_resize distributed_partial_fc_sample"""
    ),
    "_functions.ordinal_encoder": "categorical_ordinal_encode",
    "_functions.buffers": (
        """tensor_to_tensor_buffer tensor_buffer_to_tensor gen_tensor_buffer tensor_buffer_to_list_of_tensors
        tensor_list_to_tensor_buffer tensor_buffer_to_tensor_list tensor_list_split unpack repeat pack acc"""
    ),
    "_functions.environment": (
        """INVALID_SPLIT_AXIS Generator default_generator record tensor_buffer dtypes
        convert_oneflow_dtype_to_numpy_dtype InitEagerGlobalSession
        current_machine_id placement fixed_placement eager_fixed_placement device_prior_placement
        is_deprecated name_scope inter_job_reuse_mem_strategy
        eager_nccl_all_reduce save load"""
    ),
    "_functions.user_ops": (
        """user_op_builder user_op_module_builder consistent_user_op_builder
        consistent_user_op_module_builder builtin_op"""
    ),
    "detection": (
        """object_bbox_flip object_bbox_scale object_segmentation_polygon_flip
        object_segmentation_polygon_scale
        object_segmentation_polygon_to_mask"""
    ),
    "image": (
        """image_batch_align image_decode image_flip image_normalize image_random_crop image_resize
        image_target_resize"""
    ),
    "env": "current_resource",
    "scope": "current_scope",
    "model": "Model",
}

TORCH = """
bfloat16=bfloat16 char=int8 double=float64 dtype float float16 float32 float64 half int int32 int64 int8 long
uint8
Size Tensor device no_grad manual_seed
"""

# Inside a job function these names of `oneflow.*` have their job-function meaning; outside, their current
# one. Inside too, a call whose arguments fit only the current function goes to that function (names.py of
# compatible/single_client/_functions).
COLLIDING = {
    "oneflow": (
        """argsort argwhere broadcast_like builtin_op cast clamp clip concat ctc_loss diag
        distributed_partial_fc_sample expand flatten gather gather_nd gen_tensor_buffer in_top_k masked_fill
        matmul nonzero
        ones ones_like pad range repeat reshape scatter_nd slice slice_update sort squeeze stack
        tensor_buffer_to_list_of_tensors tensor_buffer_to_tensor tensor_scatter_nd_update
        tensor_to_tensor_buffer transpose
        where zeros zeros_like linalg profiler quantization random"""
    ),
    "oneflow.nn": (
        """BCELoss BCEWithLogitsLoss GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss
        MSELoss MarginRankingLoss PixelShuffle TripletMarginLoss"""
    ),
}

# Names of both APIs that need no switch: {name: why}. A test checks that COLLIDING and this list are
# complete.
SAME = {
    "Generator": "today's takes the same argument",
    "autograd": "today's functions are torch's, with other keyword names",
    "convert_oneflow_dtype_to_numpy_dtype": "same result",
    "default_generator": "today's is the generator itself",
    "device": "same objects",
    "distributed": "today's has the same functions",
    "dtypes": "same meaning",
    "env": "today's hands on to flow.env of job functions",
    "load": "today's; snapshots are read by flow.checkpoint.get",
    "math": "oneflow.math has both",
    "nn": "today's hands on to flow.nn of job functions; colliding classes are in COLLIDING",
    "optimizer": "oneflow.optimizer has the rules of 0.4, single_client's those of 0.5",
    "placement": "today's, in both",
    "record": "a marker without use",
    "save": "today's; snapshots are written by flow.checkpoint.save",
    "sbp": "today's, in both",
    "sysconfig": "same meaning",
    "tensor_buffer": "a marker without use in job functions",
    "typing": "re-exported",
    "unittest": "the same TestCase; it clears the session of job functions",
}

_homes: dict[str, str] | None = None


def home(name: str) -> str | None:
    """Return "module:name" of a public name, or None."""
    global _homes
    if _homes is None:
        homes: dict[str, str] = {}
        for module, names in NAMES.items():
            for item in names.split():
                public, _, inner = item.partition("=")
                if public in homes:
                    raise ImportError(f"legacy name {public} is bound twice: {homes[public]} and {module}")
                homes[public] = f"{module}:{inner or public}"
        for item in TORCH.split():
            public, _, inner = item.partition("=")
            homes[public] = f"torch:{inner or public}"
        _homes = homes
    return _homes.get(name)


def all_names() -> list[str]:
    home("")
    return list(_homes or ())


# `oneflow.python.<module>` of 0.2 to 0.4: the module of job functions that has its names ("" for the top
# level).
# Other modules forward to the top level.
PYTHON_HOMES = {
    "optimizer": "optimizer.up_to_0_4",
    "experimental": "experimental",
    "framework.config_util": "config",
    "framework.distribute": "distribute",
    "framework.env_util": "env",
    "framework.id_util": "util",
    "framework.scope_util": "scope",
    "framework.typing": "typing",
    "framework.unittest": "unittest",
    "lib.core": "util",
    "ops.data_ops": "data",
    "ops.layers": "layers",
    "ops.linalg": "linalg",
    "ops.math_ops": "math",
    "ops.nn_ops": "nn",
    "ops.optimizer": "optimizer.up_to_0_4",
    "ops.random_ops": "random",
    "ops.regularizer_util": "regularizers",
    "ops.summary_util": "summary",
    "ops.user_data_ops": "data",
    "summary": "summary",
    "test_utils": "unittest",
}
