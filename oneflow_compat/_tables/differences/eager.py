"""Differences of functions and tensors."""

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
            "0 and 1 are accepted as flags (x.sum(1, 1)), True as a number, and a tensor as the list of its"
            " rows (vstack(x))"
        ),
        "here": "torch's TypeError; pass keepdim=True, a number, or [*x]",
        "reason": "undocumented; checking each call of these functions would cost more than it gives",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_flags_are_bools_and_lists_are_lists",
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
            "accepts integers (glu), one size for all dimensions (adaptive_max_pool3d(x, (2,))),"
            " mode='bicubic' for volumes, bool operands (fmod, %), an output_padding as large as the stride"
            " (transposed convolution modules), and uses the first of two paddings (avg_pool1d)"
        ),
        "here": "torch's error",
        "reason": (
            "undocumented; torch has no such kernel, and a check in each call of these functions would cost"
            " more than it gives"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_inputs_that_torch_refuses",
    },
    "bool-arith": {
        "names": ["oneflow.Tensor.__sub__", "oneflow.Tensor.__truediv__", "oneflow.Tensor.__add__"],
        "oneflow": "bool / 2 is an integer division; bool + True counts (2)",
        "here": (
            "torch's: division gives floating point; differences of bool tensors, which torch refuses, give"
            " OneFlow's result"
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
            "the dtype is kept, as in torch; neg() of a bool tensor, which torch refuses, gives the default"
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
        "here": "torch's x.size(dim=0), x.to(y), Size([1]), float32.itemsize; positional calls agree",
        "reason": (
            "the objects are torch's, and we know no program that uses these keywords; wrapping size() and"
            " to() would slow down every program"
        ),
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_functions_golden.py::test_case",
    },
    "tensor-of-number": {
        "names": ["oneflow.Tensor", "oneflow.FloatTensor", "oneflow.LongTensor"],
        "oneflow": "Tensor(np.int64(3)) and Tensor(np.array(3)) contain the value 3",
        "here": "torch's: a tensor of three elements, as for Tensor(3); use oneflow.tensor",
        "reason": "Tensor methods and operators keep torch's meaning",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_golden.py::test_case",
    },
    "norm-mixed": {
        "names": ["oneflow.nn.LayerNorm", "oneflow.nn.BatchNorm1d", "oneflow.nn.functional.layer_norm"],
        "oneflow": "float64 data with float32 weights is accepted on the CPU",
        "here": "torch's error; call module.double() or x.float()",
        "reason": "the modules are torch's, and mixed dtypes are almost always a mistake",
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
        "here": "accepted with requires_grad=False, as in torch; otherwise torch's error",
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
        "oneflow": "functions of a transposed tensor return a row-major result",
        "here": (
            "torch's: the result has the layout of the operands; view() lays such a result out row by row"
            " first, unless another tensor sees its memory. Under torch.func and torch.compile, and for"
            " subclasses of Tensor, view() refuses it as torch does"
        ),
        "reason": "superset; both refuse view() of the transposed tensor itself",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_row",
    },
    "int-clamp": {
        "names": ["oneflow.clamp", "oneflow.clip"],
        "oneflow": "an integer tensor keeps its dtype and the bounds are truncated",
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
        "oneflow": "NaN is not propagated; the result depends on the element order",
        "here": "torch's: NaN propagates and sorts last",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "empty-reduce": {
        "names": ["oneflow.mean", "oneflow.prod", "oneflow.std", "oneflow.amax", "oneflow.amin"],
        "oneflow": "the result for empty or single-element tensors is 0",
        "here": "torch's: nan, 1, an error",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_reductions_of_empty_tensors_are_torchs",
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
        "oneflow": "gradients at special points differ (0 for NaN, shared between ties, always 0 for lgamma)",
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
        "test": "tests/core/test_functions_of_torch.py::test_shapes_of_0d_are_torchs",
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
        "test": "tests/core/test_functions_of_torch.py::test_splits_are_views",
    },
    "version-counter": {
        "names": ["oneflow.Tensor.backward"],
        "oneflow": "no check whether a saved tensor was changed",
        "here": "torch's check: RuntimeError at backward",
        "reason": "the gradient would be wrong",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_changing_a_saved_tensor_raises",
    },
    "np-interop": {
        "names": ["oneflow.Tensor.__array__"],
        "oneflow": "an array or NumPy scalar on the left gives an array",
        "here": (
            "array + - * ** // % @ & | ^ tensor, which torch refuses, give an array; comparisons, array /"
            " tensor, NumPy scalars and ufuncs give a tensor"
        ),
        "reason": (
            "superset; Tensor methods and operators keep torch's meaning; set_dialect('oneflow-0.9') changes"
            " them"
        ),
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_constructors.py::test_numpy_on_the_left",
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
        "test": "tests/core/test_functions_of_torch.py::test_shapes_of_0d_are_torchs",
    },
    # ------------------------------------------------------------------ functions: OneFlow's documented
    # meaning; `oneflow.set_dialect('torch')` switches these
    "np-float64-scalar": {
        "names": ["oneflow.tensor", "oneflow.as_tensor"],
        "oneflow": (
            "NumPy floating scalars, lists of them and lists of floating arrays become the default dtype"
            " (torch: keep their dtype)"
        ),
        "here": "OneFlow's; an array keeps its dtype",
        "reason": "NumPy scalars behave like Python numbers",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": (
            "tests/core/test_functions_creation.py::"
            "test_numpy_scalars_get_the_default_dtype_arrays_keep_theirs"
        ),
    },
    "error-classes": {
        "names": ["oneflow"],
        "oneflow": "each invalid call has an error class and a message",
        "here": (
            "nine of ten recorded invalid calls raise OneFlow's error class"
            " (tests/golden/refused_calls.json names the others); messages are not compared. If programs of"
            " both libraries catch an error, its class derives from both (an empty parameter list is an"
            " IndexError and a ValueError). AttributeError from OneFlow's Python layer is TypeError here."
            " x[::0] is Python's ValueError, which torch raises, and a RuntimeError in OneFlow"
        ),
        "reason": (
            "other functions are torch's: a check of each argument would slow down every call, and"
            " accepting dtypes or shapes that only OneFlow refuses is a superset"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_refused_arguments.py::test_misfit_arguments_are_refused_as_recorded",
    },
    "mock-device": {
        "names": ["oneflow.device", "oneflow.placement"],
        "oneflow": (
            "device('mock') and placement('mock', [0]) exist; tensors on it end the process, except for"
            " empty() and to()"
        ),
        "here": (
            "both exist, and rename torch's private backend when first used; every tensor on it raises"
            " RuntimeError"
        ),
        "reason": "torch has no allocator for this device",
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
            "without CUDA they return the local rank and None; other names of oneflow.cuda end the process"
        ),
        "here": "these three return the same; the others raise torch's error",
        "reason": (
            "the others are torch's functions; set_dialect('torch') selects torch's versions of these three"
            " too"
        ),
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
        "here": "device('cuda') is cuda:0; 'cpu' and 'cpu:0' have no index, because tensors report none",
        "reason": "x.device == oneflow.device('cuda') must hold",
        "severity": {"oneflow": "cosmetic", "torch": "cosmetic"},
        "test": "tests/core/test_namespace.py::test_device",
    },
    "version": {
        "names": ["oneflow.__version__", "oneflow.version.__version__"],
        "oneflow": "OneFlow's version",
        "here": (
            "1.0.0, which a version check written for torch reads as an old torch; torch's version under"
            " mock_torch and set_dialect('torch')"
        ),
        "reason": "programs written for OneFlow check OneFlow's version",
        "severity": {"oneflow": "superset", "torch": "breaks"},
        "test": "tests/clients/test_pytorch_names.py::test_the_version_a_program_sees",
    },
    "jit-noop": {
        "names": ["oneflow.jit.script", "oneflow.script"],
        "oneflow": "script and ignore return their argument",
        "here": (
            "oneflow.script does; oneflow.jit.script compiles, and returns its argument if TorchScript"
            " cannot compile it (an error in torch's dialect)"
        ),
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_small_names",
    },
    "function-identity": {
        "names": ["oneflow.add", "oneflow.matmul", "oneflow.cat", "oneflow.nn.functional.relu"],
        "oneflow": "its own functions",
        "here": (
            "a function that accepts more than torch's is another object; __torch_function__ receives"
            " torch's; after set_dialect('torch') both are the same object"
        ),
        "reason": "superset; only PyTorch programs look up functions in tables",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/clients/test_third_party.py::test_a_table_of_functions_for_torch_function",
    },
    # ------------------------------------------------------------------ functions: both callers are served
    "where-scalar": {
        "names": ["oneflow.where"],
        "oneflow": "a Python float counts as float64 and decides the dtype; integer conditions are accepted",
        "here": "integer conditions are accepted; Python numbers follow torch's promotion",
        "reason": "no program relies on the float64",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "std-false": {
        "names": ["oneflow.std", "oneflow.var"],
        "oneflow": "std(x, False) reduces dim 0",
        "here": "torch's: unbiased=False over all dimensions",
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
        "oneflow": "numbers are accepted on either side; max(x, True) is max(x, 1)",
        "here": "accepted",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_functions.py::test_value",
    },
    "int-masks": {
        "names": ["oneflow.where", "oneflow.masked_fill", "oneflow.masked_select"],
        "oneflow": "masks of any dtype; int8 tensors can be used as an index",
        "here": "masks of any dtype; an int8 index raises, as in torch",
        "reason": "superset; indexing is too performance-critical to wrap",
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
        "oneflow": "dim is optional",
        "here": "optional; the default is 0 for 0-, 1- and 3-dimensional tensors, else 1",
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
        "oneflow": "min(dim) and max(dim) divide the gradient among equal extrema: [0, 0.5, 0.5]",
        "here": (
            "torch's: the element at the returned index gets all of it: [0, 1, 0]; amin and amax divide it"
        ),
        "reason": "the functions are torch's, and they return the index of one element",
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
        "here": "accepted; computed in the common dtype",
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
            "bernoulli gives float32, randint_like int64; zeros_like drops strides; hann_window(1) gives"
            " int64; arange of floats gives float32, whatever the default dtype"
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
        "oneflow": "one element is missing for an integer dtype",
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
            "torch's generators: a seed gives other numbers; set_dialect('oneflow-0.9') selects OneFlow's"
            " generator on the CPU"
        ),
        "reason": "PyTorch programs and torch's kernels expect torch's streams",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    "type-strings": {
        "names": ["oneflow.Tensor.type", "oneflow.set_default_tensor_type", "oneflow.FloatTensor"],
        "oneflow": "'oneflow.FloatTensor'",
        "here": (
            "accepted as an argument; t.type() returns 'torch.FloatTensor'; isinstance(t,"
            " oneflow.FloatTensor) works as in torch"
        ),
        "reason": (
            "t.type() is torch's method, and PyTorch programs compare its result; t.type(dtype) and"
            " t.type(either string) convert"
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
        "oneflow": "works for tensors that require grad, tensors on the GPU, and bfloat16 (as float32)",
        "here": (
            "the same, and for conjugate and negative views; a copy in these cases, as in OneFlow; otherwise"
            " the memory is shared, as in torch"
        ),
        "reason": "OneFlow programs often call loss.numpy()",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": (
            "tests/core/test_tensor_constructors.py::"
            "test_numpy_shares_memory_where_torch_gives_an_array_and_copies_where_it_refuses"
        ),
    },
    "leaf-inplace": {
        "names": ["oneflow.Tensor.uniform_", "oneflow.Tensor.normal_", "oneflow.Tensor.copy_"],
        "oneflow": "allowed on a leaf that requires grad",
        "here": "allowed, and not recorded by autograd",
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
        "here": "both: torch's x.where(cond, y) if the first argument is boolean, else OneFlow's",
        "reason": "superset; for boolean tensors the call is ambiguous, and torch's meaning is used",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_where_with_a_boolean_condition_argument_stays_torchs",
    },
    "deepcopy-grad": {
        "names": ["oneflow.Tensor.__deepcopy__"],
        "oneflow": "a copied or pickled plain tensor loses requires_grad; a non-leaf is copied",
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
    "backward-of-a-complex-number": {
        "names": ["oneflow.Tensor.backward"],
        "oneflow": "backward() of one complex number starts from 1",
        "here": "the same; torch raises",
        "reason": "superset",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/core/test_tensor_table.py::test_backward_of_a_complex_number_starts_from_one",
    },
    "names-that-a-tensor-refuses": {
        "names": ["oneflow.Tensor.placement", "oneflow.Tensor.sbp"],
        "oneflow": "dir(tensor) lists them, and a local tensor raises RuntimeError",
        "here": "dir(tensor) lists them, and hasattr() is False: the error is an AttributeError, too",
        "reason": "they are properties of the class; torch does the same with imag",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": (
            "tests/core/test_tensor_table.py::test_a_tensor_lacks_the_names_of_global_tensors_and_blobs"
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
        "oneflow": "track_running_stats creates buffers that are never updated or used",
        "here": "torch's",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_golden_calls.py::test_known_difference",
    },
    # ------------------------------------------------------------------ text and errors
    "str-dtype": {
        "names": ["oneflow.dtype", "oneflow.Size", "oneflow.Tensor"],
        "oneflow": "'oneflow.float32'; the dtype is always printed",
        "here": "torch's text",
        "reason": "the objects are torch's",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_texts_are_torchs",
    },
    "exceptions": {
        "names": ["oneflow._oneflow_internal.exception.Exception"],
        "oneflow": "a separate exception class for autograd errors",
        "here": (
            "torch's RuntimeError, ValueError, IndexError; our errors are subclasses of RuntimeError, and of"
            " AssertionError where OneFlow asserts (optimizers, schedules, graph settings, creation"
            " functions)"
        ),
        "reason": "the errors are torch's",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_errors.py::test_wrong_calls_raise_torchs_error",
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
            "invalid arguments are accepted: topk clamps k, a dimension may appear twice, an index out of"
            " range gives zeros, a window may be larger than its input, dropout accepts p=2, len() of a 0-d"
            " tensor is 0"
        ),
        "here": "torch's checks",
        "reason": "they reject broken programs only",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_errors.py::test_wrong_calls_raise_torchs_error",
    },
    "autograd-names": {
        "names": ["oneflow.Tensor.grad_fn"],
        "oneflow": "name() is scalar_mul_backward; next_functions is flat",
        "here": "torch's",
        "reason": "the graph is torch's",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_texts_are_torchs",
    },
    "real-imag-attributes": {
        "names": ["oneflow.Tensor.real", "oneflow.Tensor.imag"],
        "oneflow": "1.0 has methods: x.real(), x.imag(); 0.9 has neither",
        "here": (
            "torch's attributes: x.real, x.imag; oneflow.real(x) and oneflow.imag(x) are the same in both"
        ),
        "reason": (
            "supporting both would require a callable tensor: a subclass would slow down its operators, and"
            " Tensor.__call__ would make callable(tensor) true everywhere"
        ),
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_parts_of_complex_numbers_are_attributes",
    },
    "no-grad-misc": {
        "names": ["oneflow.no_grad"],
        "oneflow": "`as` binds the context object; a decorated generator runs with grad",
        "here": "torch's",
        "reason": (
            "an undocumented quirk; torch's meaning stays, set_dialect('oneflow-0.9') changes it where a"
            " recorded call shows it"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_texts_are_torchs",
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
            " zero_ of a strided view, layer_norm with a weight but no bias, padding='same' with even"
            " kernels, products over no elements"
        ),
        "here": "torch's results",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_functions_of_torch.py::test_defects_are_not_reproduced",
    },
    "tensor-of-array": {
        "names": ["oneflow.Tensor", "oneflow.FloatTensor"],
        "oneflow": "Tensor(ndarray) and Tensor(tensor) copy",
        "here": (
            "copies, and so does torch.Tensor(ndarray or tensor) once oneflow is imported; torch alone"
            " shares the memory of a float32 array or tensor"
        ),
        "reason": (
            "the class is torch's, and torch does not document the sharing; torch.from_numpy and"
            " torch.as_tensor still share"
        ),
        "severity": {"oneflow": "superset", "torch": "cosmetic"},
        "test": "tests/core/test_tensor_constructors.py::test_a_tensor_of_an_array_owns_its_memory",
    },
    # ------------------------------------------------------------------ deep paths
    "remat-runtime": {
        "names": ["oneflow._oneflow_internal.remat"],
        "oneflow": "tensors are evicted and recomputed within a memory budget; counters report how often",
        "here": "the counters are 0; evict() and the CPU memory counter raise UnsupportedError",
        "reason": "torch evicts nothing; torch.utils.checkpoint recomputes activations on request",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_framework_helpers.py::test_rematerialisation_evicts_nothing",
    },
    "raw-reader-order": {
        "names": ["oneflow.nn.RawReader"],
        "oneflow": "blocks of records in a random order derived from random_seed",
        "here": "blocks in another order, which is the same for the same random_seed",
        "reason": "the order depends on OneFlow's random stream, which 0.9.0 does not document",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/core/test_deep_paths.py::test_raw_reader_gives_every_record_once_an_epoch",
    },
    "infer-compiler": {
        "names": ["oneflow.framework.infer_compiler"],
        "oneflow": "translates a torch module and its tensors into OneFlow's and keeps both",
        "here": "the torch module itself runs in an nn.Graph; package_names, dynamic and size have no effect",
        "reason": "modules and tensors are torch's; a graph keeps one program per input signature",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/core/test_framework_helpers.py::test_a_compiled_module_is_a_graph_over_its_parameters",
    },
    "graph-builder": {
        "names": ["oneflow._oneflow_internal.JobBuildAndInferCtx_Open", "oneflow._oneflow_internal.one"],
        "oneflow": (
            "its C++ graph builder, open to tests: the current job, feed and fetch operators, compiling"
        ),
        "here": "a manually built job gives shapes and dtypes (lazy tensors) but cannot be compiled",
        "reason": "a graph is captured by torch.fx; there is no second builder",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/core/test_framework_helpers.py::test_names_of_the_builder_are_missing_with_a_reason",
    },
    "graph-hooks": {
        "names": ["oneflow.nn.Graph", "oneflow.nn.Module.register_forward_hook"],
        "oneflow": "forward hooks and forward pre-hooks of modules do not run in a graph",
        "here": "they run when the graph is captured, and their computations are part of the program",
        "reason": "a graph computes what eager mode computes (weight_norm and spectral_norm are hooks)",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/clients/test_graph_internals.py::test_forward_hooks_are_part_of_a_graph",
    },
    "graph-job-message": {
        "names": ["oneflow.nn.Graph"],
        "oneflow": (
            "_graph_proto, _full_graph_proto and _compiled_graph_proto are the job before, between and"
            " after the compiler passes"
        ),
        "here": (
            "all three, and the OPERATOR lines of print(graph), list the captured program with OneFlow's"
            " operator and setting names, or ATen's if OneFlow has none; they are read-only"
        ),
        "reason": "programs are fx graphs of ATen operators; converters and tests read the job",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/clients/test_job_messages.py::test_the_captured_program_as_a_job_message",
    },
}
