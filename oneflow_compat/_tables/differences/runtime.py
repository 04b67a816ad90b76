"""Differences of global tensors, nn.Graph and the knobs of the runtime."""

RUNTIME = {
    "global-rules": {
        "names": ["oneflow.Tensor.to_global", "oneflow.nn.Module.to_global"],
        "oneflow": (
            "each operator chooses the SBP of its result by OneFlow's signatures; the chunks of an uneven"
            " split differ by at most one"
        ),
        "here": (
            "torch's DTensor chooses (cat, indexing, batch norm, ... may give another SBP, the values are"
            " the same); chunks are those of torch.chunk: 4 rows on 3 ranks are 2, 2, 0. On one rank a"
            " result keeps the SBP of its operand; if the number of dimensions changes, split becomes"
            " partial_sum or broadcast"
        ),
        "reason": "global tensors of several ranks are torch's DTensors",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/ranks/test_ranks.py::test_tensors_on_two_ranks",
    },
    "consistent-names": {
        "names": [
            "oneflow.Tensor.to_consistent",
            "oneflow.Tensor.is_consistent",
            "oneflow.nn.Module.to_consistent",
        ],
        "oneflow": "0.5 and 0.6 have these names; 0.7 renamed them to_global and is_global",
        "here": "both names; to_consistent() warns (DeprecationWarning)",
        "reason": "superset",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_global_one_rank.py::test_names_of_older_versions",
    },
    "rank-without-a-group": {
        "names": ["oneflow.distributed.get_rank", "oneflow.distributed.get_world_size"],
        "oneflow": "work at any time: the launcher sets both numbers",
        "here": "the same; torch raises ValueError before init_process_group()",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_collectives_one_process.py::test_each_collective_is_the_identity",
    },
    "one-rank-rules": {
        "names": ["oneflow.Tensor.sbp"],
        "oneflow": (
            "each operator chooses the SBP on one rank too: split + broadcast is broadcast, split(0).t() is"
            " split(1), relu(partial_sum) is split(0)"
        ),
        "here": (
            "the result keeps the SBP of its first global operand that is not broadcast: split(0),"
            " split(0), partial_sum; the values are the same"
        ),
        "reason": "a global tensor on one rank is an ordinary tensor with SBP attributes, and costs no more",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_differences_eager.py::test_rules_of_results_on_one_rank",
    },
    "global-with-local": {
        "names": ["oneflow.Tensor.to_global", "oneflow.Tensor.is_global"],
        "oneflow": "an operator with a global and a local tensor raises RuntimeError",
        "here": "the same on several ranks; on one rank the local tensor counts as a global one",
        "reason": "both are ordinary tensors on one rank; a check would slow down every call",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_differences_eager.py::test_a_local_tensor_joins_a_global_one_on_one_rank",
    },
    "graph-schedule": {
        "names": ["oneflow.nn.Graph.add_optimizer"],
        "oneflow": (
            "a graph computes the rates with an internal schedule; the optimizer and schedule in Python do"
            " not change, and their step() only affects what Python shows"
        ),
        "here": (
            "a call of the graph steps the Python schedule, so Python shows the next rate; a step() by the"
            " program right after a call counts as the same step"
        ),
        "reason": (
            "eager steps and graph steps share one optimizer and one schedule; programs that step the"
            " schedule only for display (libai) train with OneFlow's rates"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/clients/test_graph_surface.py::test_a_step_of_the_schedule_by_the_program_counts_once",
    },
    "graph-python": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": (
            "Python is read once, when the graph is built: attributes, closures and tensors that are"
            " rebound later have no effect"
        ),
        "here": (
            "if a number, flag, function, submodule or requires_grad that build() read has changed at a"
            " later call, the graph uses another program; a rebound tensor is read; train() and eval() keep"
            " their state of the first call, as in OneFlow"
        ),
        "reason": "results should not depend on the time of the capture",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/graph/guards/test_python_state.py",
    },
    "graph-eager-calls": {
        "names": ["oneflow.nn.Graph", "oneflow.nn.Graph.build"],
        "oneflow": (
            "build() runs once: print(), logs and changes of Python objects happen when the graph is built; a"
            " branch on a tensor's value is an error"
        ),
        "here": (
            "effects of build() happen in each call, and values may be read; a call that no program can hold"
            " runs in eager mode, with a warning; graph.config.strict() makes it an error"
        ),
        "reason": "a step means the same in eager mode and in a graph",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/graph/calls/test_effects.py",
    },
    "graph-state-writes": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": (
            "of all in-place writes of build(), only copy_(), BatchNorm's statistics and the optimizer's"
            " update persist after the call; results are copies"
        ),
        "here": (
            "writes to arguments and captured tensors do not persist, as in OneFlow; writes to parameters,"
            " buffers and attributes of modules and of the graph do; a result that is an argument or state"
            " is the same tensor"
        ),
        "reason": (
            "counters, averages and caches in modules have the values of eager mode; under"
            " set_dialect('torch') every write persists"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/graph/capture/test_callers_tensors.py",
    },
    "graph-gradients": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": (
            "backward() without an optimizer is an error; with one, p.grad is a lazy tensor without values"
            " after the call"
        ),
        "here": (
            "backward() works without an optimizer; a call does not change p.grad, and a backward() whose"
            " gradients are unused warns"
        ),
        "reason": "build() may return gradients; eager gradients and graph steps are independent",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/graph/capture/test_modules_and_gradients.py",
    },
    "graph-output-buffers": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": (
            "results are written alternately to two lists of buffers, _outputs_tensor_tuple_buffer, and"
            " copied from them; set_outputs_buffer_size changes the number"
        ),
        "here": "no such attribute: each call returns new tensors; set_outputs_buffer_size has no effect",
        "reason": "buffers that outlive the call would hold the memory of two calls, and cost a copy",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/clients/test_graph_internals.py::test_results_of_calls_share_no_buffer",
    },
    "graph-module-results": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": (
            "a build() that returns a module is an error; test harnesses recognize module classes by their"
            " __module__ and construct them outside"
        ),
        "here": (
            "a module that build() returns is returned with real tensors; a parameter of the graph is_lazy"
            " inside build(), whichever way it is accessed"
        ),
        "reason": (
            "module classes are torch's, and the tensors are the same objects inside and outside of build()"
        ),
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/graph/capture/test_modules_and_gradients.py",
    },
    "graph-optimizers": {
        "names": ["oneflow.nn.Graph.add_optimizer"],
        "oneflow": (
            "OneFlow's optimizers are operators of the graph; SparseAdam and Adafactor exist only in torch"
        ),
        "here": (
            "optimizers that branch on values of gradients or weights (SparseAdam, sparse gradients in"
            " Adagrad, Adafactor) step in eager mode, and the whole call with them; LBFGS is an error"
        ),
        "reason": "a program has fixed shapes and no branches; step them in eager mode",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/graph/test_errors.py::test_optimizers_that_decide_by_values",
    },
    "graph-sparse-rows": {
        "names": ["oneflow.nn.Graph.add_optimizer"],
        "oneflow": (
            "is_sparse=True: SGD, Adam and AdamW (without bias correction) update the rows that one gather"
            " read; an error for other optimizers"
        ),
        "here": (
            "every optimizer updates the rows whose gradient is not all zero, and Adam applies its bias"
            " correction"
        ),
        "reason": "gradients are dense here; do_bias_correction=False gives OneFlow's values",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/graph/training/test_sparse_rows.py",
    },
    "graph-save-guards": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": "-",
        "here": (
            "graph.save() and export() refuse a graph whose optimizer branches on its step number (RAdam,"
            " ...); export() also refuses a build() that branches on values of integer arguments or small"
            " buffers; save() stores the programs for the values that occurred"
        ),
        "reason": (
            "such a graph has several programs and selects one before each call; an exported file contains"
            " only one"
        ),
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/graph/saved/test_deploy.py",
    },
    "graph-save-objects": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": "-",
        "here": (
            "graph.save() and export() refuse a graph that changes or returns an object among its arguments,"
            " such as a cache of keys and values"
        ),
        "reason": "a file holds tensors and plain containers, and no classes of the caller",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/graph/calls/test_objects_as_arguments.py",
    },
    "knobs": {
        "names": ["oneflow.boxing", "oneflow.backends.cudnn", "oneflow.remat"],
        "oneflow": "switches for its collectives, cuDNN and rematerialization",
        "here": "the value is checked and stored, without effect",
        "reason": "torch controls these mechanisms itself",
        "severity": {"oneflow": "cosmetic", "torch": "cosmetic"},
        "test": "tests/core/test_knobs.py",
    },
    "rdma": {
        "names": ["oneflow.env.init_rdma"],
        "oneflow": "switches its transport to RDMA",
        "here": "raises UnsupportedError; rdma_is_initialized() is False",
        "reason": "NCCL and Gloo choose their transport",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_knobs.py",
    },
}
