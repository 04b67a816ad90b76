"""The differences between this package and OneFlow or torch: {id: row}.

A row has the public names, what OneFlow does, what this package does, the reason, and the test.

`severity` ranks the row for programs written for each library (`python -m oneflow.scan` reads it):

- "breaks": the call raises.
- "changes numbers": the call gives other values in ordinary programs.
- "cosmetic": text, layout, dtype, speed, or input that ordinary programs do not have.
- "superset": the program keeps its meaning.
"""

from .differences_data import DATA
from .differences_eager import EAGER
from .differences_legacy import LEGACY
from .differences_nn import NN
from .differences_ops import OPS

DIFFERENCES = {
    **DATA,
    **EAGER,
    **NN,
    **OPS,
    **LEGACY,
    # ------------------------------------------------------------------ optimizers
    "adamw-default-wd": {
        "names": ["oneflow.optim.AdamW"],
        "oneflow": "weight_decay defaults to 0 (torch: 0.01)",
        "here": "OneFlow's default",
        "reason": "documented default",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_api.py::test_defaults_are_oneflows",
    },
    "rmsprop": {
        "names": ["oneflow.optim.RMSprop"],
        "oneflow": (
            "eps inside the square root, lr defaults to 1e-3 (torch: outside, 1e-2); momentum > 0 is refused"
        ),
        "here": (
            "OneFlow's formula and default; momentum accumulates the updates as in torch; sparse and complex"
            " gradients raise"
        ),
        "reason": "documented formula; accepting momentum only turns an error into a result",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_golden.py",
    },
    "adagrad-default-lr": {
        "names": ["oneflow.optim.Adagrad"],
        "oneflow": "lr defaults to 1e-3 (torch: 1e-2)",
        "here": "OneFlow's default",
        "reason": "documented default",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_api.py::test_defaults_are_oneflows",
    },
    "lbfgs-default-lr": {
        "names": ["oneflow.optim.LBFGS"],
        "oneflow": "lr defaults to 1e-3 (torch: 1)",
        "here": "OneFlow's default; the rest is torch's L-BFGS",
        "reason": "documented default",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_api.py::test_defaults_are_oneflows",
    },
    "sgd-dampening": {
        "names": ["oneflow.optim.SGD"],
        "oneflow": (
            "the momentum buffer starts at zero, so dampening acts on the first step; nesterov with dampening"
            " is allowed"
        ),
        "here": "OneFlow's formula on torch's kernels",
        "reason": "documented formula; identical to torch when dampening is 0",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_golden.py",
    },
    "sgd-maximize": {
        "names": ["oneflow.optim.SGD"],
        "oneflow": "maximize is ignored without momentum; with momentum it also reverses the weight decay",
        "here": "torch's: maximize always negates the gradient, weight decay still shrinks",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/optim/test_optim_golden.py::test_trajectory",
    },
    "adam-bias-flag": {
        "names": ["oneflow.optim.Adam", "oneflow.optim.AdamW"],
        "oneflow": "do_bias_correction (not in torch), contiguous_params, fused",
        "here": (
            "all are supported; fused=False lets torch choose the kernels; torch's keywords are accepted too"
        ),
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/optim/test_optim_steps.py::test_adam_without_bias_correction",
    },
    "sgd-args": {
        "names": ["oneflow.optim.SGD", "oneflow.optim.Adadelta"],
        "oneflow": "maximize, contiguous_params and fused may be positional",
        "here": "accepted",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/optim/test_optim_api.py::test_positional_order_is_oneflows",
    },
    "lamb-note": {
        "names": ["oneflow.optim.LAMB"],
        "oneflow": "not in torch; weight decay is outside the norm of the direction",
        "here": "OneFlow's formula in plain torch",
        "reason": "documented optimizer",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/optim/test_optim_golden.py",
    },
    "ftrl-lr-power": {
        "names": ["oneflow.one_embedding.Ftrl"],
        "oneflow": (
            "0.9.0's CPU kernel raises the accumulator to lr_power instead of -lr_power and diverges with its"
            " own default"
        ),
        "here": "the FTRL-proximal formula; equal to OneFlow's with the opposite sign of lr_power",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/optim/test_optim_golden.py::test_ftrl_trajectory",
    },
    "zero-grad-default": {
        "names": ["oneflow.optim.Optimizer.zero_grad"],
        "oneflow": "zero_grad() fills gradients with zeros (torch drops them)",
        "here": "OneFlow's default",
        "reason": "code reads p.grad afterwards",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_api.py::test_zero_grad_keeps_zero_tensors",
    },
    "lr-scale": {
        "names": ["oneflow.optim.Optimizer"],
        "oneflow": (
            "lr_scale of a parameter group multiplies its learning rate in graphs; eager steps of 0.9.0"
            " ignore it"
        ),
        "here": "it multiplies the learning rate in both",
        "reason": "eager and graph steps of one optimizer give the same numbers",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/optim/test_lr_scale.py::test_a_group_learns_at_its_own_scale",
    },
    "clip-grad-groups": {
        "names": ["oneflow.optim.Optimizer.clip_grad"],
        "oneflow": (
            "groups with clip_grad_max_norm and clip_grad_norm_type are clipped by optimizer.clip_grad()"
        ),
        "here": "the same; a call that clips nothing warns",
        "reason": "missing in torch",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/optim/test_optim_api.py::test_clip_grad_uses_each_groups_own_norm",
    },
    "param-group": {
        "names": ["oneflow.optim.optimizer.ParamGroup"],
        "oneflow": "an object whose items() lists _parameters, _options and _enable_clip_grad",
        "here": "a dict as in torch, with .parameters and .options; items() is the dict's",
        "reason": "torch's own code iterates over groups as dicts",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/optim/test_optim_api.py::test_param_group_is_a_dict_with_oneflows_accessors",
    },
    "parameter-twice": {
        "names": ["oneflow.optim.Optimizer"],
        "oneflow": (
            "a parameter listed twice, in one group or in two, is updated twice in each step; both updates of"
            " Adam count as one step; in a graph two groups end the process"
        ),
        "here": (
            "torch's: a parameter listed twice in one group warns and is updated twice (two steps of Adam);"
            " in two groups it is a ValueError"
        ),
        "reason": "a second update is a mistake of the caller, and torch reports it",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/optim/test_refused_parameters.py::test_a_parameter_listed_twice",
    },
    "optimizer-state-layout": {
        "names": ["oneflow.optim.Optimizer.state_dict", "oneflow.optim.Optimizer.load_state_dict"],
        "oneflow": "one step count for all, other slot names, options nested under _options",
        "here": (
            "state_dict() has torch's layout, state_dict(layout='oneflow') OneFlow's (not for LBFGS);"
            " load_state_dict() takes both"
        ),
        "reason": "torch's tools (FSDP, checkpointing, Lightning) read torch's layout",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/optim/test_optim_golden.py::test_training_goes_on_from_a_oneflow_state_dict",
    },
    "optimizer-compile": {
        "names": ["oneflow.optim.Optimizer.step"],
        "oneflow": "nn.Graph compiles the step",
        "here": (
            "nn.Graph compiles it; under torch.compile step() runs eagerly, because Dynamo supports only"
            " plain dicts as parameter groups"
        ),
        "reason": "ParamGroup is a subclass of dict; set_dialect('torch') selects torch's optimizers",
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/optim/test_optim_steps.py::test_torch_compile_runs_the_step",
    },
    # ------------------------------------------------------------------ schedulers
    "lr-last-step": {
        "names": ["oneflow.optim.lr_scheduler.LRScheduler"],
        "oneflow": "last_step and verbose arguments; subclasses define get_lr(self, base_lr, step)",
        "here": (
            "both names and both protocols (distinguished by the number of arguments); the state has both"
            " names"
        ),
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/optim/test_lr_scheduler.py::test_both_names_of_the_step",
    },
    "lr-closed-form": {
        "names": ["oneflow.optim.lr_scheduler.LRScheduler", "oneflow.optim.lr_scheduler.ChainedScheduler"],
        "oneflow": (
            "every scheduler computes the rate from the initial rate; if two schedulers step one after the"
            " other, the last one wins"
        ),
        "here": "OneFlow's meaning; ChainedScheduler combines schedulers, including torch's",
        "reason": "documented get_lr(base_lr, step); torch's schedulers change the current rate instead",
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/optim/test_lr_scheduler.py::test_chained_with_a_member_of_torch_is_torchs",
    },
    "lr-polynomial": {
        "names": ["oneflow.optim.lr_scheduler.PolynomialLR"],
        "oneflow": (
            "(optimizer, decay_batch, end_learning_rate=1e-4, power=1.0, cycle=False); torch: (optimizer,"
            " total_iters=5, power=1.0)"
        ),
        "here": "OneFlow's positions and formula; total_iters= as a keyword means torch's",
        "reason": "documented signature",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_golden.py::test_schedule",
    },
    "lr-sequential": {
        "names": ["oneflow.optim.lr_scheduler.SequentialLR"],
        "oneflow": "a later scheduler sees the global step unless interval_rescaling (torch: restarts at 0)",
        "here": "OneFlow's; torch's if a member is a torch scheduler",
        "reason": "documented default",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_golden.py::test_schedule",
    },
    "lr-cawr": {
        "names": ["oneflow.optim.lr_scheduler.CosineAnnealingWarmRestarts"],
        "oneflow": "decay_rate and restart_limit are the fifth and sixth argument",
        "here": "OneFlow's positions; torch's fractional step(epoch) works",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/optim/test_lr_scheduler.py::test_step_to_an_epoch",
    },
    # ------------------------------------------------------------------ amp, autograd, nn.utils
    "autocast-cpu": {
        "names": ["oneflow.autocast", "oneflow.amp.autocast"],
        "oneflow": "no effect on the CPU (torch: bfloat16)",
        "here": "no effect on the CPU unless a dtype is passed",
        "reason": "programs written for OneFlow expect float32 there",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/amp/test_amp.py::test_autocast_on_cpu_casts_only_with_a_dtype",
    },
    "gradscaler": {
        "names": ["oneflow.amp.GradScaler"],
        "oneflow": "(init_scale, growth_factor, backoff_factor, growth_interval), for nn.Graph only",
        "here": "the same, and torch's methods; a string as the first argument selects torch's positions",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/amp/test_amp.py::test_grad_scaler_positions_of_both_libraries",
    },
    "function-instance": {
        "names": ["oneflow.autograd.Function"],
        "oneflow": "MyFunction()(x) works as MyFunction.apply(x)",
        "here": "both",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/autograd/test_autograd.py::test_function_may_be_called_as_an_instance",
    },
    "checkpoint-reentrant": {
        "names": ["oneflow.utils.checkpoint.checkpoint"],
        "oneflow": (
            "checkpoint(function, *args) does not re-enter autograd (torch does unless use_reentrant=False)"
        ),
        "here": "as OneFlow; use_reentrant=True is torch's",
        "reason": "superset: weights and inputs in a dict get gradients even if no argument requires one",
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/autograd/test_autograd.py::test_checkpoint_does_not_reenter",
    },
    "autograd-args": {
        "names": ["oneflow.autograd.grad"],
        "oneflow": "allow_unused is the sixth argument (torch has only_inputs there)",
        "here": "OneFlow's position",
        "reason": "documented signature; torch ignores only_inputs",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/autograd/test_autograd.py::test_grad_positions",
    },
    "inference-mode": {
        "names": ["oneflow.inference_mode", "oneflow.autograd.inference_mode"],
        "oneflow": (
            "tensors created inside are ordinary (torch: they may not be changed or used in autograd later)"
        ),
        "here": "no_grad(), or enable_grad() with False",
        "reason": "OneFlow programs use such tensors later",
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/autograd/test_autograd.py::test_inference_mode_makes_ordinary_tensors",
    },
    "set-grad-enabled-call": {
        "names": ["oneflow.set_grad_enabled", "oneflow.autograd.set_grad_enabled"],
        "oneflow": "the plain call has no effect; the argument is called is_train",
        "here": "torch's effect; both names of the argument",
        "reason": "an undocumented quirk",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/autograd/test_autograd.py::test_set_grad_enabled",
    },
    "clip-grad-norm-positions": {
        "names": ["oneflow.nn.utils.clip_grad_norm_"],
        "oneflow": (
            "the fourth argument is fused, the fifth error_if_nonfinite (torch: error_if_nonfinite, foreach)"
        ),
        "here": "OneFlow's positions; torch decides about fused",
        "reason": "documented signature",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_nn_utils.py::test_clip_grad_norm_positions_and_value",
    },
    # ------------------------------------------------------------------ runtime
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
        "test": "tests/graph/test_python_state.py",
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
        "test": "tests/graph/test_callers_tensors.py",
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
        "test": "tests/graph/test_modules_and_gradients.py",
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
        "test": "tests/graph/test_modules_and_gradients.py",
    },
    "graph-optimizers": {
        "names": ["oneflow.nn.Graph.add_optimizer"],
        "oneflow": (
            "OneFlow's optimizers are operators of the graph; SparseAdam and Adafactor exist only in torch"
        ),
        "here": (
            "optimizers that branch on values of gradients or weights (LBFGS, SparseAdam, sparse gradients"
            " in Adagrad, Adafactor) are an error in a graph"
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
        "test": "tests/graph/test_sparse_rows.py",
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
        "test": "tests/graph/test_deploy.py",
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
