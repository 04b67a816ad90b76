"""Differences of optimizers, schedules, mixed precision, autograd and nn.utils."""

OPTIM = {
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
        "test": "tests/optim/test_optim_golden.py::test_an_optimizer_repeats_oneflows_trajectory",
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
        "test": "tests/optim/test_optim_golden.py::test_ftrl_repeats_oneflows_trajectory",
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
        "test": "tests/optim/test_optim_golden.py::test_a_schedule_repeats_oneflows_rates",
    },
    "lr-sequential": {
        "names": ["oneflow.optim.lr_scheduler.SequentialLR"],
        "oneflow": "a later scheduler sees the global step unless interval_rescaling (torch: restarts at 0)",
        "here": "OneFlow's; torch's if a member is a torch scheduler",
        "reason": "documented default",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/optim/test_optim_golden.py::test_a_schedule_repeats_oneflows_rates",
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
        "here": "as OneFlow; use_reentrant=True and set_dialect('torch') are torch's",
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
}
