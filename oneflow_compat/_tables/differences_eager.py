"""Differences of functions and tensors; see `differences.py`."""

EAGER = {
    # ------------------------------------------------------------------ operators and methods of Tensor:
    # torch's meaning
    "mod-sign": {
        "names": ["oneflow.Tensor.__mod__"],
        "oneflow": "the sign of the dividend: -7 % 3 = -1",
        "here": "torch's, the sign of the divisor: 2; oneflow.fmod is OneFlow's",
        "reason": (
            "Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "int-floordiv": {
        "names": ["oneflow.Tensor.__floordiv__", "oneflow.floor_divide"],
        "oneflow": "integers truncate toward zero: -7 // 2 = -3",
        "here": "torch's floor: -4",
        "reason": (
            "Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes them; the"
            " function is documented as a floor"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "int-0d-float": {
        "names": ["oneflow.Tensor.__add__", "oneflow.Tensor.__mul__", "oneflow.Tensor.__eq__"],
        "oneflow": "a 0-d tensor never raises the category of an N-d tensor: int64[2] + tensor(2.5) is int64",
        "here": "torch's promotion: float32; Python numbers promote alike in both",
        "reason": (
            "Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "bitwise-logical": {
        "names": ["oneflow.Tensor.__and__", "oneflow.Tensor.__or__", "oneflow.Tensor.__xor__"],
        "oneflow": "logical on every dtype: 5 & 3 is True",
        "here": (
            "bitwise on integers as in torch; floating operands, which torch refuses, give the logical result"
        ),
        "reason": (
            "Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "int-pow": {
        "names": ["oneflow.Tensor.__pow__", "oneflow.pow"],
        "oneflow": "integer tensor ** integer tensor is float32",
        "here": "torch's: integer; negative exponents raise",
        "reason": (
            "Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "argument-kinds": {
        "names": [
            "oneflow.sum",
            "oneflow.mean",
            "oneflow.prod",
            "oneflow.logsumexp",
            "oneflow.all",
            "oneflow.any",
            "oneflow.vstack",
            "oneflow.hstack",
            "oneflow.Tensor.requires_grad_",
            "oneflow.unique",
            "oneflow.eye",
        ],
        "oneflow": (
            "0 and 1 stand for flags (x.sum(1, 1)), True stands for a number, a tensor for the list of its"
            " rows (vstack(x))"
        ),
        "here": "torch's TypeError; keepdim=True, a number, [*x]",
        "reason": "undocumented; checking each call of these functions would cost more than it gives",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_flags_are_bools_and_lists_are_lists",
    },
    "inputs-torch-refuses": {
        "names": [
            "oneflow.nn.functional.glu",
            "oneflow.nn.functional.adaptive_max_pool3d",
            "oneflow.nn.functional.grid_sample",
            "oneflow.fmod",
            "oneflow.Tensor.__mod__",
            "oneflow.nn.ConvTranspose1d",
            "oneflow.nn.functional.avg_pool1d",
        ],
        "oneflow": (
            "takes integers (glu), a size of one element for all dimensions (adaptive_max_pool3d(x, (2,))),"
            " mode='bicubic' of volumes, bool operands (fmod, %), an output_padding that reaches the stride"
            " (the modules of transposed convolutions), the first of two paddings (avg_pool1d)"
        ),
        "here": "torch's error",
        "reason": (
            "undocumented; torch has no such kernel, and a check in each call of these functions would cost"
            " more than it gives"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_inputs_that_torch_refuses",
    },
    "bool-arith": {
        "names": ["oneflow.Tensor.__sub__", "oneflow.Tensor.__truediv__", "oneflow.Tensor.__add__"],
        "oneflow": "bool / 2 is an integer division; bool + True counts (2)",
        "here": (
            "torch's: division is floating; differences of bool tensors, which torch refuses, are OneFlow's"
        ),
        "reason": (
            "Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "aug-rebinding": {
        "names": ["oneflow.Tensor.__ifloordiv__", "oneflow.Tensor.__imod__", "oneflow.Tensor.__ipow__"],
        "oneflow": "//=, %=, **= bind a new tensor",
        "here": "in place as in torch",
        "reason": (
            "Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "int-neg-sign-square": {
        "names": ["oneflow.neg", "oneflow.sign", "oneflow.square"],
        "oneflow": "float32 for integer tensors",
        "here": (
            "the dtype is kept, as in torch; neg of a bool tensor, which torch refuses, gives the default"
            " dtype (-mask raises, as in torch)"
        ),
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "hot-methods": {
        "names": ["oneflow.Tensor.size", "oneflow.Tensor.to", "oneflow.Size", "oneflow.dtype"],
        "oneflow": "x.size(idx=0), x.to(other=y), Size(iterable=[1]), float32.bytes",
        "here": "torch's x.size(dim=0), x.to(y), Size([1]), float32.itemsize; by position both are the same",
        "reason": (
            "the objects are torch's, and no program known to us uses these keywords; wrapping size() and"
            " to() would slow every program"
        ),
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_functions_golden.py::test_case",
    },
    "tensor-of-number": {
        "names": ["oneflow.Tensor", "oneflow.FloatTensor", "oneflow.LongTensor"],
        "oneflow": "Tensor(np.int64(3)) and Tensor(np.array(3)) hold the number",
        "here": "torch's: three elements, as Tensor(3); oneflow.tensor holds the number",
        "reason": "Tensor methods and operators keep torch's meaning",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_golden.py::test_case",
    },
    "norm-mixed": {
        "names": ["oneflow.nn.LayerNorm", "oneflow.nn.BatchNorm1d", "oneflow.nn.functional.layer_norm"],
        "oneflow": "float64 data with float32 weights is accepted on the CPU",
        "here": "torch's error; module.double() or x.float()",
        "reason": "the modules are torch's, and a mixture is nearly always an oversight",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_golden.py::test_case",
    },
    "categorical-logits": {
        "names": ["oneflow.distributions.Categorical"],
        "oneflow": "Categorical(logits=x).logits is x",
        "here": "torch's: x - logsumexp(x)",
        "reason": "an undocumented quirk",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_functions_golden.py::test_case",
    },
    "integer-parameter": {
        "names": ["oneflow.nn.Parameter"],
        "oneflow": "Parameter(integer tensor) is accepted",
        "here": "with requires_grad=False, as in torch; without it torch's error",
        "reason": "integers have no gradient",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_golden.py::test_case",
    },
    "row-order": {
        "names": [
            "oneflow.Tensor.view",
            "oneflow.Tensor.stride",
            "oneflow.Tensor.is_contiguous",
            "oneflow.relu",
            "oneflow.add",
        ],
        "oneflow": "functions of a transposed tensor give a result laid out row by row",
        "here": "torch's: laid out as the operands; view() of such a result works, as a copy",
        "reason": "superset; a view of a transposed tensor itself is refused by both",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "int-clamp": {
        "names": ["oneflow.clamp", "oneflow.clip"],
        "oneflow": "an integer tensor keeps its dtype, the bounds are truncated",
        "here": "torch's promotion",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "nan-minmax": {
        "names": [
            "oneflow.max",
            "oneflow.min",
            "oneflow.maximum",
            "oneflow.minimum",
            "oneflow.argmax",
            "oneflow.sort",
            "oneflow.softmax",
            "oneflow.log_softmax",
        ],
        "oneflow": "NaN is not propagated; the result depends on the order",
        "here": "torch's: NaN propagates and sorts last",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "empty-reduce": {
        "names": ["oneflow.mean", "oneflow.prod", "oneflow.std", "oneflow.amax", "oneflow.amin"],
        "oneflow": "of empty or single-element tensors: 0",
        "here": "torch's: nan, 1, an error",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_reductions_of_empty_tensors_are_torchs",
    },
    "reduce-dtypes": {
        "names": [
            "oneflow.prod",
            "oneflow.any",
            "oneflow.all",
            "oneflow.argmax",
            "oneflow.quantile",
            "oneflow.bincount",
        ],
        "oneflow": (
            "prod keeps small integer dtypes; any and all of uint8 are bool; argmax(keepdim=True) alone is"
            " 0-d; quantile with a number and a dim is float64; any, all and logsumexp with dim=() reduce"
            " everything; bincount of integer weights is int64"
        ),
        "here": "torch's dtypes and shapes",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "lgamma-prod-grad": {
        "names": ["oneflow.lgamma", "oneflow.prod", "oneflow.norm", "oneflow.sqrt", "oneflow.atan2"],
        "oneflow": "gradients at special points differ (0 for NaN, ties shared, lgamma always 0)",
        "here": "torch's gradients",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "shape-0d": {
        "names": ["oneflow.flatten", "oneflow.index_select"],
        "oneflow": "flatten of a 0-d tensor stays 0-d; a 0-d index drops the dimension",
        "here": "torch's shapes",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_shapes_of_0d_are_torchs",
    },
    "aliasing": {
        "names": ["oneflow.tensor_split", "oneflow.hsplit", "oneflow.vsplit", "oneflow.Tensor.repeat"],
        "oneflow": "the splits are copies; repeat(1, ...) is a view",
        "here": "torch's: views, and a copy",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_splits_are_views",
    },
    "version-counter": {
        "names": ["oneflow.Tensor.backward"],
        "oneflow": "no check that a saved tensor was changed",
        "here": "torch's check: RuntimeError at backward",
        "reason": "the gradient would be wrong",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_changing_a_saved_tensor_raises",
    },
    "np-interop": {
        "names": ["oneflow.Tensor.__array__"],
        "oneflow": "an array or NumPy number on the left gives an array",
        "here": (
            "array + - * ** // % @ & | ^ tensor, which torch refuses, give an array; comparisons, array /"
            " tensor, NumPy numbers and ufuncs give a tensor"
        ),
        "reason": (
            "superset; Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes"
            " them"
        ),
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_numpy_on_the_left",
    },
    "state-dict-params": {
        "names": ["oneflow.nn.Module.state_dict"],
        "oneflow": "the Parameter objects themselves",
        "here": "torch's detached tensors sharing memory",
        "reason": "torch's tools rely on it",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "set-of-size": {
        "names": ["oneflow.Size"],
        "oneflow": "(1,) + t.shape is a tuple",
        "here": "torch.Size",
        "reason": "torch.Size is a tuple",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_shapes_of_0d_are_torchs",
    },
    # ------------------------------------------------------------------ functions: OneFlow's documented
    # meaning; `oneflow.set_dialect('torch')` switches these
    "np-float64-scalar": {
        "names": ["oneflow.tensor", "oneflow.as_tensor"],
        "oneflow": (
            "NumPy floating scalars, lists of them and lists of floating arrays get the default dtype (torch:"
            " their own)"
        ),
        "here": "OneFlow's; an array keeps its dtype",
        "reason": "Python and NumPy numbers are the same number",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": (
            "tests/core/test_functions_creation.py::"
            "test_numpy_scalars_get_the_default_dtype_arrays_keep_theirs"
        ),
    },
    "error-classes": {
        "names": ["oneflow"],
        "oneflow": "each refusal has a class of error and a text",
        "here": (
            "whether a call raises and the class are OneFlow's in nine of ten recorded misfit calls"
            " (tests/golden/refused_calls.json names the others); texts are never compared. A class that both"
            " libraries' programs catch derives from both (an empty parameter list is an IndexError and a"
            " ValueError). AttributeError of OneFlow's Python layer is a TypeError here"
        ),
        "reason": (
            "elsewhere the function is torch's own: a check of each argument would slow every call, and"
            " dtypes or shapes that only OneFlow refuses are a superset"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_refused_arguments.py::test_misfit_arguments_are_refused_as_recorded",
    },
    "mock-device": {
        "names": ["oneflow.device", "oneflow.placement"],
        "oneflow": (
            "device('mock') and placement('mock', [0]) exist; tensors on it end the process, but for empty"
            " and to()"
        ),
        "here": (
            "both exist, and take the name of torch's private backend when first asked for; every tensor on"
            " it is a RuntimeError"
        ),
        "reason": "torch has no allocator for it",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_refused_arguments.py::test_a_mock_device_is_a_type_without_tensors",
    },
    "device-types": {
        "names": ["oneflow.device", "oneflow.placement"],
        "oneflow": (
            "cpu, cuda and mock; device(0), device(type=, index=) and device(device) are TypeErrors;"
            " device('cpu:-1') is cpu:0"
        ),
        "here": (
            "also meta and the accelerator of this build of torch; all spellings of torch.device; an index"
            " below 0 is an error"
        ),
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_refused_arguments.py::test_accepted_as_in_oneflow",
    },
    "cuda-missing": {
        "names": ["oneflow.cuda.current_device", "oneflow.cuda.set_device", "oneflow.cuda.synchronize"],
        "oneflow": (
            "without CUDA they answer the local rank and None; other names of oneflow.cuda end the process"
        ),
        "here": "the three answer the same; the others raise torch's error",
        "reason": "torch's functions; set_dialect('torch') gives torch's three as well",
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/core/test_refused_arguments.py::test_the_current_device_without_cuda_is_the_rank",
    },
    "isclose-positional": {
        "names": ["oneflow.isclose", "oneflow.allclose"],
        "oneflow": "(input, other, atol, rtol); torch: (input, other, rtol, atol)",
        "here": "OneFlow's positions in the functions, torch's in the Tensor methods",
        "reason": (
            "documented signature; Tensor methods and operators keep torch's meaning;"
            " set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/core/test_functions.py::test_dialect_switches_isclose_and_norm",
    },
    "norm-matrix": {
        "names": ["oneflow.norm", "oneflow.Tensor.norm"],
        "oneflow": "p = 1, -1, inf, -inf of a matrix is the matrix norm",
        "here": "OneFlow's in the function, torch's in the Tensor method",
        "reason": (
            "documented formula; Tensor methods and operators keep torch's meaning;"
            " set_dialect('oneflow-0.9') changes them"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "changes numbers"},
        "test": "tests/core/test_functions.py::test_dialect_switches_isclose_and_norm",
    },
    "device-index": {
        "names": ["oneflow.device"],
        "oneflow": "device('cuda') is cuda:0, device('cpu') is cpu:0",
        "here": "device('cuda') is cuda:0; 'cpu' and 'cpu:0' have no number, since tensors report it so",
        "reason": "x.device == oneflow.device('cuda') must hold",
        "severity": {"oneflow": "cosmetic", "torch": "cosmetic"},
        "test": "tests/core/test_namespace.py::test_device",
    },
    "version": {
        "names": ["oneflow.__version__", "oneflow.version.__version__"],
        "oneflow": "OneFlow's version",
        "here": (
            "1.0.0, which a check written for torch takes for an old torch; torch's version under mock_torch"
            " and set_dialect('torch')"
        ),
        "reason": "programs written for OneFlow ask for OneFlow's version",
        "severity": {"oneflow": "superset", "torch": "breaks"},
        "test": "tests/clients/test_pytorch_names.py::test_the_version_a_program_sees",
    },
    "jit-noop": {
        "names": ["oneflow.jit.script", "oneflow.script"],
        "oneflow": "script and ignore give back their argument",
        "here": (
            "oneflow.script does; oneflow.jit.script compiles, and gives back what TorchScript cannot compile"
            " (an error in torch's dialect)"
        ),
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_small_names",
    },
    "function-identity": {
        "names": ["oneflow.add", "oneflow.matmul", "oneflow.cat", "oneflow.nn.functional.relu"],
        "oneflow": "functions of its own",
        "here": (
            "a function that takes more than torch's is another object: __torch_function__ is handed torch's;"
            " the same object after set_dialect('torch')"
        ),
        "reason": "superset; programs that look functions up in tables of their own are PyTorch programs",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/clients/test_third_party.py::test_a_table_of_functions_for_torch_function",
    },
    # ------------------------------------------------------------------ functions: both callers are served
    "where-scalar": {
        "names": ["oneflow.where"],
        "oneflow": "a Python float is float64 and decides the dtype; integer conditions are accepted",
        "here": "integer conditions are accepted; numbers take torch's dtype",
        "reason": "no program relies on the float64",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "std-false": {
        "names": ["oneflow.std", "oneflow.var"],
        "oneflow": "std(x, False) reduces dim 0",
        "here": "torch's: unbiased=False over everything",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "scalar-first": {
        "names": [
            "oneflow.eq",
            "oneflow.ne",
            "oneflow.lt",
            "oneflow.le",
            "oneflow.gt",
            "oneflow.ge",
            "oneflow.logical_and",
            "oneflow.logical_or",
            "oneflow.logical_xor",
            "oneflow.max",
            "oneflow.min",
        ],
        "oneflow": "numbers on either side; max(x, True) is max(x, 1)",
        "here": "accepted",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "int-masks": {
        "names": ["oneflow.where", "oneflow.masked_fill", "oneflow.masked_select"],
        "oneflow": "masks of any dtype; int8 tensors index",
        "here": "masks of any dtype; an int8 index raises, as in torch",
        "reason": "superset; indexing is too hot to wrap",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "int-inputs": {
        "names": [
            "oneflow.std",
            "oneflow.argmax",
            "oneflow.topk",
            "oneflow.bincount",
            "oneflow.relu",
            "oneflow.logaddexp",
        ],
        "oneflow": "integer and bool tensors are accepted",
        "here": "accepted (fmod of bool is not)",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "softmax-dim": {
        "names": ["oneflow.softmax", "oneflow.log_softmax"],
        "oneflow": "dim may be left out",
        "here": "accepted: 0 for 0-, 1- and 3-dimensional tensors, else 1",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "tie-order": {
        "names": ["oneflow.sort", "oneflow.argsort", "oneflow.topk", "oneflow.unique"],
        "oneflow": "equal keys keep their order; unique(sorted=False) has the order of appearance",
        "here": "the same in oneflow.sort, argsort and unique; topk and Tensor.unique have torch's order",
        "reason": "superset where torch offers it",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "tie-gradients": {
        "names": ["oneflow.Tensor.min", "oneflow.Tensor.max", "oneflow.min", "oneflow.max"],
        "oneflow": "min(dim) and max(dim) share the gradient among equal extrema: [0, 0.5, 0.5]",
        "here": "torch's: the element at the returned index takes all: [0, 1, 0]; amin and amax share it",
        "reason": "the functions are torch's own; the index that they return names one element",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_differences_eager.py::test_the_returned_index_takes_the_gradient_of_a_tie",
    },
    "split-of-scalar": {
        "names": ["oneflow.split", "oneflow.Tensor.split"],
        "oneflow": "a 0-d tensor and a split size of 0 end the process of 0.9.0 with a failed check",
        "here": "RuntimeError, as in torch",
        "reason": "an error can be caught",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_differences_eager.py::test_a_tensor_that_cannot_be_split_raises",
    },
    "stft-default": {
        "names": ["oneflow.stft"],
        "oneflow": "return_complex=False by default",
        "here": "the same; True works",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/core/test_functions.py::test_stft_is_real_by_default",
    },
    "mixed-matmul": {
        "names": ["oneflow.matmul", "oneflow.mm", "oneflow.bmm", "oneflow.Tensor.__matmul__"],
        "oneflow": "operands of different dtypes are accepted",
        "here": "computed in the common dtype",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "kw-x": {
        "names": ["oneflow.softmax", "oneflow.split", "oneflow.cat", "oneflow.stack"],
        "oneflow": "x=, inputs=, shape=, values=, indices_or_sections=, dim0=",
        "here": "both libraries' keyword names",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "extra-args": {
        "names": [
            "oneflow.matmul",
            "oneflow.bmm",
            "oneflow.argmax",
            "oneflow.add",
            "oneflow.zeros",
            "oneflow.gather",
            "oneflow.unique",
        ],
        "oneflow": (
            "transpose_a, transpose_b, alpha, inplace=, dtype=, placement=, sbp=; keyword arguments of torch"
            " by position"
        ),
        "here": "accepted",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "dtype-float-creation": {
        "names": [
            "oneflow.bernoulli",
            "oneflow.randint_like",
            "oneflow.zeros_like",
            "oneflow.hann_window",
            "oneflow.arange",
        ],
        "oneflow": (
            "bernoulli is float32, randint_like int64; zeros_like drops strides; hann_window(1) is int64;"
            " arange of floats is float32 whatever the default dtype"
        ),
        "here": "torch's dtypes and strides; bernoulli(dtype=) is accepted",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "index-int32": {
        "names": ["oneflow.argsort", "oneflow.sort", "oneflow.argwhere", "oneflow.unique"],
        "oneflow": "indices are int32",
        "here": "int64; argwhere and unique take dtype=",
        "reason": "int64 is usable wherever int32 is, and torch programs need it",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "linspace-int": {
        "names": ["oneflow.linspace"],
        "oneflow": "with an integer dtype one element is missing",
        "here": "torch's",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "rng-streams": {
        "names": [
            "oneflow.manual_seed",
            "oneflow.rand",
            "oneflow.randn",
            "oneflow.randint",
            "oneflow.randperm",
            "oneflow.bernoulli",
            "oneflow.normal",
            "oneflow.Tensor.uniform_",
            "oneflow.Tensor.normal_",
        ],
        "oneflow": "a CPU generator of its own (MT19937, sequential)",
        "here": (
            "torch's generators: a seed gives other numbers; set_dialect('oneflow-0.9') gives OneFlow's on"
            " the CPU"
        ),
        "reason": "torch's streams are those of PyTorch programs and of its kernels",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "type-strings": {
        "names": ["oneflow.Tensor.type", "oneflow.set_default_tensor_type", "oneflow.FloatTensor"],
        "oneflow": "'oneflow.FloatTensor'",
        "here": (
            "accepted where a type is asked for; t.type() says 'torch.FloatTensor'; isinstance(t,"
            " oneflow.FloatTensor) works as in torch"
        ),
        "reason": (
            "t.type() is torch's own method, whose text PyTorch programs compare; t.type() of a dtype or of"
            " either string converts, so programs that only convert need no text"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "tensor-ctor": {
        "names": [
            "oneflow.Tensor",
            "oneflow.FloatTensor",
            "oneflow.tensor",
            "oneflow.BFloat16Tensor",
            "oneflow.BoolTensor",
            "oneflow.ByteTensor",
            "oneflow.CharTensor",
            "oneflow.DoubleTensor",
            "oneflow.HalfTensor",
            "oneflow.IntTensor",
            "oneflow.LongTensor",
            "oneflow.ShortTensor",
        ],
        "oneflow": (
            "Tensor(1.5), FloatTensor(int tensor), negative strides and wrapping integers are accepted"
        ),
        "here": (
            "the same; Tensor() also takes a tensor with a device, a device other than the CPU, placement"
            " and sbp"
        ),
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions_creation.py::test_tensor_takes_what_torch_refuses",
    },
    # ------------------------------------------------------------------ methods of Tensor: both callers are
    # served
    "numpy-requires-grad": {
        "names": ["oneflow.Tensor.numpy"],
        "oneflow": "works for tensors that require grad, on the GPU, and bfloat16 (float32)",
        "here": "the same; a copy in these cases as in OneFlow, shared memory where torch shares it",
        "reason": "loss.numpy() is everywhere in OneFlow code",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": (
            "tests/core/test_tensor_table.py::"
            "test_numpy_shares_memory_where_torch_gives_an_array_and_copies_where_it_refuses"
        ),
    },
    "leaf-inplace": {
        "names": ["oneflow.Tensor.uniform_", "oneflow.Tensor.normal_", "oneflow.Tensor.copy_"],
        "oneflow": "allowed on a leaf that requires grad",
        "here": "allowed, not recorded",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": (
            "tests/core/test_tensor_table.py::"
            "test_filling_a_leaf_leaves_it_a_leaf_and_other_changes_still_raise"
        ),
    },
    "copy-numpy": {
        "names": ["oneflow.Tensor.copy_"],
        "oneflow": "from a NumPy array; returns None",
        "here": "accepted; returns the tensor",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "tensor-where": {
        "names": ["oneflow.Tensor.where"],
        "oneflow": "cond.where(x, y)",
        "here": "both: a boolean first argument is torch's x.where(cond, y), else OneFlow's",
        "reason": "superset; ambiguous only for boolean values, where torch's meaning holds",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_where_with_a_boolean_condition_argument_stays_torchs",
    },
    "deepcopy-grad": {
        "names": ["oneflow.Tensor.__deepcopy__"],
        "oneflow": "a plain tensor loses requires_grad; a non-leaf is copied; so does a pickled one",
        "here": "a non-leaf is copied detached; a leaf keeps requires_grad, as in torch",
        "reason": "superset",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "int-inplace-float": {
        "names": [
            "oneflow.Tensor.__iadd__",
            "oneflow.Tensor.__isub__",
            "oneflow.Tensor.__imul__",
            "oneflow.Tensor.add_",
            "oneflow.Tensor.clamp_",
        ],
        "oneflow": (
            "an integer tensor += a floating tensor, and clamp_ with floating bounds, truncate the operand"
            " first"
        ),
        "here": "the same; a Python float raises in both",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": (
            "tests/core/test_tensor_table.py::test_integer_in_place_keeps_the_tensor_and_numbers_still_raise"
        ),
    },
    "nonleaf-rg-false": {
        "names": ["oneflow.Tensor.requires_grad_"],
        "oneflow": "requires_grad_(False) on a non-leaf",
        "here": "detached in place",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "hooks": {
        "names": ["oneflow.Tensor.register_hook", "oneflow.nn.Module.register_forward_hook"],
        "oneflow": "return None",
        "here": "torch's handle",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_a_hook_gives_a_handle",
    },
    # ------------------------------------------------------------------ nn
    "normalize-eps": {
        "names": ["oneflow.nn.functional.normalize"],
        "oneflow": "x / sqrt(max(sum x^2, eps)); a fifth argument use_l2_norm_kernel",
        "here": "torch's formula; the fifth argument is accepted",
        "reason": "differs for vectors shorter than 1e-6 only",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "instancenorm-running": {
        "names": ["oneflow.nn.InstanceNorm2d"],
        "oneflow": "track_running_stats keeps buffers that are never updated or used",
        "here": "torch's",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    # ------------------------------------------------------------------ text and errors
    "str-dtype": {
        "names": ["oneflow.dtype", "oneflow.Size", "oneflow.Tensor"],
        "oneflow": "'oneflow.float32', dtype always printed",
        "here": "torch's text",
        "reason": "the objects are torch's",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_texts_are_torchs",
    },
    "exceptions": {
        "names": ["oneflow._oneflow_internal.exception.Exception"],
        "oneflow": "its own exception class for autograd errors",
        "here": (
            "torch's RuntimeError, ValueError, IndexError; our errors are subclasses of RuntimeError, and of"
            " AssertionError where OneFlow asserts (optimizers, schedules, graph settings, creation"
            " functions)"
        ),
        "reason": "the errors are torch's",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_wrong_calls_raise_torchs_error",
    },
    "no-check": {
        "names": [
            "oneflow.topk",
            "oneflow.roll",
            "oneflow.eye",
            "oneflow.amax",
            "oneflow.permute",
            "oneflow.index_select",
            "oneflow.gather",
            "oneflow.nn.functional.dropout",
            "oneflow.nn.functional.max_pool2d",
            "oneflow.zeros",
            "oneflow.Tensor.__len__",
        ],
        "oneflow": (
            "wrong arguments pass: topk clamps k, a dimension may be named twice, an index out of range gives"
            " zeros, a window may be larger than its input, dropout takes p=2, len() of a 0-d tensor is 0"
        ),
        "here": "torch's checks",
        "reason": "they reject broken programs only",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_wrong_calls_raise_torchs_error",
    },
    "autograd-names": {
        "names": ["oneflow.Tensor.grad_fn"],
        "oneflow": "name() is scalar_mul_backward; next_functions is flat",
        "here": "torch's",
        "reason": "the graph is torch's",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_texts_are_torchs",
    },
    "real-imag-attributes": {
        "names": ["oneflow.Tensor.real", "oneflow.Tensor.imag"],
        "oneflow": "1.0 has methods: x.real(), x.imag(); 0.9 has neither",
        "here": (
            "torch's attributes: x.real, x.imag; oneflow.real(x) and oneflow.imag(x) are the same in both"
        ),
        "reason": (
            "a result that serves both meanings must be a tensor that can be called: a subclass, which slows"
            " every operator on it, or a Tensor.__call__, which makes callable(tensor) true everywhere"
        ),
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_parts_of_complex_numbers_are_attributes",
    },
    "no-grad-misc": {
        "names": ["oneflow.no_grad"],
        "oneflow": "`as` gives the object; a decorated generator runs with grad",
        "here": "torch's",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_texts_are_torchs",
    },
    "of-bugs": {
        "names": [
            "oneflow.roll",
            "oneflow.cat",
            "oneflow.std",
            "oneflow.repeat_interleave",
            "oneflow.narrow",
            "oneflow.Tensor.fill_",
            "oneflow.nn.functional.layer_norm",
            "oneflow.nn.Conv2d",
            "oneflow.matmul",
        ],
        "oneflow": (
            "crashes and wrong results of 0.9.0: rolls, repeat_interleave(x, 0), narrow from -1, fill_ and"
            " zero_ of a strided view, layer_norm with a weight alone, padding='same' of even kernels,"
            " products over no elements"
        ),
        "here": "torch's results",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_defects_are_not_reproduced",
    },
    "tensor-of-array": {
        "names": ["oneflow.Tensor", "oneflow.FloatTensor"],
        "oneflow": "Tensor(ndarray) and Tensor(tensor) copy",
        "here": (
            "copies, and so does torch.Tensor(ndarray or tensor) once oneflow is imported; torch alone shares"
            " the memory of a float32 array, and of a tensor"
        ),
        "reason": (
            "the class is torch's, and torch documents no sharing for it; torch.from_numpy and"
            " torch.as_tensor share as ever"
        ),
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/core/test_tensor_table.py::test_a_tensor_of_an_array_owns_its_memory",
    },
    # ------------------------------------------------------------------ deep paths
    "remat-runtime": {
        "names": ["oneflow._oneflow_internal.remat"],
        "oneflow": "tensors are evicted and computed again within a memory budget; counters tell how often",
        "here": "the counters are 0, evict() and the count of CPU memory raise UnsupportedError",
        "reason": "torch evicts nothing; torch.utils.checkpoint recomputes activations where asked",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_deep_paths.py::test_rematerialisation_counts_nothing_and_evicts_nothing",
    },
    "raw-reader-order": {
        "names": ["oneflow.nn.RawReader"],
        "oneflow": "blocks of records in an order drawn from random_seed",
        "here": "blocks in another order, the same one for the same random_seed",
        "reason": "the order is OneFlow's random stream, which 0.9.0 does not document",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_deep_paths.py::test_raw_reader_gives_every_record_once_an_epoch",
    },
    "infer-compiler": {
        "names": ["oneflow.framework.infer_compiler"],
        "oneflow": "translates a torch module and its tensors into OneFlow's and keeps both",
        "here": (
            "the torch module itself runs in an nn.Graph; package_names, dynamic and size have nothing to do"
        ),
        "reason": "modules and tensors are torch's; a graph keeps one program per input signature",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_deep_paths.py::test_a_compiled_module_is_a_graph_over_the_same_parameters",
    },
    "graph-builder": {
        "names": ["oneflow._oneflow_internal.JobBuildAndInferCtx_Open", "oneflow._oneflow_internal.one"],
        "oneflow": (
            "its C++ graph builder, open to tests: the current job, feed and fetch operators, compiling"
        ),
        "here": "a job built by hand gives shapes and dtypes (lazy tensors); it cannot be compiled",
        "reason": "a graph is captured by torch.fx; there is no second builder",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_deep_paths.py::test_what_the_builder_alone_has_is_missing_with_a_reason",
    },
    "graph-hooks": {
        "names": ["oneflow.nn.Graph", "oneflow.nn.Module.register_forward_hook"],
        "oneflow": "forward hooks and forward pre-hooks of modules do not run in a graph",
        "here": "they run when the graph is built, and what they compute is part of the program",
        "reason": "a graph computes what eager mode computes (weight_norm and spectral_norm are hooks)",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/clients/test_graph_internals.py::test_forward_hooks_are_part_of_a_graph",
    },
    "graph-job-message": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": (
            "_graph_proto, _full_graph_proto and _compiled_graph_proto are the job before, between and after"
            " its compiler's passes"
        ),
        "here": (
            "all three, and the OPERATOR lines of print(graph), list the captured program under OneFlow's"
            " operator and setting names where it has them, else under ATen's; for reading only"
        ),
        "reason": "programs are fx graphs of ATen operators; converters and tests read the job",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/clients/test_graph_internals.py::test_the_captured_program_as_a_job_message",
    },
}
