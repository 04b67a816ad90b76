"""Every private name of torch that this package relies on: one row for each symbol.

`tests/core/test_torch_private.py` checks that each symbol exists in the installed torch, and that the sources
use no private name without a row. A symbol is a dotted path through modules to a function, class or value, or
to a private attribute of a class. The table is one file, because a maintainer who upgrades torch reads it
from top to bottom.
"""

import dataclasses

GRAPHS = "nn.Graph"
INDUCTOR = "the inductor backend"
OPTIM = "oneflow.optim"
SPEED = "speed"
SETTING = "a setting"


@dataclasses.dataclass(frozen=True)
class Hook:
    """The purpose of a private name, the test that guards it, and what ends without the name.

    `needed_by`: GRAPHS, INDUCTOR or OPTIM end with one error, which missing.py raises. SPEED: everything
    works, but slower. SETTING: the public function of torch is asked, or the guard is left out. "": only what
    the purpose says. `since`: the first torch that has the name, if the oldest supported one lacks it.
    """

    purpose: str
    guard: str
    needed_by: str = ""
    since: str = ""

    @property
    def consequence(self) -> str:
        """The consequence of a missing name."""
        if self.needed_by == SPEED:
            return "it takes longer"
        if self.needed_by == SETTING:
            return "torch's public function is asked instead, or a change is not noticed"
        return f"{self.needed_by or 'this'} does not work"


# module or class, its names, purpose, guard, and what needs the names
_ROWS: tuple[tuple[str, ...], ...] = (
    (
        "torch.serialization",
        "_get_layout",
        "read the layouts that torch's files name",
        "tests/files/test_allow.py",
    ),
    (
        "torch._utils",
        "_rebuild_wrapper_subclass",
        "a name in torch's files and in saved graphs",
        "tests/files/test_allow.py",
    ),
    (
        "torch",
        "_debug_has_internal_overlap",
        "writes of a compiled region that leave what is still read",
        "tests/graph/backends/test_in_place_writes.py",
        GRAPHS,
    ),
    ("torch", "_tensor", "a name in torch's files", "tests/files/test_allow.py"),
    ("torch", "_neg_view", "a saved tensor with the neg bit", "tests/files/test_allow.py"),
    ("torch", "_assert_async", "a check of values that a program runs", "tests/graph/capture/test_checks.py"),
    ("torch", "_mkldnn", "the name of a layout in a file", "tests/files/test_allow.py"),
    (
        "torch",
        "_empty_affine_quantized _empty_per_channel_affine_quantized",
        "quantized tensors of a file",
        "tests/files/test_allow.py",
    ),
    ("torch", "_nested_view_from_buffer", "nested tensors of a file", "tests/files/test_allow.py"),
    (
        "torch._subclasses.fake_tensor",
        (
            "DataDependentOutputException DynamicOutputShapeException FakeTensor FakeTensorMode"
            " in_kernel_invocation_manager torch_decomp_decompositions"
        ),
        "symbolic tensors while build() is captured",
        "tests/graph/capture/test_semantics.py",
        GRAPHS,
    ),
    (
        "torch._subclasses.fake_tensor",
        "unset_fake_temporarily",
        "symbolic tensors while build() is captured",
        "tests/graph/capture/test_semantics.py",
        INDUCTOR,
    ),
    (
        "torch._subclasses.fake_impls",
        "has_meta op_implementations_checks",
        "which operators need more than their meta kernel for symbolic results",
        "tests/graph/capture/test_known_results.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_DisableTorchDispatch",
        "creating a symbolic tensor and its inner meta tensor",
        "tests/graph/capture/test_known_results.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_set_throw_on_mutable_data_ptr _set_warn_deprecated_on_mutable_data_ptr",
        "creating a symbolic tensor and its inner meta tensor",
        "tests/graph/capture/test_known_results.py",
        SPEED,
    ),
    (
        "torch.Tensor",
        "_use_count",
        "whether a DLPack capsule knows the address of a computed tensor",
        "tests/core/test_tensor_table.py",
    ),
    (
        "torch.Tensor",
        "_make_subclass",
        "creating a symbolic tensor without the checks of its constructor",
        "tests/graph/capture/test_known_results.py",
        SPEED,
    ),
    (
        "torch.utils._python_dispatch",
        "TorchDispatchMode _disable_current_modes _get_current_dispatch_mode",
        "the dispatch mode that records ATen calls, and creating tensors outside of it",
        "tests/graph/capture/test_semantics.py",
        GRAPHS,
    ),
    (
        "torch.utils._pytree",
        "SERIALIZED_TYPE_TO_PYTHON_TYPE SUPPORTED_SERIALIZED_TYPES treespec_dumps",
        "nested inputs and outputs",
        "tests/graph/capture/test_semantics.py",
    ),
    (
        "torch.utils._pytree",
        (
            "SUPPORTED_NODES TreeSpec _private_register_pytree_node tree_flatten tree_leaves tree_map"
            " tree_map_only tree_structure tree_unflatten"
        ),
        "nested inputs and outputs",
        "tests/graph/capture/test_semantics.py",
        GRAPHS,
    ),
    (
        "torch.utils._pytree",
        "_LEAF_SPEC _get_node_type tree_is_leaf",
        "nested inputs and outputs",
        "tests/graph/capture/test_semantics.py",
        SPEED,
    ),
    (
        "torch._C",
        "DisableTorchFunction",
        "reading a tensor below __torch_function__",
        "tests/graph/capture/test_semantics.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_storage_Use_Count",
        "whether a computed tensor may be laid out anew for a view",
        "tests/core/test_tensor_table.py",
    ),
    (
        "torch._C",
        "_swap_tensor_impl",
        "a fake tensor becomes a real one, or the parameter of another dtype, in place",
        "tests/graph/capture/test_survivors.py",
    ),
    (
        "torch._C._dynamo.guards",
        "GlobalStateGuard",
        "one comparison of several settings of torch before a call",
        "tests/graph/guards/test_torch_settings.py",
        SPEED,
    ),
    (
        "torch._C._dynamo.guards",
        "TensorGuards",
        "one comparison of the shapes, strides and dtypes of all named tensors before a call",
        "tests/graph/guards/test_stale_state.py",
        SPEED,
    ),
    (
        "torch._C",
        "_len_torch_dispatch_stack",
        "remove dispatch modes that an interrupted capture left on",
        "tests/graph/capture/test_interrupted_capture.py",
        GRAPHS,
    ),
    (
        "torch.utils._python_dispatch",
        "_pop_mode",
        "remove dispatch modes that an interrupted capture left on",
        "tests/graph/capture/test_interrupted_capture.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_len_torch_function_stack _pop_torch_function_stack _push_on_torch_function_stack",
        "a function mode handles tensor indices and is not recorded",
        "tests/graph/capture/test_torch_op_calls.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_get_function_stack_at",
        "the caller's function modes are guarded",
        "tests/graph/guards/test_hostile_torch.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "ConcreteModuleType ScriptMethod ScriptModule ScriptObject",
        "attributes of script modules are guarded",
        "tests/graph/guards/test_script_modules.py",
    ),
    (
        "torch._tensor_str",
        "_str",
        "the text of a tensor reads its values",
        "tests/graph/guards/test_hostile_texts.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_after_ADInplaceOrView_keyset",
        "CUDA kernels with atomics raise torch's alert under deterministic algorithms",
        "tests/ops/test_ops_gpu.py",
    ),
    (
        "torch._C",
        "OptionalType",
        "operator arguments of saved graphs are checked against schemas",
        "tests/files/test_hostile_graphs.py",
    ),
    (
        "torch._C",
        "_dispatch_find_schema_or_throw",
        "whether an operator of a saved graph is registered",
        "tests/files/test_hostile_graphs.py",
    ),
    (
        "torch._C",
        "_get_privateuse1_backend_name",
        "whether the private backend can be renamed to OneFlow's mock device",
        "tests/core/test_refused_arguments.py",
    ),
    (
        "torch",
        "_register_device_module",
        "the error of a tensor on the mock device",
        "tests/core/test_refused_arguments.py",
    ),
    (
        "torch._C",
        "_increment_version",
        "telling autograd which tensors a program wrote",
        "tests/graph/capture/test_semantics.py",
        GRAPHS,
    ),
    (
        "torch.Tensor",
        "_nnz",
        "the number of elements of a sparse tensor is unknown to a program",
        "tests/graph/capture/test_sparse_tensors.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_AutoDispatchBelowAutograd",
        "running a program below autograd",
        "tests/graph/training/test_bitwise.py",
        GRAPHS,
    ),
    (
        "torch._C._autograd",
        "_top_saved_tensors_default_hooks",
        "hooks of saved tensors around a call are part of the guards",
        "tests/graph/guards/test_hostile_inputs.py",
        SETTING,
    ),
    (
        "torch._C._autograd",
        "_profiler_enabled",
        "named regions of a call while a profiler runs",
        "tests/graph/calls/test_profiled.py",
    ),
    (
        "torch._higher_order_ops",
        "flex_attention",
        "flex_attention in plain operators",
        "tests/graph/capture/test_torch_op_calls.py",
    ),
    (
        "torch._C",
        "DispatchKey",
        "recording the operators inside a kernel (affine_grid under autocast)",
        "tests/graph/calls/test_contexts.py",
    ),
    (
        "torch._C",
        (
            "_get_deterministic_algorithms _get_deterministic_algorithms_warn_only"
            " _get_float32_matmul_precision _get_flash_sdp_enabled _get_math_sdp_enabled"
            " _get_mem_efficient_sdp_enabled _get_mkldnn_enabled"
        ),
        "settings of torch that a program depends on, read in each call",
        "tests/graph/guards/test_torch_settings.py",
        SETTING,
    ),
    (
        "torch.backends.mha",
        "_is_fastpath_enabled",
        "a setting that a program depends on, read in each call",
        "tests/graph/guards/test_torch_settings.py",
        SETTING,
    ),
    (
        "torch.utils._device",
        "CURRENT_DEVICE",
        "a setting that a program depends on, read in each call",
        "tests/graph/guards/test_torch_settings.py",
        SETTING,
    ),
    (
        "torch._C",
        "_DisableAutocast _is_any_autocast_enabled",
        "autocast around a call adds no casts to the program",
        "tests/graph/calls/test_contexts.py",
        GRAPHS,
    ),
    (
        "torch._ops",
        "OpOverload",
        "the targets of a program's nodes",
        "tests/graph/saved/test_deploy.py",
        GRAPHS,
    ),
    (
        "torch",
        "_amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_",
        "loss scaling inside a program",
        "tests/graph/training/test_scaler_amp_recompute.py",
    ),
    (
        "torch.autograd.Variable",
        "_execution_engine",
        "gradients are averaged when backward() ends",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.autograd",
        "_engine_run_backward",
        "capturing backward()",
        "tests/graph/training/test_train.py",
        GRAPHS,
    ),
    (
        "torch._dynamo",
        "eval_frame",
        "disabling torch.compile while build() is captured",
        "tests/graph/test_fuzz_regressions.py",
    ),
    (
        "torch._C._dynamo",
        "eval_frame",
        "torch.compile of surrounding code calls a graph as an opaque function",
        "tests/graph/calls/test_contexts.py",
    ),
    (
        "torch.utils.checkpoint",
        "_checkpoint_without_reentrant_generator",
        "recompute activations in the backward of a program",
        "tests/graph/training/test_scaler_amp_recompute.py",
        GRAPHS,
    ),
    (
        "torch._functorch",
        "eager_transforms",
        "linearize() inside build()",
        "tests/graph/capture/test_transforms.py",
    ),
    (
        "torch.fx.experimental.proxy_tensor",
        "_MakefxTracer",
        "make_fx inside build() is an error",
        "tests/graph/capture/test_transforms.py",
        GRAPHS,
    ),
    (
        "torch.utils._sympy.functions",
        "FloorDiv",
        "arithmetic with sizes that depend on values",
        "tests/graph/sizes/test_unknown_sizes.py",
    ),
    (
        "torch.utils._sympy.interp",
        "sympy_interp",
        "arithmetic with sizes that depend on values",
        "tests/graph/sizes/test_unknown_sizes.py",
    ),
    (
        "torch.utils._sympy.printers",
        "PythonPrinter",
        "guards on the sizes of arguments, as Python",
        "tests/graph/sizes/test_dynamic_dimensions.py",
    ),
    (
        "torch.utils._sympy.reference",
        "PythonReferenceAnalysis",
        "arithmetic with sizes that depend on values",
        "tests/graph/sizes/test_unknown_sizes.py",
    ),
    (
        "torch.utils._sympy.symbol",
        "SymT symbol_is_type",
        "errors of indices out of bounds in loops that threads share",
        "tests/graph/backends/test_index_bounds.py",
    ),
    (
        "torch._C",
        "_EnablePythonDispatcher",
        "symbolic shapes of results; before torch 2.13 also gradient formulas",
        "tests/graph/sizes/test_dynamic_dimensions.py",
    ),
    (
        "torch._C",
        "_DisablePythonDispatcher",
        "recomputation runs the same operators as the first run",
        "tests/graph/sizes/test_unknown_sizes.py",
    ),
    (
        "torch",
        "_check",
        "sizes that depend on values and must be equal",
        "tests/graph/sizes/test_unknown_sizes.py",
    ),
    (
        "torch._C",
        "_nn",
        "calling operators in a program without torch.ops",
        "tests/graph/passes/test_direct_calls.py",
        SPEED,
    ),
    (
        "torch._C._nn",
        "gelu silu leaky_relu hardtanh max_pool2d_with_indices avg_pool2d",
        "calling functions of torch.nn in a program without torch.ops",
        "tests/graph/passes/test_direct_calls.py",
        SPEED,
    ),
    (
        "torch",
        "_adaptive_avg_pool2d _log_softmax _scaled_dot_product_flash_attention_for_cpu _softmax",
        "calling operators in a program without torch.ops",
        "tests/graph/passes/test_direct_calls.py",
        SPEED,
    ),
    (
        "torch._C._nn",
        "linear scaled_dot_product_attention",
        "functions of torch.nn on sizes that depend on values",
        "tests/graph/sizes/test_unknown_sizes.py",
    ),
    (
        "torch._C._nn",
        "one_hot pad_sequence",
        "functions of torch.nn on sizes that depend on values",
        "tests/graph/sizes/test_unknown_sizes.py",
        GRAPHS,
    ),
    (
        "torch",
        "_VF",
        "recurrent layers inside a program",
        "tests/graph/backends/test_inductor_steps.py",
        GRAPHS,
    ),
    (
        "torch._VF",
        "_pad_packed_sequence broadcast_tensors",
        "recurrent layers inside a program",
        "tests/graph/backends/test_inductor_steps.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_dispatch_key_for_device",
        "whether an operator of a saved program has a kernel for the device",
        "tests/graph/backends/test_cuda_paths.py",
    ),
    (
        "torch",
        "_cudnn_rnn",
        "recurrent layers on a GPU inside a program",
        "tests/graph/backends/test_cuda_paths.py",
    ),
    (
        "torch",
        "_cudnn_init_dropout_state",
        "dropout of recurrent layers on a GPU",
        "tests/graph/test_graph_gpu.py",
    ),
    (
        "torch.utils._foreach_utils",
        "_foreach_supported_types",
        "clipping symbolic gradients on a GPU with multi-tensor kernels",
        "tests/graph/test_graph_gpu.py",
        GRAPHS,
    ),
    (
        "torch.nn.modules.batchnorm",
        "_BatchNorm",
        "batch norm with a cumulative average",
        "tests/graph/calls/test_values_and_structures.py",
        GRAPHS,
    ),
    (
        "torch.distributed.tensor._sharding_prop",
        "ShardingPropagator",
        "keeping DTensor's search for rules out of the program",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.distributed.tensor.DTensor",
        "_op_dispatcher",
        "DTensor's rules of an operator, also on a rank without data",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.distributed.distributed_c10d",
        "_get_default_store",
        "ranks leave notes about a failure for the others",
        "tests/fuzz/fuzz_ranks.py",
    ),
    (
        "torch.distributed.distributed_c10d",
        "_resolve_process_group",
        "the ranks of a collective that a program with pipeline stages records",
        "tests/ranks/test_pipelines.py",
    ),
    (
        "torch.distributed.ProcessGroup",
        "_get_sequence_number_for_group",
        "counting collectives, so that ranks can compare them",
        "tests/fuzz/fuzz_ranks.py",
    ),
    (
        "torch.distributed",
        "_functional_collectives",
        "collectives that a program records",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.distributed._functional_collectives",
        "AsyncCollectiveTensor all_reduce broadcast wait_tensor",
        "collectives that a program records",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.ops._c10d_functional",
        "all_gather_into_tensor_coalesced wait_tensor",
        "gathering parameters in buckets, and waiting for what pipeline stages send",
        "tests/ranks/test_ranks.py",
        GRAPHS,
    ),
    (
        "torch._inductor",
        "aoti_compile_and_package",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
    ),
    (
        "torch._inductor",
        "config",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.codegen.common",
        "DtypePropagationOpsHandler",
        "compiling a region faster",
        "tests/graph/backends/test_inductor.py",
        SPEED,
    ),
    (
        "torch._inductor.codecache",
        "CppWrapperCodeCache CppWrapperCodeCache.load_async",
        "compiling a region faster",
        "tests/graph/backends/test_inductor.py",
        SPEED,
    ),
    (
        "torch._inductor.codegen.cpp_wrapper_cpu",
        "CppWrapperCpu CppWrapperCpu.generate_fallback_kernel_with_runtime_lookup_python",
        "operators that return a list",
        "tests/graph/capture/test_written_lists.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.loop_body",
        "LoopBody LoopBody.get_read_expr",
        "buffers that a program writes and reads",
        "tests/graph/backends/test_inductor_semantics.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.codegen.cpp",
        "CppKernel KernelGroup",
        "errors of indices out of bounds in loops that threads share",
        "tests/graph/backends/test_index_bounds.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.codegen.cpp",
        "CppKernelProxy",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.codegen.cpp",
        "stride_at_vec_range",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        SPEED,
    ),
    (
        "torch._inductor.compile_fx",
        "compile_fx_inner",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.compile_fx",
        "fake_tensor_prop",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        SPEED,
    ),
    (
        "torch._inductor.config",
        "cpp_wrapper layout_optimization patch",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
    ),
    (
        "torch._inductor.cpp_builder",
        "get_cpp_compiler is_gcc",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        SPEED,
    ),
    (
        "torch._inductor.cpu_vec_isa",
        "VecISA",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        SPEED,
    ),
    (
        "torch._inductor.cpu_vec_isa",
        "pick_vec_isa",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.custom_graph_pass",
        "CustomGraphPass get_hash_for_files",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.decomposition",
        "select_decomp_table",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.dependencies",
        "MemoryDep StarDep WeakDep extract_read_writes",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.fx_passes.joint_graph",
        "joint_graph_passes",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.fx_passes.post_grad",
        "noop_registry",
        "writes of a compiled region that leave what is still read",
        "tests/graph/backends/test_in_place_writes.py",
    ),
    (
        "torch._inductor.fx_passes.post_grad",
        "reinplace_inplaceable_ops",
        "writes of a compiled region that leave what is still read",
        "tests/graph/backends/test_in_place_writes.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.fx_passes.reinplace",
        "compute_overlapping_tensors graph_call_function inplaceable_ops",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.fx_utils",
        "get_node_storage",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._C",
        "default_generator",
        "the kernel that is asked for the error of a call",
        "tests/graph/capture/test_kernel_errors.py",
    ),
    (
        "torch._inductor.graph",
        "GraphLowering",
        "compiling a program's region",
        "tests/graph/backends/test_in_place_writes.py",
        INDUCTOR,
    ),
    (
        "torch.ops.aten",
        "_assert_async",
        "a check of values that a program runs",
        "tests/graph/backends/test_index_bounds.py",
        GRAPHS,
    ),
    (
        "torch._inductor.ir",
        (
            "Buffer ComputedBuffer FallbackKernel FlexibleLayout InplaceBernoulliFallback MultiOutputLayout"
            " MutationLayoutSHOULDREMOVE MutationOutput NoneLayout"
            " TensorBox try_get_name"
        ),
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.lowering",
        "fallback_handler fallbacks lowerings",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
    ),
    (
        "torch._inductor.lowering",
        "index_put_impl_",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.codegen.cpp",
        "CppVecOverrides",
        "making the table of vector operations once",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch.fx._lazy_graph_module",
        "_use_lazy_graph_module",
        "not writing code for graphs that nothing runs",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._inductor.fx_utils",
        "_is_fake_tensor_same",
        "computing the fake tensors of changed nodes only",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._decomp.decompositions",
        "_broadcast_batch_norm_backward _unsqueeze_to_dim",
        "adding the dimensions of an image in one view",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch.distributed._functional_collectives",
        "_are_we_tracing",
        "collectives that a program records",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch._inductor.fx_utils",
        "FakeTensorUpdater get_fake_args_kwargs",
        "computing the fake tensors of changed nodes only",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._C",
        "_has_storage",
        "computing the fake tensors of changed nodes only",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._decomp",
        "decompositions",
        "adding the dimensions of an image in one view",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._inductor.codegen.common",
        "KernelTemplate jinja2_env",
        "not translating the templates of GPU kernels at the import",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._inductor",
        "lowering",
        "importing inductor without the templates of GPU kernels",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._inductor.ir",
        "ExternKernel ExternKernel.codegen_size_asserts",
        "results of kernels in the layout that compiled code assumes",
        "tests/graph/backends/test_kernel_results.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.codegen.cpp",
        "CppVecKernel",
        "storing a sum of half type into several buffers",
        "tests/graph/backends/test_inductor_special_values.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.codegen.common",
        "DeferredLine",
        "storing a sum of half type into several buffers",
        "tests/graph/backends/test_inductor_special_values.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.exc",
        "CppCompileError",
        "compiling code that the quick flags do not suit in inductor's way",
        "tests/graph/backends/test_inductor_shortcuts.py",
        SPEED,
    ),
    (
        "torch._inductor.scheduler",
        "Scheduler SchedulerNode",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._inductor.virtualized",
        "V",
        "compiling a program's region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch.ops.aten",
        "_native_batch_norm_legit",
        "batch norm whose schema says that it writes the running statistics",
        "tests/graph/backends/test_inductor_semantics.py",
    ),
    (
        "torch._functorch.compile_utils",
        "fx_graph_cse rand_ops",
        "common subexpressions of a region",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._C._aoti",
        "alloc_tensors_by_stealing_from_void_ptrs unsafe_alloc_void_ptrs_from_tensors",
        "handing tensors to the library of a compiled region",
        "tests/graph/backends/test_program_cache.py",
    ),
    (
        "torch._C._dynamo.guards",
        "_torchinductor_pyobject_tensor_data_ptr",
        "the address that the library of a compiled region reads when it is loaded",
        "tests/graph/backends/test_program_cache.py",
    ),
    (
        "torch.utils._config_module",
        "_UNSET_SENTINEL",
        "finding the inductor options that the user changed",
        "tests/graph/backends/test_program_cache.py",
        INDUCTOR,
    ),
    (
        "torch._guards",
        "detect_fake_mode",
        "whether a tensor is traced, which user code gets eager's answer for",
        "tests/graph/capture/test_traced_questions.py",
        GRAPHS,
    ),
    (
        "torch._subclasses.fake_tensor",
        "is_fake",
        "whether a tensor is traced, which user code gets eager's answer for",
        "tests/graph/capture/test_traced_questions.py",
        GRAPHS,
    ),
    (
        "torch.overrides",
        "_get_current_function_mode _get_current_function_mode_stack",
        "whether a tensor is traced, which user code gets eager's answer for",
        "tests/graph/capture/test_traced_questions.py",
        GRAPHS,
    ),
    (
        "torch.utils._python_dispatch",
        "_get_current_dispatch_mode_stack",
        "whether a tensor is traced, which user code gets eager's answer for",
        "tests/graph/capture/test_traced_questions.py",
        GRAPHS,
    ),
    (
        "torch._guards",
        "GuardSource Source",
        "the tracing context that inductor expects",
        "tests/graph/backends/test_auto_backend.py",
    ),
    (
        "torch._guards",
        "TracingContext tracing",
        "the tracing context that inductor expects",
        "tests/graph/backends/test_auto_backend.py",
        INDUCTOR,
    ),
    (
        "torch._decomp",
        "decomposition_table meta_table",
        "torch's own decompositions, reused inside ours; which operators have a meta kernel in Python",
        "tests/graph/backends/test_inductor_semantics.py",
        GRAPHS,
    ),
    (
        "torch._decomp.decompositions",
        (
            "_compute_upsample_nearest_indices _upsample_linear _upsample_nearest gather_params matmul"
            " mkldnn_one_layer_lstm multi_margin_loss one_layer_lstm upsample_bicubic2d_default"
        ),
        "torch's own decompositions, reused inside ours",
        "tests/graph/backends/test_inductor_semantics.py",
    ),
    (
        "torch._C",
        "SymIntType",
        "sizes among the arguments of an operator",
        "tests/graph/backends/test_inductor_semantics.py",
    ),
    (
        "torch",
        (
            "_foreach_add _foreach_add_ _foreach_addcdiv_ _foreach_addcmul _foreach_addcmul_"
            " _foreach_div _foreach_div_ _foreach_lerp_ _foreach_mul _foreach_mul_ _foreach_sqrt"
            " _foreach_sqrt_ _foreach_sub_"
        ),
        "multi-tensor optimizer updates",
        "tests/optim/test_optim_golden.py",
    ),
    (
        "torch",
        "_disable_dynamo",
        "step() stays eager under torch.compile",
        "tests/optim/test_optim_api.py",
        OPTIM,
    ),
    (
        "torch.optim.SGD",
        "_init_group",
        "the state of our SGD on torch's kernels",
        "tests/optim/test_optim_golden.py",
        OPTIM,
    ),
    (
        "torch.optim.Adam",
        "_init_group",
        "the state of our Adam on torch's kernels",
        "tests/optim/test_optim_golden.py",
        OPTIM,
    ),
    (
        "torch.amp.GradScaler",
        "_maybe_opt_step _lazy_init_scale_growth_tracker",
        "the step that a GradScaler may skip, and its scale, in a compiled step",
        "tests/graph/training/test_compiled_steps.py",
        GRAPHS,
    ),
    (
        "torch.optim.Optimizer",
        "_patch_step_function",
        "profiling and hooks around step()",
        "tests/optim/test_optim_steps.py",
        OPTIM,
    ),
    (
        "torch.optim.lr_scheduler",
        "_LRScheduler",
        "torch's older name of the class",
        "tests/optim/test_lr_scheduler.py",
    ),
    (
        "torch._jit_internal",
        "_get_fn_overloads _qualified_name boolean_dispatched",
        "functions that TorchScript selects by a flag",
        "tests/clients/test_pytorch_script.py",
    ),
    (
        "torch.jit._builtins",
        "_get_builtin_table",
        "operators that TorchScript recognizes by identity",
        "tests/clients/test_pytorch_script.py",
    ),
    (
        "torch.jit._script",
        "_get_overloads",
        "overloads that TorchScript selects by argument types",
        "tests/clients/test_pytorch_script.py",
    ),
    (
        "torch.jit._state",
        "_script_classes _set_jit_overload_cache",
        "oneflow.device as an annotation",
        "tests/clients/test_pytorch_script.py",
    ),
    ("torch._C", "DeviceObjType", "oneflow.device as an annotation", "tests/clients/test_pytorch_script.py"),
    (
        "torch._C",
        "DisableTorchFunctionSubclass",
        "one-rank global tensors",
        "tests/core/test_global_one_rank.py",
    ),
    (
        "torch.Tensor",
        "_make_wrapper_subclass",
        "the class of global tensors of several ranks",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.utils._mode_utils",
        "no_dispatch",
        "changing the shape of a global tensor in place together with its DTensor",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch._C",
        "_disabled_torch_function_impl",
        "the class of global tensors of several ranks",
        "tests/ranks/test_ranks.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_current_graph_task_id",
        "whether a call comes from backward()",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.ops.aten",
        "_local_scalar_dense",
        "reading a scalar of a global tensor of several ranks",
        "tests/ranks/test_ranks.py",
        GRAPHS,
    ),
    (
        "torch._prims_common",
        "compute_elementwise_output_strides",
        "the layout of results of kernels",
        "tests/graph/capture/test_known_results.py",
    ),
    (
        "torch._prims_common",
        "is_contiguous_or_false make_contiguous_strides_for suggest_memory_format",
        "the layout of results of kernels",
        "tests/graph/capture/test_known_results.py",
        GRAPHS,
    ),
    (
        "torch._C._functorch",
        "_wrap_functional_tensor maybe_current_level",
        "constants of a region inside functionalize",
        "tests/graph/backends/test_inductor_semantics.py",
    ),
    (
        "torch._C._functorch",
        "get_unwrapped",
        "the memory of a tensor under vmap and grad",
        "tests/graph/capture/test_written_views.py",
    ),
    (
        "torch._C._functorch",
        "is_functorch_wrapped_tensor",
        "whether a tensor is one of vmap and grad",
        "tests/graph/capture/test_written_views.py",
        GRAPHS,
    ),
    (
        "torch._C",
        "_are_functorch_transforms_active",
        "custom operators, and calls of graphs, under vmap and grad",
        "tests/ops",
        GRAPHS,
    ),
    (
        "torch._C",
        "_any_requires_grad",
        "whether a call of a custom operator needs a gradient",
        "tests/ops",
        INDUCTOR,
    ),
    (
        "torch._C",
        "_dispatch_has_kernel_for_dispatch_key",
        "whether a compiled kernel is registered",
        "tests/ops",
        GRAPHS,
    ),
    ("torch.autograd.forward_ad", "_current_level", "custom operators under forward-mode AD", "tests/ops"),
    (
        "torch.utils.data._utils.collate",
        "collate default_collate_fn_map",
        "collating with OneFlow's dtype rule",
        "tests/data",
    ),
    (
        "torch.utils.data.dataloader",
        "_BaseDataLoaderIter",
        "next() of a loader's iterator",
        "tests/data/test_loader.py",
    ),
    ("torch.testing", "_internal", "samples for the parity suite", "tests/autotest"),
    (
        "torch.nn.modules.module",
        "_global_forward_hooks _global_forward_pre_hooks",
        "removing hooks of a capture after an interrupt lost their handles",
        "tests/graph/capture/test_interrupted_capture.py",
        GRAPHS,
    ),
    (
        "torch.optim.optimizer",
        "_global_optimizer_pre_hooks",
        "removing hooks of a capture after an interrupt lost their handles",
        "tests/graph/capture/test_interrupted_capture.py",
        GRAPHS,
    ),
    (
        "torch.nn.modules.conv",
        "_ConvNd",
        "derived attributes of a loaded convolution",
        "tests/nn/test_nn_pickles.py",
    ),
    (
        "torch.distributed.tensor.placement_types",
        "_StridedShard",
        "keeping the sizes of shards out of the program",
        "tests/ranks/test_ranks.py",
    ),
    (
        "torch.hub",
        "_hub_dir",
        "hub.load uses torch's folder of repositories",
        "tests/data/test_hub_vision.py",
    ),
    (
        "torch.utils.data",
        "_DatasetKind",
        "a name of OneFlow's module of loaders",
        "tests/data/test_loader.py",
    ),
    (
        "torch._C._dynamo.eval_frame",
        "_FrameAction _FrameExecStrategy reset_code set_code_exec_strategy set_eval_frame",
        "running frames of build() as instrumented copies of their code",
        "tests/graph/guards/test_observe_bytecode.py",
    ),
    (
        "torch._C._dynamo.guards",
        "RootGuardManager",
        "the base class that torch requires for objects stored with an instrumented copy",
        "tests/graph/guards/test_observe_bytecode.py",
    ),
    (
        "torch._C",
        "_FunctionBase",
        "ignoring attributes of autograd nodes, which are not Python state",
        "tests/graph/guards/test_observe_bytecode.py",
        GRAPHS,
    ),
)

# Names that are not in each torch which the package supports -> the first torch that has them.
_SINCE = {"torch._inductor.fx_utils._is_fake_tensor_same": "2.13"}

HOOKS = {
    f"{owner}.{name}": Hook(purpose, guard, "".join(needed_by), _SINCE.get(f"{owner}.{name}", ""))
    for owner, names, purpose, guard, *needed_by in _ROWS
    for name in names.split()
}
