"""Every private torch name that this package relies on, its purpose, and the test that guards it.

Data only. tests/core/test_upstream/hooks.py checks that each exists in the installed torch and that the
sources use no private name that is not listed. The package asks for torch >= 2.11; the tests were run on
CHECKED_ON.
"""

CHECKED_ON = ("2.11.0", "2.13.0", "2.15.0")

# path: (used by, for, guarded by)
HOOKS = {
    # safe loads of files
    "torch.serialization._get_layout": (
        "_files",
        "the layouts that torch's files name",
        "tests/files/test_allow.py",
    ),
    "torch._utils": (
        "_files, _graph",
        "names that torch's files and the tensors of saved graphs hold",
        "tests/files/test_allow.py",
    ),
    "torch._tensor": ("_files", "names that torch's files hold", "tests/files/test_allow.py"),
    "torch._neg_view": ("_files", "a saved tensor with the neg bit", "tests/files/test_allow.py"),
    "torch._mkldnn": ("_files", "the name of a layout in a file", "tests/files/test_allow.py"),
    "torch._empty_affine_quantized": ("_files", "quantized tensors of a file", "tests/files/test_allow.py"),
    "torch._empty_per_channel_affine_quantized": (
        "_files",
        "quantized tensors of a file",
        "tests/files/test_allow.py",
    ),
    "torch._nested_view_from_buffer": ("_files", "nested tensors of a file", "tests/files/test_allow.py"),
    # the recorder of nn.Graph
    "torch._subclasses.fake_tensor": (
        "_graph, _ops, _oneflow_internal",
        "symbolic tensors while build() is captured",
        "tests/graph/test_semantics.py",
    ),
    "torch.utils._python_dispatch": (
        "_graph, _ops",
        "the dispatch mode that records ATen calls, and making a tensor outside of it",
        "tests/graph/test_semantics.py",
    ),
    "torch.utils._pytree": (
        "_graph, _global, _ops, nn, utils",
        "nested inputs and outputs",
        "tests/graph/test_semantics.py",
    ),
    "torch._C.DisableTorchFunction": (
        "_graph",
        "reading a tensor below __torch_function__",
        "tests/graph/test_semantics.py",
    ),
    "torch._C._swap_tensor_impl": (
        "_graph",
        "a fake tensor that outlives its capture becomes a real one in place",
        "tests/graph/test_survivors.py",
    ),
    "torch._C._dynamo.guards": (
        "_graph",
        "whether inputs of a program overlap in memory",
        "tests/graph/test_stale_state.py",
    ),
    "torch._C._len_torch_function_stack": (
        "_graph",
        "indices that are tensors are handled by a function mode, which stays out of recording",
        "tests/graph/test_torch_op_calls.py",
    ),
    "torch._C._pop_torch_function_stack": ("_graph", "the same", "tests/graph/test_torch_op_calls.py"),
    "torch._C._push_on_torch_function_stack": ("_graph", "the same", "tests/graph/test_torch_op_calls.py"),
    "torch._C._after_ADInplaceOrView_keyset": (
        "_kernels",
        "CUDA kernels with atomics raise torch's alert of deterministic algorithms",
        "tests/ops/test_ops_gpu.py",
    ),
    "torch._C.OptionalType": (
        "_graph",
        "operator arguments of saved graphs are checked against schemas",
        "tests/files/test_hostile_graphs.py",
    ),
    "torch._C._dispatch_find_schema_or_throw": (
        "_graph",
        "is an operator of a saved graph one of the dispatcher's",
        "tests/files/test_hostile_graphs.py",
    ),
    "torch._C._get_privateuse1_backend_name": (
        "_global",
        "whether the name of the private backend is free for OneFlow's mock device",
        "tests/core/test_refused_arguments.py",
    ),
    "torch._register_device_module": (
        "_global",
        "what torch says of a tensor on the mock device",
        "tests/core/test_refused_arguments.py",
    ),
    "torch._C.ListType": ("_graph", "operator arguments that are lists", "tests/graph/test_semantics.py"),
    "torch._C._increment_version": (
        "_graph",
        "telling autograd what a program wrote",
        "tests/graph/test_semantics.py",
    ),
    "torch.Tensor._nnz": (
        "_graph",
        "a program does not know how many rows a sparse tensor has",
        "tests/graph/test_sparse_tensors.py",
    ),
    "torch._C._AutoDispatchBelowAutograd": (
        "_graph, _kernels",
        "running a program below autograd",
        "tests/graph/test_bitwise.py",
    ),
    "torch._C._autograd._profiler_enabled": (
        "_graph",
        "a call in named regions where a profiler looks on",
        "tests/graph/test_profiled.py",
    ),
    "torch._higher_order_ops.flex_attention": (
        "_graph",
        "flex_attention in plain operators",
        "tests/graph/test_torch_op_calls.py",
    ),
    "torch._C.DispatchKey": (
        "_graph",
        "a kernel's own operators are recorded (affine_grid under autocast)",
        "tests/graph/test_contexts.py",
    ),
    "torch._C._DisableAutocast": (
        "_graph",
        "a program has its casts: autocast around a call adds none",
        "tests/graph/test_contexts.py",
    ),
    "torch._C._is_any_autocast_enabled": ("_graph", "the same", "tests/graph/test_contexts.py"),
    "torch._ops.OpOverload": ("_graph", "the targets of a program's nodes", "tests/graph/test_deploy.py"),
    "torch._amp_foreach_non_finite_check_and_unscale_": (
        "_graph",
        "loss scaling inside a program",
        "tests/graph/test_scaler_amp_recompute.py",
    ),
    "torch._amp_update_scale_": (
        "_graph",
        "loss scaling inside a program",
        "tests/graph/test_scaler_amp_recompute.py",
    ),
    "torch.autograd.Variable._execution_engine": (
        "nn.parallel",
        "gradients are averaged when backward() ends",
        "tests/ranks/test_ranks.py",
    ),
    "torch.autograd._engine_run_backward": ("_graph", "capturing backward()", "tests/graph/test_train.py"),
    "torch._dynamo.eval_frame": (
        "_graph",
        "is torch.compile in use, so that it is off while build() is captured",
        "tests/graph/test_fuzz_regressions.py",
    ),
    "torch._C._dynamo.eval_frame": (
        "nn.graph",
        "torch.compile of what surrounds a graph calls it as it is",
        "tests/graph/test_contexts.py",
    ),
    "torch.utils.checkpoint._checkpoint_without_reentrant_generator": (
        "_graph",
        "what is computed again in backward stays computed again",
        "tests/graph/test_scaler_amp_recompute.py",
    ),
    "torch._functorch.eager_transforms": (
        "_graph",
        "linearize() inside build()",
        "tests/graph/test_transforms.py",
    ),
    "torch.fx.experimental.proxy_tensor._MakefxTracer": (
        "_graph",
        "make_fx inside build() is an error",
        "tests/graph/test_transforms.py",
    ),
    "torch.utils._sympy.functions": (
        "_graph",
        "arithmetic with sizes that depend on values",
        "tests/graph/test_unknown_sizes.py",
    ),
    "torch.utils._sympy.interp": (
        "_graph",
        "arithmetic with sizes that depend on values",
        "tests/graph/test_unknown_sizes.py",
    ),
    "torch.utils._sympy.printers": (
        "_graph",
        "guards on the sizes of arguments, as Python",
        "tests/graph/test_dynamic_dimensions.py",
    ),
    "torch.utils._sympy.reference": (
        "_graph",
        "arithmetic with sizes that depend on values",
        "tests/graph/test_unknown_sizes.py",
    ),
    "torch._C._EnablePythonDispatcher": (
        "_graph",
        "shapes of results in symbols; before torch 2.13 also formulas of gradients",
        "tests/graph/test_dynamic_dimensions.py",
    ),
    "torch._C._DisablePythonDispatcher": (
        "_graph",
        "the same: what is computed again has the operators of the first run",
        "tests/graph/test_unknown_sizes.py",
    ),
    "torch._check": (
        "_graph",
        "sizes that depend on values and have to be equal",
        "tests/graph/test_unknown_sizes.py",
    ),
    "torch._C._nn": (
        "_graph",
        "functions of torch.nn on sizes that depend on values",
        "tests/graph/test_unknown_sizes.py",
    ),
    "torch._C._get_mkldnn_enabled": (
        "_graph",
        "which LSTM the CPU takes",
        "tests/graph/test_unknown_sizes.py",
    ),
    "torch._VF": ("_graph", "recurrent layers inside a program", "tests/graph/test_inductor_steps.py"),
    "torch._C._dispatch_key_for_device": (
        "_graph",
        "has an operator of a saved program a kernel for the device",
        "tests/graph/test_cuda_paths.py",
    ),
    "torch._cudnn_rnn": (
        "_graph",
        "recurrent layers on a GPU inside a program",
        "tests/graph/test_cuda_paths.py",
    ),
    "torch._cudnn_init_dropout_state": (
        "_graph",
        "dropout of recurrent layers on a GPU",
        "tests/graph/test_graph_gpu.py",
    ),
    "torch.utils._foreach_utils": (
        "_graph",
        "clipping takes symbolic gradients on a GPU together",
        "tests/graph/test_graph_gpu.py",
    ),
    "torch.nn.modules.batchnorm._BatchNorm": (
        "_graph",
        "batch norm with a cumulative average",
        "tests/graph/test_values_and_structures.py",
    ),
    "torch.distributed.tensor._sharding_prop": (
        "_graph",
        "DTensor's search for rules stays out of the program",
        "tests/ranks/test_ranks.py",
    ),
    "torch.distributed.tensor.DTensor._op_dispatcher": (
        "_global",
        (
            "DTensor's rules of an operator; a rank that holds no part of a tensor finds those that the"
            " others find"
        ),
        "tests/ranks/test_ranks.py",
    ),
    "torch.distributed.distributed_c10d._get_default_store": (
        "_global",
        "ranks leave notes about a failure for the others",
        "tests/fuzz/fuzz_ranks.py",
    ),
    "torch.distributed.ProcessGroup._get_sequence_number_for_group": (
        "_global",
        "which operators communicated, which the ranks compare",
        "tests/fuzz/fuzz_ranks.py",
    ),
    "torch.distributed._functional_collectives": (
        "_global, _graph",
        "collectives that a program records",
        "tests/ranks/test_ranks.py",
    ),
    # its inductor backend
    "torch._inductor": (
        "_graph, nn.graph",
        "compiling a program's region",
        "tests/graph/test_auto_backend.py",
    ),
    "torch.ops.aten._native_batch_norm_legit": (
        "_graph",
        "batch norm that says that it writes the running statistics",
        "tests/graph/test_inductor_semantics.py",
    ),
    "torch._functorch.compile_utils": (
        "_graph",
        "common subexpressions of a region",
        "tests/graph/test_auto_backend.py",
    ),
    "torch.utils._filelock": (
        "_graph",
        "one process compiles a file of inductor's cache",
        "tests/graph/test_inductor.py",
    ),
    "torch._C._aoti": (
        "_graph",
        "handing tensors to the library of a compiled region",
        "tests/graph/test_program_cache.py",
    ),
    "torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr": (
        "_graph",
        "the address that the library of a compiled region reads when it is loaded",
        "tests/graph/test_program_cache.py",
    ),
    "torch.utils._config_module": (
        "_graph",
        "which of inductor's options the user has changed",
        "tests/graph/test_program_cache.py",
    ),
    "torch._guards": ("_graph", "the tracing context inductor expects", "tests/graph/test_auto_backend.py"),
    "torch._decomp": (
        "_graph",
        "torch's own decompositions, reused inside ours",
        "tests/graph/test_inductor_semantics.py",
    ),
    "torch._C.SymIntType": (
        "_graph",
        "sizes among the arguments of an operator",
        "tests/graph/test_inductor_semantics.py",
    ),
    # optimizers and schedulers
    "torch._foreach_add_": (
        "optim, _kernels",
        "multi-tensor updates (the torch._foreach_* family)",
        "tests/optim/test_optim_golden.py",
    ),
    "torch._disable_dynamo": (
        "optim",
        "step() stays eager under torch.compile",
        "tests/optim/test_optim_api.py",
    ),
    "torch.optim.SGD._init_group": (
        "optim",
        "state of our SGD on torch's kernels",
        "tests/optim/test_optim_golden.py",
    ),
    "torch.optim.Adam._init_group": (
        "optim",
        "state of our Adam on torch's kernels",
        "tests/optim/test_optim_golden.py",
    ),
    "torch.optim.Optimizer._patch_step_function": (
        "optim",
        "profiling and hooks around step()",
        "tests/optim/test_optim_steps.py",
    ),
    "torch.optim.lr_scheduler._LRScheduler": (
        "optim",
        "torch's older name of the class",
        "tests/optim/test_lr_scheduler.py",
    ),
    # TorchScript
    "torch._jit_internal": (
        "_torchscript",
        "functions TorchScript picks by a flag",
        "tests/clients/test_pytorch_script.py",
    ),
    "torch.jit._builtins": (
        "_torchscript",
        "operators TorchScript knows by identity",
        "tests/clients/test_pytorch_script.py",
    ),
    "torch.jit._script": (
        "_torchscript",
        "overloads TorchScript picks by the types of arguments",
        "tests/clients/test_pytorch_script.py",
    ),
    "torch.jit._state": (
        "_torchscript",
        "oneflow.device as an annotation",
        "tests/clients/test_pytorch_script.py",
    ),
    "torch._C.DeviceObjType": (
        "_torchscript",
        "oneflow.device as an annotation",
        "tests/clients/test_pytorch_script.py",
    ),
    # the rest
    "torch._ops": (
        "_ops",
        "programs find torch's operator classes under this name too",
        "tests/core/test_deep_paths.py",
    ),
    "torch._C.DisableTorchFunctionSubclass": (
        "_global",
        "one-rank global tensors",
        "tests/core/test_global_one_rank.py",
    ),
    "torch.Tensor._make_wrapper_subclass": (
        "_global",
        "the class of global tensors of several ranks",
        "tests/ranks/test_ranks.py",
    ),
    "torch.utils._mode_utils": (
        "_global",
        "a global tensor's own shape changes in place with its DTensor's",
        "tests/ranks/test_ranks.py",
    ),
    "torch._C._disabled_torch_function_impl": (
        "_global, _graph",
        "the class of global tensors of several ranks",
        "tests/ranks/test_ranks.py",
    ),
    "torch._C._current_graph_task_id": (
        "_global",
        "is this call one of backward()'s",
        "tests/ranks/test_ranks.py",
    ),
    "torch.ops.aten._local_scalar_dense": (
        "_global, _graph",
        "numbers read from a global tensor of several ranks",
        "tests/ranks/test_ranks.py",
    ),
    "torch._prims_common": (
        "_graph",
        "the layout of results of kernels",
        "tests/graph/test_known_results.py",
    ),
    "torch._C._functorch": (
        "_graph",
        "constants of a region inside functionalize",
        "tests/graph/test_inductor_semantics.py",
    ),
    "torch._C._are_functorch_transforms_active": (
        "_kernels, _graph",
        "custom operators, and calls of graphs, under vmap and grad",
        "tests/ops",
    ),
    "torch._C._any_requires_grad": (
        "_kernels, _graph",
        "does a call of a custom operator want a gradient",
        "tests/ops",
    ),
    "torch._C._dispatch_has_kernel_for_dispatch_key": (
        "_kernels, _graph",
        "is the compiled kernel there",
        "tests/ops",
    ),
    "torch.autograd.forward_ad._current_level": (
        "_kernels",
        "custom operators under forward-mode AD",
        "tests/ops",
    ),
    "torch.utils.data._utils.collate": ("utils.data", "collating with OneFlow's dtype rule", "tests/data"),
    "torch.utils.data.dataloader._BaseDataLoaderIter": (
        "utils.data",
        "next() of a loader's iterator",
        "tests/data/test_loader.py",
    ),
    "torch.testing._internal": ("autotest.parity", "samples for the parity suite", "tests/autotest"),
}
