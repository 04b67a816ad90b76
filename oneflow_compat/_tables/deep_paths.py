"""Deep import paths of OneFlow that only re-export and have no file in this package.

Paths are full names. A target is a path from `oneflow`, "module:name" of this package, or a name of torch,
`oneflow_autotest` or `builtins`.
"""


def _rows(target: str, names: str) -> str:
    """Return the rows of names that one module has: "a=target.a b=target.b"."""
    return " ".join(f"{name}={target}{name}" for name in names.split())


# path: the module of this package that it returns
SAME_MODULES = {
    f"oneflow.{path}": module
    for path, module in {
        "F": "_C",
        "_oneflow_internal._C": "_C",
        "_oneflow_internal.lazy_mode": "_lazy_mode",
        "compatible.single_client.experimental.F": "_C",
        "compatible.single_client.experimental.optim.lr_scheduler": "optim.lr_scheduler",
        "core.common.data_type_pb2": "_tables.data_type_numbers",
        "core.job.job_conf_pb2": "nn.graph.job_message.job_conf",
        "core.operator.op_conf_pb2": "nn.graph.job_message.op_conf",
        "core.record.record_pb2": "_data.record_messages",
        "experimental": "compatible.single_client.experimental",
        "framework.args_tree": "nn.graph.args_tree",
        "framework.config_util": "nn.graph.runtime_knobs",
        "framework.multi_client_session": "nn.graph.multi_client_session",
        "framework.scope_util": "nn.graph.scopes",
        "framework.sysconfig": "sysconfig",
        "nn.utils.parameters_grouping": "optim.parameters_grouping",
        "special.special_ops": "special",
        "typing": "compatible.single_client.typing",
        **{
            name: f"compatible.single_client.{name}"
            for name in "config data distribute image keras layers regularizers scope train".split()
        },
        "optimizer": "compatible.single_client.optimizer.up_to_0_4",
        **{
            f"optimizer.{name}": f"compatible.single_client.optimizer.{name}"
            for name in "grad_clipping loss_scale warmup".split()
        },
        "utils.tensor.from_or_to_torch_tensor": "utils.tensor",
        "utils.torch": "utils.tensor",
    }.items()
}

# package without a file: docstring
PACKAGES = {
    "oneflow.compatible.single_client.keras": "oneflow.keras of 0.1: activations and maths.",
    "oneflow.core": "oneflow.core: the protobuf messages that clients import by their deep paths.",
    "oneflow.core.common": "oneflow.core.common: the numbers of element types (data_type_pb2).",
    "oneflow.core.job": "oneflow.core.job: the configuration of jobs (job_conf_pb2).",
    "oneflow.core.operator": "oneflow.core.operator: the configuration of operators (op_conf_pb2).",
    "oneflow.core.record": "oneflow.core.record: OFRecord messages (record_pb2).",
    "oneflow.framework.docstr": "oneflow.framework.docstr: functions that set documentation.",
}

_HELPERS = "framework._helpers:"
_FRAMEWORK = {
    "attr_util": (
        "SetProtoMessageAttribute=nn.graph.runtime_knobs:SetProtoMessageAttribute"
        " get_nested_attribute=nn.graph.runtime_knobs:get_nested_attribute"
    ),
    "balanced_splitter": f"BalancedRanges={_HELPERS}BalancedRanges",
    "c_api_util": (
        "CurJobBuildAndInferCtx_SetJobConf=_oneflow_internal.jobs:CurJobBuildAndInferCtx_SetJobConf"
        " JobBuildAndInferCtx_Open=_oneflow_internal.jobs:JobBuildAndInferCtx_Open"
    ),
    "check_point_v2": (
        f"_broadcast_py_object={_HELPERS}_broadcast_py_object tensor_getstate={_HELPERS}tensor_getstate"
        " load=_files.serialization:load save=_files.serialization:save"
    ),
    "distribute": "split_sbp=sbp.split",
    "docstr.utils": f"add_docstr={_HELPERS}add_docstr reset_docstr={_HELPERS}reset_docstr",
    "dtype": _rows(
        _HELPERS,
        "convert_numpy_dtype_to_oneflow_dtype convert_oneflow_dtype_to_numpy_dtype"
        " convert_proto_dtype_to_oneflow_dtype dtypes",
    ),
    "env_util": f"HasAllMultiClientEnvVars={_HELPERS}HasAllMultiClientEnvVars",
    "function_util": "FunctionConfig oneflow_function_config=function_config",
    "generator": (
        "create_generator=_ops.core:Generator default_generator=torch.default_generator"
        " get_rng_state=torch.get_rng_state initial_seed=torch.initial_seed manual_seed=torch.manual_seed"
        " seed=torch.seed set_rng_state=torch.set_rng_state"
    ),
    "graph_build_util": f"lazy_mode=_oneflow_internal.lazy_mode scope_to_proto={_HELPERS}scope_to_proto",
    "id_util": f"UniqueStr={_HELPERS}UniqueStr",
    "session_context": " ".join(
        f"{name}=nn.graph.multi_client_session:{name}"
        for name in ("GetDefaultSession", "NewDefaultSession", "TryCloseDefaultSession")
    ),
    "tensor": (
        f"Tensor=torch.Tensor TensorTuple=builtins.list register_tensor_op={_HELPERS}register_tensor_op"
    ),
    "tensor_str": "set_printoptions",
    "tensor_tuple_util": f"convert_to_tensor_tuple={_HELPERS}convert_to_tensor_tuple",
    "type_tensor": (
        "BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor"
    ),
    "unittest": f"check_multi_rank_docstr={_HELPERS}check_multi_rank_docstr",
}
_INTERNAL = {
    # The exception classes of OneFlow's C++ module, and the Python or torch classes that replace them.
    "exception": (
        "CheckFailedException=_errors:OneFlowError Exception=builtins.Exception"
        " IndexError=builtins.IndexError NotImplementedError=builtins.NotImplementedError"
        " RuntimeError=builtins.RuntimeError TypeError=builtins.TypeError"
    ),
    # The build flags.
    "flags": (
        "cmake_build_type=sysconfig:cmake_build_type cuda_version=sysconfig:get_cuda_version"
        " with_cuda=sysconfig:with_cuda with_mlir=sysconfig:with_mlir with_rdma=sysconfig:with_rdma"
    ),
}
_NN_MODULES = {
    "all_reduce": "AllReduce=nn.modules.custom:AllReduce",
    "distributed_partial_fc_sample": (
        "DistributedPariticalFCSample=nn.modules.custom:DistributedPariticalFCSample"
    ),
    "interpolate": "Interpolate=nn.modules.custom:Interpolate interpolate=nn.functional.interpolate",
    "affine_grid": "affine_grid=nn.functional.affine_grid",
    "arange": "arange_op=arange",
    "argsort": "argsort_op=argsort",
    "argwhere": "argwhere_op=argwhere",
    "as_tensor": "as_tensor",
    "batchnorm_fused": (
        "FusedBatchNorm1d=nn.modules.fused:FusedBatchNorm1d"
        " FusedBatchNorm2d=nn.modules.fused:FusedBatchNorm2d"
        " FusedBatchNorm3d=nn.modules.fused:FusedBatchNorm3d"
    ),
    "broadcast_ops": "broadcast_shapes broadcast_tensors broadcast_to",
    "constant": (
        "ones_op=ones ones_like_op=ones_like zeros_op=zeros zeros_like_op=zeros_like full_op=full"
        " full_like_op=full_like new_ones_op=new_ones new_zeros_op=new_zeros new_full_op=new_full"
    ),
    "einsum": "einsum_op=einsum",
    "empty": "empty_op=empty empty_like_op=empty_like new_empty_op=new_empty",
    "expand": "expand_op=expand",
    "fake_quantization": "FakeQuantization=nn.modules.quantization:FakeQuantization",
    "fused_mlp": "FusedMLP=nn.modules.fused:FusedMLP",
    "global_cast": (
        "local_to_global_op=local_to_global global_to_global_op=global_to_global to_global_op=to_global"
        " to_local_op=to_local"
    ),
    "grid_sample": "grid_sample=nn.functional.grid_sample",
    "is_tensor": "is_tensor_op=is_tensor",
    "linspace": "linspace_op=linspace",
    "logspace": "logspace_op=logspace",
    "masked_select": "masked_select_op=masked_select",
    "math_ops": (
        "addmm addmm_op=addmm arcsin_op=asin asin_op=asin arcsinh_op=asinh asinh_op=asinh arctan_op=atan"
        " atan_op=atan fmod_op=fmod"
    ),
    "meshgrid": "meshgrid_op=meshgrid",
    "min_max_observer": "MinMaxObserver=nn.modules.quantization:MinMaxObserver",
    "moving_average_min_max_observer": (
        "MovingAverageMinMaxObserver=nn.modules.quantization:MovingAverageMinMaxObserver"
    ),
    "nms": "nms_op=nms",
    "nonzero": "nonzero_op=nonzero",
    "norm": "norm",
    "numel": "numel_op=numel",
    "reshape": "reshape_op=reshape view_op=view",
    "roll": "roll_op=roll",
    "scatter": "scatter scatter_add scatter_nd tensor_scatter_nd_update",
    "slice": "slice_op=slice slice_update_op=slice_update",
    "sparse_softmax_cross_entropy": "sparse_softmax_cross_entropy=nn.functional.sparse_softmax_cross_entropy",
    "tensor_buffer": (
        "tensor_buffer_to_tensor_op=tensor_buffer_to_tensor tensor_to_tensor_buffer gen_tensor_buffer"
    ),
    "tensordot": "tensordot",
    "trigonometric_ops": "sign_op=sign sinh_op=sinh tan_op=tan acosh_op=acosh arccosh_op=arccosh",
    "unique": "unique_op=unique",
    "where": "where_op=where",
}
_NN_FUNCTIONAL = {
    "deform_conv": "deform_conv2d",
    "functional_batch_norm": "batch_norm",
    "functional_deform_conv": "deform_conv2d",
    "functional_maxpool": (
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d max_pool2d max_pool3d"
    ),
    "functional_pad": "pad",
    "maxpool": "max_pool1d max_pool2d max_pool3d",
}
_EXPERIMENTAL = "compatible.single_client.experimental._functions:"
_HARNESS = "test_utils.automated_test_util:"
_HARNESS_HELPERS = "test_utils.automated_test_util._helpers:"
_AUTOTEST = {
    "generators": " ".join(
        [
            _rows(
                _HARNESS,
                "all_cpu_placement all_cuda_placement all_placement all_sbp choice_pytorch_tensor"
                " constant cpu_device gpu_device nothing oneof random random_bool"
                " random_cpu_placement random_device random_gpu_placement random_or_nothing"
                " random_placement random_pytorch_dtype random_pytorch_tensor random_sbp",
            ),
            _rows("oneflow_autotest.generators.", "Nothing add generator mul neg pack py_tuple tuple"),
            f"convert_torch_object_to_flow={_HARNESS_HELPERS}convert_torch_object_to_flow",
            f"rng={_HARNESS_HELPERS}rng",
        ]
    ),
    "global_scope": (
        "GlobalScope=oneflow_autotest.placement.GlobalScope is_global=oneflow_autotest.placement.is_global"
    ),
    "profiler": " ".join(
        [
            f"profile={_HARNESS}profile",
            _rows(
                "oneflow_autotest.profiler.",
                "ProfResult compose profile_dual_object profiled_framework set_hardware_info_list"
                " set_profiler_hook",
            ),
        ]
    ),
    "torch_flow_dual_object": " ".join(
        [
            _rows(_HARNESS, "autotest choice_tensor globaltest random_dtype random_tensor torch"),
            _rows(
                "oneflow_autotest.errors.",
                "BothDoNotSupportError OneFlowGraphBuildOrRunError PyTorchDoesNotSupportError",
            ),
            "DualObject=oneflow_autotest.dual.Dual",
            f"GetDualObject={_HARNESS_HELPERS}GetDualObject",
            f"check_equality={_HARNESS_HELPERS}check_equality",
            f"torch_tensor_to_flow={_HARNESS_HELPERS}torch_tensor_to_flow",
        ]
    ),
    "util": f"broadcast={_HARNESS_HELPERS}broadcast",
}
_LEGACY = {
    "advanced": " ".join(
        f"distribute_{name}=compatible.single_client.distribute:distribute_{name}"
        for name in ("add", "clone", "concat", "map", "split")
    ),
    "autograd.autograd": (
        "backward=compatible.single_client.autograd:backward grad=compatible.single_client.autograd:grad"
    ),
    "autograd.autograd_mode": "no_grad=torch.no_grad",
    "distributed": (
        "get_local_rank=_processes:get_local_rank get_rank=_processes:get_rank"
        " get_world_size=_processes:get_world_size"
        " is_multi_client=compatible.single_client._jobs.session:is_multi_client"
    ),
    "experimental.indexed_slices_ops": f"indexed_slices_reduce_sum={_EXPERIMENTAL}indexed_slices_reduce_sum",
    "experimental.interface_op_read_and_write": _rows(
        _EXPERIMENTAL,
        "FeedValueToInterfaceBlob FeedValueToInterfaceBlobObject GetEagerInterfaceBlob"
        " GetInterfaceBlobValue sync_default_session_if_normal",
    ),
    "experimental.namescope": (
        f"deprecated_name_scope={_EXPERIMENTAL}name_scope"
        " name_scope=compatible.single_client.scope:namespace "
        + _rows(
            _EXPERIMENTAL,
            "GetJobNameScopePrefix PrependOpNamePrefixIfNeed name_scope_stack_pop name_scope_stack_push",
        )
    ),
    "experimental.scope": f"config={_EXPERIMENTAL}scope_config",
    "experimental.square_sum_op": f"square_sum={_EXPERIMENTAL}square_sum",
    "experimental.ssp_variable_proxy_op": f"ssp_variable_proxy={_EXPERIMENTAL}ssp_variable_proxy",
    "experimental.typing_check": (
        f"api_enable_typing_check={_EXPERIMENTAL}enable_typing_check"
        f" enable_typing_check={_EXPERIMENTAL}enable_typing_check"
    ),
    "experimental.unique_op": f"unique_with_counts={_EXPERIMENTAL}unique_with_counts",
    "keras.activations": (
        "relu=compatible.single_client._functions.keras:relu "
        + _rows("compatible.single_client.math:", "gelu gelu_grad sigmoid tanh tanh_grad")
    ),
    "keras.maths": "add=compatible.single_client.math:add",
    "linalg": "matmul=compatible.single_client._functions.array:matmul",
    "losses": "add_loss=compatible.single_client.optimizer._from_conf:add_loss",
    "nn.module": "Module=torch.nn.Module",
    "nn.parameter": "Parameter=torch.nn.Parameter",
    "sbp": "broadcast=sbp:broadcast partial_sum=sbp:partial_sum split=sbp:split",
    "serving.saved_model_builder": _rows(
        "compatible.single_client.saved_model:",
        "GetInterfaceBlobConf GraphBuilder Lbi2Lbn Lbn2Lbi ModelBuilder SignatureBuilder",
    ),
    "sysconfig": _rows(
        "sysconfig:",
        "get_compile_flags get_cuda_version get_include get_lib get_link_flags"
        " has_rpc_backend_grpc has_rpc_backend_local with_cuda with_xla",
    ),
    "system": "assign=compatible.single_client._jobs.variables:assign_of_system",
    "tensorrt": _rows(
        "compatible.single_client._jobs.function_config:", "cache_int8_calibration write_int8_calibration"
    ),
    "util": f"unique_str={_HELPERS}UniqueStr UniqueStr={_HELPERS}UniqueStr",
    "vm": "",  # OneFlow's instruction scheduler had no public names
}
# module: "name=target name ..."; a name without a target is the same name of `oneflow`
NAMES = {
    **{f"oneflow.framework.{name}": row for name, row in _FRAMEWORK.items()},
    **{f"oneflow._oneflow_internal.{name}": row for name, row in _INTERNAL.items()},
    **{f"oneflow.test_utils.automated_test_util.{name}": row for name, row in _AUTOTEST.items()},
    **{f"oneflow.nn.modules.{name}": row for name, row in _NN_MODULES.items()},
    **{f"oneflow.compatible.single_client.{name}": row for name, row in _LEGACY.items()},
    **{
        f"oneflow.nn.functional.{path}": " ".join(f"{name}=nn.functional.{name}" for name in names.split())
        for path, names in _NN_FUNCTIONAL.items()
    },
    "oneflow.autograd.autograd": _rows("autograd.", "backward grad"),
    "oneflow.autograd.autograd_function": (
        "Function=autograd.Function FunctionCtx=torch.autograd.function.BackwardCFunction"
    ),
    "oneflow.autograd.autograd_mode": _rows(
        "autograd.", "enable_grad inference_mode is_grad_enabled no_grad set_grad_enabled"
    ),
    "oneflow.nn.module": "Module=torch.nn.Module",
    "oneflow.nn.graph.cache": "GraphCache=nn.graph.graph_internals:GraphCache",
    "oneflow.nn.parallel.ddp": "DistributedDataParallel=nn.parallel.distributed:DistributedDataParallel",
    "oneflow.profiler.util": "format_time=profiler.events:format_time",
    "oneflow.unittest.dataset": "dataset_dir=unittest.cases:dataset_dir",
    "oneflow.unittest.mlir": "MLIRTestCase=unittest.cases:MLIRTestCase",
    "oneflow.utils.data.decorator": (
        "functional_datapipe=torch.utils.data.functional_datapipe"
        " guaranteed_datapipes_determinism=torch.utils.data.guaranteed_datapipes_determinism"
        " non_deterministic=torch.utils.data.non_deterministic"
    ),
}
