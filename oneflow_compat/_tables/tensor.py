"""What OneFlow's Tensor has and torch's lacks or refuses: the whole difference of torch.Tensor.

TENSOR[name] = (kind, "module:function", why); kind as in `_torch_attributes.add_attributes`. A row only turns
an error into a result; it never changes what correct torch code gets (one exception: "__init__").
"""

_G = "_global.tensor:"
_M = "_ops.tensor_methods:"
_X = "_ops.tensor_extended:"
_B = "_ops.bool_arithmetic:"
_A = "_ops.tensor_arrays:"
_I = "_ops.tensor_arithmetic:"

TENSOR = {
    # global tensors
    "is_global": ("property", _G + "is_global", "true for a tensor with a placement"),
    "is_local": ("property", _G + "is_local", "true for an ordinary tensor"),
    "is_consistent": ("method", _G + "is_consistent", "old name of is_global, raises as in OneFlow"),
    "placement": ("property", _G + "placement", "device type and ranks of a global tensor"),
    "sbp": ("property", _G + "sbp", "rules of a global tensor"),
    "to_global": ("builtin", _G + "to_global", "make global, or move"),
    "to_local": ("builtin", _G + "to_local", "shard of this rank"),
    "to_consistent": ("method", _G + "to_consistent", "old name of to_global, raises as in OneFlow"),
    "global_to_global": ("builtin", _G + "global_to_global", "to_global of a global tensor"),
    "local_to_global": ("builtin", _G + "local_to_global", "to_global of a local tensor"),
    "global_id": ("method", _G + "global_id", "number of a global tensor"),
    "check_meta_consistency": ("method", _G + "check_meta_consistency", "agreement over ranks"),
    # state
    "is_lazy": ("property", _M + "is_lazy", "true while a graph is captured"),
    "is_eager": ("property", _M + "is_eager", "true outside capture"),
    "is_view": ("method", _M + "is_view", "made as a view"),
    # values, dtype, memory
    "cast": ("method", _M + "cast", "to(dtype)"),
    "contiguous_": ("method", _M + "contiguous_", "contiguous in place"),
    "to_numpy": ("method", _M + "to_numpy", "numpy()"),
    "zeros_": ("method", _M + "zeros_", "older name of zero_"),
    "offload": ("method", _M + "offload", "values to host memory"),
    "load": ("method", _M + "load", "values back from host memory"),
    "is_offloaded": ("method", _M + "is_offloaded", "true between offload and load"),
    # names that OneFlow's own tests use
    "_register_post_grad_accumulation_hook": (
        "method",
        _M + "post_grad_accumulation_hook",
        "changes the summed gradient of a leaf",
    ),
    "_zero_grad_": ("method", _M + "zero_grad", "gradient of zeros"),
    "_copy_from_numpy": ("method", _M + "copy_from_numpy", "values of an array"),
    "_copy_to_numpy": ("method", _M + "copy_to_numpy", "values into an array"),
    "_meta_repr": ("method", _M + "meta_repr", "text without values"),
    # functions that torch has elsewhere
    "gelu": ("method", _M + "gelu", "nn.functional.gelu"),
    "mish": ("method", _M + "mish", "nn.functional.mish"),
    "selu": ("method", _M + "selu", "nn.functional.selu"),
    "silu": ("method", _M + "silu", "nn.functional.silu"),
    "softplus": ("method", _M + "softplus", "nn.functional.softplus"),
    "softsign": ("method", _M + "softsign", "nn.functional.softsign"),
    "in_top_k": ("method", _M + "in_top_k", "oneflow.in_top_k"),
    "nms": ("method", _M + "nms", "oneflow.nms"),
    "trunc_normal_": ("method", _M + "trunc_normal_", "nn.init.trunc_normal_"),
    "xavier_normal_": ("method", _M + "xavier_normal_", "nn.init.xavier_normal_"),
    "xavier_uniform_": ("method", _M + "xavier_uniform_", "nn.init.xavier_uniform_"),
    "kaiming_normal_": ("method", _M + "kaiming_normal_", "nn.init.kaiming_normal_"),
    "kaiming_uniform_": ("method", _M + "kaiming_uniform_", "nn.init.kaiming_uniform_"),
    "orthogonal_": ("method", _M + "orthogonal_", "nn.init.orthogonal_"),
    # torch.Tensor(ndarray) and torch.Tensor(tensor) own their memory, as in OneFlow; torch's share it without
    # saying so anywhere
    "__init__": ("replace", _M + "init", "of a NumPy array: its own memory"),
    # and constructors torch refuses
    "__new__": (
        "replace",
        _M + "new",
        (
            "of a tensor: its own memory; Tensor(1.5); Tensor(tensor, device=); on a GPU; dtype=,"
            " requires_grad=; placement=, sbp="
        ),
    ),
    # calls torch refuses
    "numpy": (
        "replace",
        _X + "numpy",
        "of a tensor that requires grad, on another device, or bfloat16; numpy(dtype)",
    ),
    "uniform_": ("replace", _X + "uniform_", "on a leaf that requires grad; a=, b="),
    "normal_": ("replace", _X + "normal_", "on a leaf that requires grad"),
    "exponential_": ("replace", _X + "exponential_", "generator by position"),
    "copy_": ("replace", _X + "copy_", "from a NumPy array; on a leaf that requires grad"),
    "requires_grad_": (
        "replace",
        _X + "requires_grad_",
        "requires_grad_(False) of a tensor that is not a leaf",
    ),
    "backward": ("replace", _X + "backward", "of one complex number, without a gradient"),
    "__format__": (
        "replace",
        _X + "format_",
        "a number format for a parameter or a global tensor without dimensions",
    ),
    "__deepcopy__": ("replace", _X + "deepcopy", "of a tensor that is not a leaf"),
    "__iadd__": ("replace", _I + "added", "integer tensor += floating tensor"),
    "__isub__": ("replace", _I + "changed", "integer tensor -= floating tensor; -= bool tensor"),
    "__imul__": ("replace", _I + "changed", "integer tensor *= floating tensor"),
    "add_": ("replace", _I + "added", "of an integer tensor with a floating tensor"),
    "sub_": ("replace", _I + "changed", "of an integer tensor with a floating tensor; with a bool tensor"),
    "mul_": ("replace", _I + "changed", "of an integer tensor with a floating tensor"),
    **{
        name: ("replace", _I + "clamped", "truncated bounds of an integer tensor")
        for name in ("clamp_", "clip_", "clamp_min_")
    },
    "squeeze": ("replace", _X + "squeeze", "dim=None"),
    "logaddexp": ("replace", _X + "logaddexp", "of integer tensors"),
    "scatter": ("replace", _X + "scatter", "src= a number"),
    "flip": ("replace", _X + "flip", "dims= a number"),
    "scatter_add": ("replace", _X + "scatter_add", "with a number"),
    "addcdiv": ("replace", _X + "addcdiv", "of integer tensors"),
    "addcdiv_": ("replace", _I + "quotient_added", "of integer tensors"),
    "cross": ("replace", _X + "cross", "of tensors that broadcast"),
    "__floordiv__": ("replace", _I + "floor_divided", "gradients"),
    "floor_divide": ("replace", _I + "floor_divided", "gradients"),
    **{name: ("replace", _B + "negative", "of a bool tensor") for name in ("neg", "negative")},
    **{
        name: (
            "replace",
            _M + "view",
            "of a result that OneFlow lays out row by row and torch as its operands",
        )
        for name in ("view", "view_as")
    },
    "__radd__": ("replace", _A + "reflected", "array + tensor"),
    "__rsub__": ("replace", _B + "rminus", "array - tensor; number - bool tensor"),
    "__sub__": ("replace", _B + "minus", "of bool tensors"),
    "sub": ("replace", _B + "sub", "of bool tensors"),
    "subtract": ("replace", _B + "sub", "of bool tensors"),
    "__rmul__": ("replace", _A + "reflected", "array * tensor"),
    "__rpow__": ("replace", _A + "reflected", "array ** tensor"),
    "__rfloordiv__": ("replace", _A + "reflected", "array // tensor"),
    "__rmod__": ("replace", _A + "reflected", "array % tensor"),
    "__rmatmul__": ("replace", _A + "reflected", "array @ tensor"),
    "__rand__": ("replace", _A + "reflected", "array & tensor; number & floating tensor"),
    "__ror__": ("replace", _A + "reflected", "array | tensor; number | floating tensor"),
    "__rxor__": ("replace", _A + "reflected", "array ^ tensor; number ^ floating tensor"),
    "__gt__": ("replace", _A + "compared", "tensor > array"),
    "__ge__": ("replace", _A + "compared", "tensor >= array"),
    "__lt__": ("replace", _A + "compared", "tensor < array"),
    "__le__": ("replace", _A + "compared", "tensor <= array"),
    "__ne__": ("replace", _A + "compared", "tensor != array"),
    "__matmul__": ("replace", _X + "matmul", "different dtypes"),
    "matmul": ("replace", _X + "matmul", "different dtypes; transpose_a, transpose_b, alpha"),
    "mm": ("replace", _X + "mm", "different dtypes"),
    "bmm": ("replace", _X + "bmm", "different dtypes; transpose_a, transpose_b, alpha"),
    "masked_fill": ("replace", _X + "masked", "mask of any dtype"),
    "masked_fill_": ("replace", _X + "masked", "mask of any dtype"),
    "masked_select": ("replace", _X + "masked", "mask of any dtype"),
    "__and__": ("replace", _X + "logical_and", "floating operands: logical"),
    "__or__": ("replace", _X + "logical_or", "floating operands: logical"),
    "__xor__": ("replace", _X + "logical_xor", "floating operands: logical"),
    "where": ("replace", _X + "where", "cond.where(x, y)"),
    "argmax": ("replace", _X + "argmax", "dtype=; bool tensors"),
    "argmin": ("replace", _X + "argmin", "dtype=; bool tensors"),
    "topk": ("replace", _X + "topk", "dim=None; bool tensors"),
    "cumsum": ("replace", _X + "cumsum", "dtype by position"),
    "cumprod": ("replace", _X + "cumprod", "dtype by position"),
    "median": ("replace", _X + "median", "keepdim= without dim"),
    "prod": ("replace", _X + "prod", "list of dimensions"),
    "std": ("replace", _X + "std", "integer tensors; (dim, unbiased, keepdim)"),
    "var": ("replace", _X + "var", "integer tensors; (dim, unbiased, keepdim)"),
    "softmax": ("replace", _X + "softmax", "without dim"),
    "log_softmax": ("replace", _X + "log_softmax", "without dim"),
    "quantile": ("replace", _X + "quantile", "interpolation by position; ignore_nan="),
    "unique": ("replace", _X + "unique", "dtype="),
    "addmm": ("replace", _X + "addmm", "alpha, beta by position"),
    "bernoulli": ("replace", _X + "bernoulli", "dtype=, inplace="),
    "dot": ("replace", _X + "dot", "other="),
    "repeat_interleave": ("replace", _X + "repeat_interleave", "output_size by position"),
    "split": ("replace", _X + "split", "split_size_or_sections="),
    "new_empty": ("replace", _X + "new_empty", "placement=, sbp="),
    "new_zeros": ("replace", _X + "new_zeros", "placement=, sbp=; without a size"),
    "new_ones": ("replace", _X + "new_ones", "placement=, sbp=; without a size"),
    "new_full": ("replace", _X + "new_full", "dtype, device by position; placement=, sbp="),
    "new_tensor": ("replace", _X + "new_tensor", "dtype, device by position; placement=, sbp="),
    "gather": ("replace", _X + "gather", "sparse_grad by position"),
    "index_add": ("replace", _X + "index_add", "alpha by position"),
    "index_add_": ("replace", _X + "index_add_", "alpha by position"),
    "nonzero": ("replace", _X + "nonzero", "as_tuple by position"),
    "type_as": ("replace", _X + "type_as", "target="),
    "swapaxes": ("replace", _X + "swapaxes", "dim0=, dim1="),
    "clamp_max_": ("replace", _I + "clamped", "min=; truncated bounds of an integer tensor"),
    "broadcast_to": ("replace", _X + "broadcast_to", "shape="),
    "unflatten": ("replace", _X + "unflatten", "shape="),
    "logical_and": ("replace", _X + "and_", "with a number"),
    "logical_or": ("replace", _X + "or_", "with a number"),
    "logical_xor": ("replace", _X + "xor_", "with a number"),
    "bernoulli_": ("replace", _X + "bernoulli_", "dtype="),
    "type": ("replace", _X + "type_", "'oneflow.FloatTensor'"),
    # blobs inside job functions
    "with_distribute": (
        "method",
        "_blob_methods:with_distribute",
        "how a blob is spread over devices",
    ),
    "with_gradient_distribute": (
        "method",
        "_blob_methods:with_distribute",
        "how its gradient is",
    ),
    "logical_blob_name": (
        "property",
        "_blob_methods:logical_blob_name",
        "name of a blob in a job",
    ),
    "op_name": ("property", "_blob_methods:op_name", "its first part"),
    "numpy_list": ("method", "_blob_methods:numpy_list", "one array per device"),
    "is_dynamic": (
        "property",
        "_blob_methods:is_dynamic",
        "true for an input of varying size",
    ),
}
