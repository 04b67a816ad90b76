"""Differences of oneflow.nn, nn.functional, nn.init and nn.parallel."""

_T = "tests/nn/"

NN = {
    "loss-ctor-positional": {
        "names": [
            "oneflow.nn.MSELoss",
            "oneflow.nn.L1Loss",
            "oneflow.nn.SmoothL1Loss",
            "oneflow.nn.KLDivLoss",
            "oneflow.nn.BCELoss",
            "oneflow.nn.BCEWithLogitsLoss",
            "oneflow.nn.CrossEntropyLoss",
            "oneflow.nn.NLLLoss",
            "oneflow.nn.MarginRankingLoss",
        ],
        "oneflow": (
            "no size_average and reduce: MSELoss('sum'), CrossEntropyLoss(weight, ignore_index, reduction)"
        ),
        "here": (
            "both orders: a str or a number in the slot of torch's size_average is OneFlow's argument, None"
            " or a bool is torch's"
        ),
        "reason": "the types tell the callers apart",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_callers.py::test_losses_built_as_in_oneflow_equal_torchs",
    },
    "F-loss-positional": {
        "names": [
            "oneflow.nn.functional.mse_loss",
            "oneflow.nn.functional.l1_loss",
            "oneflow.nn.functional.smooth_l1_loss",
            "oneflow.nn.functional.kl_div",
            "oneflow.nn.functional.binary_cross_entropy",
            "oneflow.nn.functional.binary_cross_entropy_with_logits",
            "oneflow.nn.functional.cross_entropy",
        ],
        "oneflow": (
            "no size_average and reduce: mse_loss(input, target, reduction), kl_div(input, target,"
            " log_target, reduction), ..."
        ),
        "here": (
            "both orders, by the type in those slots; a lone bool in slot 3 of kl_div is OneFlow's log_target"
        ),
        "reason": (
            "the types distinguish the calls, except for kl_div's bool, which follows the documented"
            " signature"
        ),
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_callers.py::test_functions_called_as_in_oneflow_equal_torchs",
    },
    "label-shapes": {
        "names": ["oneflow.nn.CrossEntropyLoss", "oneflow.nn.functional.cross_entropy"],
        "oneflow": "labels of any shape, one for each row of scores; a different number ends the process",
        "here": "dimensions of size 1 may be added or left out: (4, 1) or (1, 4) for (4,); others raise",
        "reason": "labels of shape (H, W) for scores of shape (W, C, H) are more likely a mistake",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": _T + "test_label_shapes.py::test_labels_with_extra_dimensions_of_size_one",
    },
    "int32-targets": {
        "names": [
            "oneflow.nn.CrossEntropyLoss",
            "oneflow.nn.NLLLoss",
            "oneflow.nn.functional.cross_entropy",
            "oneflow.nn.functional.one_hot",
        ],
        "oneflow": "labels of any integer type",
        "here": "the same: int8, uint8, int16 and int32 labels are widened",
        "reason": "an error of torch's turned into a result",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_callers.py::test_class_losses_take_labels_of_any_integer_type",
    },
    "kl-negative-target": {
        "names": ["oneflow.nn.functional.kl_div", "oneflow.nn.KLDivLoss", "oneflow._C.kl_div_loss"],
        "oneflow": "terms of targets that are not positive are 0",
        "here": "the same (torch: nan for a negative target)",
        "reason": "documented example",
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": _T + "test_nn_differences.py::test_kl_div_of_negative_targets",
    },
    "gumbel-order": {
        "names": ["oneflow.nn.functional.gumbel_softmax"],
        "oneflow": "(x, tau=1, dim=None, hard=False, generator=None); dim=None follows softmax's rule",
        "here": "OneFlow's; a bool in slot 3 is torch's hard, and dim then defaults to torch's -1",
        "reason": "documented signature",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_callers.py::test_gumbel_softmax_in_torch_order",
    },
    "pool-order": {
        "names": [
            "oneflow.nn.functional.max_pool1d",
            "oneflow.nn.functional.max_pool2d",
            "oneflow.nn.functional.max_pool3d",
        ],
        "oneflow": (
            "arguments 6 and 7 are return_indices and ceil_mode (torch: the reverse), then data_format"
        ),
        "here": "OneFlow's order",
        "reason": "documented signature; both are bools, so types cannot distinguish the calls",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": _T + "test_nn_callers.py::test_max_pool_has_return_indices_before_ceil_mode",
    },
    "channels-last-layout": {
        "names": [
            "oneflow.nn.functional.conv2d",
            "oneflow.nn.functional.avg_pool2d",
            "oneflow.nn.AdaptiveAvgPool2d",
            "oneflow.nn.functional.unfold",
        ],
        "oneflow": (
            "channels_last moves the channels to the last dimension of data and weight; with it, the CPU"
            " kernels of conv and avg_pool in 0.9.0 read memory incorrectly"
        ),
        "here": "the same shapes, with correct values",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": _T + "test_nn_modules.py::test_channels_last_conv_is_the_permuted_conv",
    },
    "nhwc-variable": {
        "names": [
            "oneflow.nn.Conv2d",
            "oneflow.nn.BatchNorm2d",
            "oneflow.nn.MaxPool2d",
            "oneflow.nn.AdaptiveAvgPool2d",
            "oneflow.nn.CropMirrorNormalize",
        ],
        "oneflow": "modules created while ONEFLOW_ENABLE_NHWC is 1 take and return (N, H, W, C)",
        "here": (
            "the variable is not read; module.to(memory_format=oneflow.channels_last) selects this memory"
            " layout, and the functions accept channel_pos= or data_format="
        ),
        "reason": "the classes are torch's, whose channels_last keeps the shapes",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": (
            _T + "test_nn_modules.py::test_the_nhwc_variable_is_not_read_and_channels_last_memory_is_there"
        ),
    },
    "rmsnorm-eps": {
        "names": ["oneflow.nn.RMSNorm"],
        "oneflow": "eps defaults to 1e-5 (torch: the machine epsilon of the dtype)",
        "here": "OneFlow's default",
        "reason": "documented default",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": _T + "test_nn_modules.py::test_rms_norm_default_eps",
    },
    "trunc-normal": {
        "names": ["oneflow.nn.init.trunc_normal_"],
        "oneflow": "samples outside [a, b] are clamped to the bounds",
        "here": "torch's: values are sampled inside [a, b]",
        "reason": "an undocumented quirk; for the usual std=0.02 with bounds at 2 there is no difference",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_trunc_normal_does_not_clamp",
    },
    "orthogonal-init": {
        "names": ["oneflow.nn.init.orthogonal_"],
        "oneflow": "returns a new tensor and does not change its argument",
        "here": "torch's: in place",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_orthogonal_works_in_place",
    },
    "interp-edge": {
        "names": ["oneflow.nn.functional.interpolate"],
        "oneflow": (
            "with a fractional scale_factor, an axis whose size does not change may be sampled at 1/scale"
        ),
        "here": "torch's",
        "reason": "an undocumented quirk; sizes, whole scales and align_corners agree",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_kept_as_torchs",
    },
    "bn-batch1": {
        "names": ["oneflow.nn.BatchNorm1d", "oneflow.nn.BatchNorm2d", "oneflow.nn.functional.batch_norm"],
        "oneflow": "training with one value per channel is allowed; the running variance becomes NaN",
        "here": (
            "allowed; the running variance counts the variance of one value as 0. momentum=None raises"
            " torch's ValueError"
        ),
        "reason": "superset; flowvision trains RexNet and Inception with one image",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_batch_norm_trains_on_one_value_per_channel",
    },
    "batch-norm-gradient": {
        "names": [
            "oneflow.nn.BatchNorm2d",
            "oneflow.nn.BatchNorm3d",
            "oneflow.nn.InstanceNorm2d",
            "oneflow.nn.InstanceNorm3d",
            "oneflow.nn.functional.batch_norm",
        ],
        "oneflow": "the gradient is correct for every layout",
        "here": (
            "the same; torch's gradient (2.11 to 2.15, CPU) is wrong for one image whose gradient comes"
            " through flatten(2).transpose(1, 2), for a batch of height or width 1 if input or gradient are"
            " channels last, and for an instance norm of a batch through flatten(2).permute(2, 0, 1)"
        ),
        "reason": (
            "a defect of torch's kernel: in image models with a convolutional stem, trained one image at a"
            " time, and in networks over (N, C, L, 1)"
        ),
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_gradient_of_one_image_through_a_norm",
    },
    "inplace-activations": {
        "names": [
            "oneflow.nn.ELU",
            "oneflow.nn.ReLU6",
            "oneflow.nn.Hardswish",
            "oneflow.nn.Hardtanh",
            "oneflow.nn.SELU",
            "oneflow.nn.SiLU",
            "oneflow.nn.Mish",
        ],
        "oneflow": "inplace=True is ignored with a warning",
        "here": "torch's modules: in place, and a leaf that requires grad raises",
        "reason": "the documented meaning of the argument",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_inplace_is_honoured",
    },
    "ctor-extras": {
        "names": [
            "oneflow.nn.Dropout",
            "oneflow.nn.PixelShuffle",
            "oneflow.nn.Softsign",
            "oneflow.nn.Hardshrink",
            "oneflow.nn.Softshrink",
            "oneflow.nn.ConstantPad2d",
            "oneflow.nn.ParameterList",
            "oneflow.nn.AvgPool2d",
            "oneflow.nn.Embedding",
        ],
        "oneflow": (
            "generator=, h_upscale_factor=, inplace=, value=0, parameters=, divisor_override=0 meaning"
            " none, positional device and dtype"
        ),
        "here": (
            "accepted, besides torch's arguments; the classes are subclasses of torch's, and isinstance()"
            " knows torch's own modules"
        ),
        "reason": "both kinds of calls work",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_callers.py::test_classes_replace_torchs_classes",
    },
    "kw-F": {
        "names": [
            "oneflow.nn.functional.relu",
            "oneflow.nn.functional.leaky_relu",
            "oneflow.nn.functional.softshrink",
            "oneflow.nn.functional.prelu",
            "oneflow.nn.functional.upsample",
            "oneflow.nn.functional.gelu",
            "oneflow.nn.functional.dropout",
        ],
        "oneflow": "x= for the input, alpha= for the slope; upsample is the class nn.Upsample",
        "here": "OneFlow's names and torch's; upsample of a tensor is torch's function",
        "reason": "the names are disjoint",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_callers.py::test_functions_called_as_in_oneflow_equal_torchs",
    },
    "ddp": {
        "names": ["oneflow.nn.parallel.DistributedDataParallel"],
        "oneflow": "a function that adds hooks and returns the module; needs no process group",
        "here": (
            "the same call, of a class; the module answers .module and no_sync() as torch's wrapper does;"
            " torch's keywords (device_ids, ...) make torch's wrapper"
        ),
        "reason": "documented signature; a class keeps isinstance(model, DistributedDataParallel) valid",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_modules.py::test_ddp_on_one_process_returns_the_module",
    },
    "layer-keywords": {
        "names": [
            f"oneflow.nn.{name}"
            for name in ("Linear", "Conv2d", "Embedding", "LayerNorm", "MaxPool2d", "ReLU")
        ],
        "oneflow": "layers take their input by the keyword x (Embedding: indices)",
        "here": "by position, or by torch's keyword input",
        "reason": "the classes are torch's; a second keyword would slow each call of each layer down",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_layers_take_their_input_by_torchs_keyword",
    },
    "hardsigmoid-second-derivative": {
        "names": ["oneflow.nn.functional.hardsigmoid", "oneflow.nn.Hardsigmoid"],
        "oneflow": "the second derivative is zero",
        "here": "torch's error: it does not differentiate the gradient of hardsigmoid",
        "reason": "the operator is torch's",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_hardsigmoid_has_one_derivative",
    },
    "module-zero-grad": {
        "names": ["oneflow.nn.Module.zero_grad"],
        "oneflow": "set_to_none defaults to False: gradients become zeros",
        "here": "torch's: gradients become None",
        "reason": "oneflow.nn.Module is torch.nn.Module; OneFlow's optimizers zero_grad() keeps zeros",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_module_zero_grad_is_torchs",
    },
    "load-numpy": {
        "names": ["oneflow.nn.Module.load_state_dict"],
        "oneflow": "numpy arrays are accepted as values",
        "here": "the same",
        "reason": "an error of torch's turned into a result",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_modules.py::test_load_state_dict_takes_numpy",
    },
    "depend-order": {
        "names": ["oneflow.nn.functional.depend"],
        "oneflow": "in a graph, the first argument runs after the second",
        "here": "returns its first argument",
        "reason": "eager calls and captured programs run in the order of the source",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": _T + "test_nn_modules.py::test_small_functions_have_the_documented_values",
    },
    "module-repr": {
        "names": [
            "oneflow.nn.Conv2d",
            "oneflow.nn.AdaptiveAvgPool2d",
            "oneflow.nn.PixelShuffle",
            "oneflow.nn.Upsample",
        ],
        "oneflow": (
            "other text: tuples instead of numbers, PixelShufflev2, no details for some modules, repeated"
            " blocks printed separately"
        ),
        "here": "torch's texts",
        "reason": "cosmetic",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": _T + "test_nn_callers.py::test_classes_replace_torchs_classes",
    },
    "module-attrs": {
        "names": [
            "oneflow.nn.MaxPool2d",
            "oneflow.nn.Conv2d",
            "oneflow.nn.Upsample",
            "oneflow.nn.BCEWithLogitsLoss",
        ],
        "oneflow": "kernel_size, stride and padding are stored as tuples; pos_weight is not a buffer",
        "here": "torch's: as given; pos_weight is in state_dict()",
        "reason": "the objects are torch's",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_kept_as_torchs",
    },
    "packed-lengths": {
        "names": ["oneflow.nn.utils.rnn.pad_packed_sequence"],
        "oneflow": "the lengths are returned as float32",
        "here": "torch's: int64",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": _T + "test_nn_differences.py::test_kept_as_torchs",
    },
}
