"""Operators by their OneFlow type name: user_op_builder and builtin_op.

The table maps a type to function(inputs, attrs).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...._errors import unsupported
from ...._kernels.raw import split_like
from ...._tables.legacy.math import MATH
from .. import math
from .._jobs import context as _context
from . import array as _array
from . import indexing as _indexing
from . import math as _math


def _row(function: Callable[..., Any], inputs: str, attrs: str = "") -> Callable[..., Any]:
    """Call `function` with one blob per name in `inputs`, then the attributes named in `attrs`.

    "name=" means None if the attribute is not set.
    """
    names, keys = inputs.split(), attrs.split()
    return lambda i, a: function(
        *[i[n][0] for n in names], *[a.get(k[:-1]) if k[-1] == "=" else a[k] for k in keys]
    )


def _sole(inputs: dict[str, Any]) -> torch.Tensor:
    (blobs,) = inputs.values()
    return blobs[0]


def _sole_row(function: Any, attrs: str = "") -> Callable[..., Any]:
    keys = attrs.split()
    return lambda i, a: function(_sole(i), *[a[k] for k in keys])


def _scalar(a: dict[str, Any]) -> Any:
    return a["float_operand"] if a.get("has_float_operand") else a["int_operand"]


def _bound(a: dict[str, Any], name: str, x: torch.Tensor) -> float:
    return a[f"floating_{name}" if x.is_floating_point() else f"integral_{name}"]


def _number(a: dict[str, Any], name: str) -> Any:
    kind = "floating" if a.get(f"is_floating_{name}_value") else "integer"
    return a[f"{kind}_{name}_value"]


def _schedule_loss_scale(i: dict[str, Any], a: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Write the loss scale and the number of good steps after a step with this count of values not finite."""
    scale, counter = i["loss_scale"][0], i["good_step_counter"][0]
    is_good = i["count_not_finite"][0].reshape(counter.shape) == 0
    steps = torch.where(is_good, counter + 1, 0)
    grows = steps >= a["increment_period"]
    grown = torch.where(grows.reshape(scale.shape), scale * a["multiplier"], scale)
    scale.copy_(torch.where(is_good.reshape(scale.shape), grown, scale / a["multiplier"]))
    counter.copy_(torch.where(grows, 0, steps))
    return ()


def _norm(x: torch.Tensor) -> torch.Tensor:
    return torch.square(x).sum().reshape(1)


OPS = {
    # elementwise
    "relu": lambda i, a: torch.relu(i.get("x", i.get("in"))[0]),
    "sigmoid": _sole_row(torch.sigmoid),
    "tanh": _sole_row(torch.tanh),
    "gelu": _sole_row(F.gelu),
    "leaky_relu": _sole_row(F.leaky_relu, "alpha"),
    "elu": _sole_row(F.elu, "alpha"),
    "hardtanh": _sole_row(F.hardtanh, "min_val max_val"),
    "hardsigmoid": _sole_row(F.hardsigmoid),
    "hardswish": _sole_row(F.hardswish),
    "mish": _sole_row(F.mish),
    "identity": _sole_row(lambda x: x),
    "cast": _sole_row(torch.Tensor.to, "dtype"),
    "add_n": lambda i, a: _math.add_n(i["in"]),
    "scalar_add": lambda i, a: _sole(i) + _scalar(a),
    "scalar_mul": lambda i, a: _sole(i) * _scalar(a),
    "scalar_add_by_tensor": _row(torch.add, "x scalar"),
    "scalar_sub_by_tensor": _row(torch.sub, "x scalar"),
    "scalar_mul_by_tensor": _row(torch.mul, "x scalar"),
    "scalar_div_by_tensor": _row(torch.div, "x scalar"),
    "multiply": _row(torch.mul, "x y"),
    "clip_by_scalar": lambda i, a: torch.clamp(
        _sole(i), _bound(a, "min", _sole(i)), _bound(a, "max", _sole(i))
    ),
    "clip_by_scalar_min": lambda i, a: torch.clamp(_sole(i), min=_bound(a, "min", _sole(i))),
    "clip_by_scalar_max": lambda i, a: torch.clamp(_sole(i), max=_bound(a, "max", _sole(i))),
    "tril": lambda i, a: _math.tril(_sole(i), a["diagonal"], _number(a, "fill")),
    "fused_scale_tril": lambda i, a: _math.fused_scale_tril(
        _sole(i), a["diagonal"], _number(a, "fill"), _number(a, "scale")
    ),
    "where": _row(_indexing.where, "condition x y"),
    "bias_add": lambda i, a: i["a"][0] + i["b"][0].reshape(-1, *[1] * (i["a"][0].dim() - a["axis"] - 1)),
    # These operators broadcast.
    "broadcast_add": _row(torch.add, "x y"),
    "broadcast_sub": _row(torch.sub, "x y"),
    "broadcast_mul": _row(torch.mul, "x y"),
    "broadcast_div": _row(_math.divide, "x y"),
    "broadcast_maximum": _row(_math.maximum, "x y"),
    "broadcast_minimum": _row(_math.minimum, "x y"),
    "broadcast_floor_mod": _row(_math.mod, "x y"),
    "broadcast_equal": _row(_math.equal, "x y"),
    "broadcast_not_equal": _row(_math.not_equal, "x y"),
    "broadcast_less": _row(_math.less, "x y"),
    "broadcast_less_equal": _row(_math.less_equal, "x y"),
    "broadcast_greater": _row(_math.greater, "x y"),
    "broadcast_greater_equal": _row(_math.greater_equal, "x y"),
    "broadcast_logical_and": _row(_math.logical_and, "x y"),
    "broadcast_like": _row(_array.broadcast_like, "x like", "broadcast_axes="),
    # constants
    "constant": lambda i, a: torch.full(
        tuple(a["shape"]),
        a["floating_value"] if a.get("is_floating_value") else a["integer_value"],
        dtype=a["dtype"],
    ),
    "zero_like": _sole_row(torch.zeros_like),
    "ones_like": _sole_row(torch.ones_like),
    # shapes
    "reshape": _sole_row(_array.reshape, "shape"),
    "reshape_like": _row(_array.reshape_like, "in like"),
    "transpose": _sole_row(_array.transpose, "perm"),
    "expand_dims": _sole_row(torch.unsqueeze, "axis"),
    "squeeze": _sole_row(_array.squeeze, "axes"),
    "flatten": _sole_row(torch.flatten, "start_dim end_dim"),
    "concat": lambda i, a: torch.cat(i["in"], a.get("axis", 0)),
    "split_like": lambda i, a: split_like(i["in"][0], i["like"], a.get("axis", 0)),
    "slice": lambda i, a: _indexing.slice_v2(_sole(i), list(zip(a["start"], a["stop"], a["step"]))),
    # indices
    "gather": lambda i, a: _indexing.gather(i["in"][0], i["indices"][0], axis=a.get("axis", 0)),
    "dim_gather": lambda i, a: _indexing.dim_gather(i["input"][0], a["dim"], i["index"][0]),
    "gather_nd": _row(_indexing.gather_nd, "params indices"),
    "scatter_nd": _row(_indexing.scatter_nd, "indices updates", "shape"),
    "argmax": _sole_row(lambda x: _math.argmax(x, -1)),
    "top_k": _sole_row(lambda x, k, order: _math.top_k(x, -1, k, order), "k sorted"),
    "sort": _sole_row(lambda x, direction: _array.sort(x, -1, direction), "direction"),
    "arg_sort": _sole_row(lambda x, direction: _array.argsort(x, -1, direction), "direction"),
    # sums and products
    "matmul": lambda i, a: _array.matmul(
        i["a"][0], i["b"][0], a.get("transpose_a", False), a.get("transpose_b", False), a.get("alpha", 1.0)
    ),
    "softmax": lambda i, a: torch.softmax(_sole(i), a.get("axis", -1)),
    "reduce_sum": lambda i, a: _math.reduce_sum(_sole(i), a.get("axis"), a.get("keepdims", False)),
    "reduce_prod": _sole_row(_math.reduce_prod, "axis keepdims"),
    "reduce_max": _sole_row(_math.reduce_max, "axis keepdims"),
    "reduce_min": _sole_row(_math.reduce_min, "axis keepdims"),
    "reduce_any": _sole_row(_math.reduce_any, "axis keepdims"),
    "reduce_all": _sole_row(_math.reduce_all, "axis keepdims"),
    "square_sum": _sole_row(_norm),
    "sqrt_square_sum": _sole_row(lambda x: torch.sqrt(_norm(x))),
    "multi_square_sum": lambda i, a: sum(_norm(x) for x in i["x"]),
    "count_not_finite": _sole_row(_array.count_not_finite),
    "multi_count_not_finite": lambda i, a: _array.multi_count_not_finite(i["x"]),
    "dynamic_loss_scale_schedule": _schedule_loss_scale,
    "unsorted_segment_sum": _row(_math.unsorted_segment_sum, "data segment_ids", "num_segments axis"),
    "unsorted_batch_segment_sum": _row(_math.unsorted_batch_segment_sum, "data segment_ids", "num_segments"),
}


def run(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> Any:
    """The result of one operator, or a tuple of its results.

    `torch.ops.oneflow.<type>` (a loaded library) serves the types not listed here.
    """
    function = OPS.get(op_type)
    blobs = [b for blobs_of_input in inputs.values() for b in blobs_of_input]
    if function is not None:
        try:
            return function(inputs, attrs)
        except KeyError as missing:
            raise ValueError(
                f"operator {op_type!r}: no input or attribute {missing} among {sorted(inputs)} and"
                f" {sorted(attrs)}"
            ) from None
    if op_type in _math_names() and not attrs:
        return getattr(math, op_type)(*blobs)
    operator = getattr(torch.ops.oneflow, op_type, None) if hasattr(torch.ops, "oneflow") else None
    if operator is not None:
        return operator(*blobs, **attrs)
    raise no_op(op_type)


def _math_names() -> dict[str, Any]:
    return MATH


def no_op(name: str) -> Any:
    """Return the error of an operator that is in no table."""
    return unsupported(
        f"the operator {name!r} by name",
        "legacy-user-ops",
        "Call the function of the API that does the same.",
    )


# ---------------------------------------------------------------------- Operators by OneFlow's type names


class builtin_op:
    """A OneFlow operator by name, called with tensors.

    Example: builtin_op("add_n").Input("in", 2).Output("out").Build()(a, b). A call returns a list of the
    operator's results. Attributes are set by Attr(name, value) or by keyword. An operator that is in no table
    raises NotImplementedError (difference legacy-user-ops).
    """

    def __init__(self, op_type_name: str, op_name: str | None = None) -> None:
        self._type, self.op_name, self._inputs, self._attrs = op_type_name, op_name, [], {}

    def Input(self, input_name: str, num: int = 1) -> builtin_op:
        self._inputs.append((input_name, num))
        return self

    def Output(self, output_name: str, num: int = 1) -> builtin_op:
        return self

    def Attr(self, attr_name: Any, attr_value: Any, attr_type_name: Any = None) -> Any:
        self._attrs[attr_name] = attr_value
        return self

    @property
    def op(self) -> Any:
        return self

    def Build(self) -> builtin_op:
        return self

    def __call__(self, *tensors: Any, **attrs: Any) -> list[torch.Tensor]:
        num_inputs = sum(num for _, num in self._inputs)
        if len(tensors) != num_inputs:
            raise ValueError(
                f"operator {self._type!r}: {num_inputs} inputs were declared, {len(tensors)} tensors given"
            )
        inputs, rest = {}, list(tensors)
        for name, num in self._inputs:
            inputs[name], rest = rest[:num], rest[num:]
        result = run(self._type, inputs, {**self._attrs, **attrs})
        return list(result) if isinstance(result, (list, tuple)) else [result]


stateful_op = builtin_op


def user_op_builder(op_name: str) -> _UserOp:
    return _UserOp(op_name)


class _UserOp:
    """Builder of one operator by its OneFlow name.

    After `.Build().InferAndTryRun()`, read `.RemoteBlobList()` or `.SoleOutputBlob()`. If InputSize() has
    declared its inputs, the built operator is called with their blobs, and returns its result or results.
    """

    def __init__(self, op_name: str) -> None:
        self.op_name = op_name
        self._type: str | None = None
        self._inputs, self._attrs, self._outputs = {}, {}, {}
        self._sizes: dict[str, int] = {}

    @property
    def user_op_module(self) -> _UserOp:
        """The builder itself, whose kernel modules prepare with InitOpKernel()."""
        return self

    def InitOpKernel(self) -> None:
        """Do nothing: the operators here need no preparation."""

    def OpName(self, op_name: str) -> _UserOp:
        self.op_name = op_name
        return self

    def Op(self, op_type_name: str) -> _UserOp:
        self._type = op_type_name
        return self

    def Input(self, input_name: str, input_blob_list: Sequence[torch.Tensor]) -> _UserOp:
        self._inputs[input_name] = list(input_blob_list)
        return self

    def InputSize(self, input_name: str, size: Any) -> Any:
        self._sizes[input_name] = int(size)
        if input_name in self._inputs and len(self._inputs[input_name]) != size:
            raise ValueError(
                f"user op {self.op_name}: input {input_name!r} has {len(self._inputs[input_name])} blobs,"
                f" expected {size}"
            )
        return self

    def Output(self, output_name: str, num: int = 1) -> _UserOp:
        self._outputs[output_name] = num
        return self

    def Attr(self, attr_name: str, attr_value: float | Sequence[int], attr_type_name: Any = None) -> _UserOp:
        self._attrs[attr_name] = attr_value
        return self

    def Build(self) -> _UserOp:
        """The operator, which keeps its results. The builder may be used again."""
        if self._type is None:
            raise ValueError(f"user op {self.op_name}: name the operator with .Op(type)")
        return copy.copy(self)

    def __call__(self, *blobs: torch.Tensor) -> Any:
        declared = sum(self._sizes.values())
        if len(blobs) != declared:
            raise ValueError(
                f"user op {self.op_name}: {declared} inputs were declared, {len(blobs)} blobs given"
            )
        rest = iter(blobs)
        self._inputs = {name: list(itertools.islice(rest, size)) for name, size in self._sizes.items()}
        results = self.InferAndTryRun().RemoteBlobList()
        return results[0] if len(results) == 1 else tuple(results)

    def InferAndTryRun(self) -> _UserOp:
        result = run(self._type or self.op_name, self._inputs, self._attrs)
        self._results = self._named(list(result) if isinstance(result, (list, tuple)) else [result])
        return self

    def _named(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Give the results the names of OneFlow inside a job: "<namespaces><operator>/<output>_<index>"."""
        trace = _context.trace()
        if trace is None:
            return list(results)
        names = [f"{name}_{i}" for name, size in self._outputs.items() for i in range(size)]
        names += [f"out_{i}" for i in range(len(names), len(results))]
        prefix = "-".join([*_context.all_open("namespace"), self.op_name])
        inputs = [blob for blobs in self._inputs.values() for blob in blobs]
        # an operator such as "identity" hands out its input, which has a name already
        fresh = [x.view_as(x) if any(x is blob for blob in inputs) else x for x in results]
        return [trace.set_name(x, f"{prefix}/{name}") for x, name in zip(fresh, names)]

    def RemoteBlobList(self) -> list[torch.Tensor]:
        return self._results

    def SoleOutputBlob(self) -> torch.Tensor:
        if len(self._results) != 1:
            raise ValueError(f"user op {self.op_name} has {len(self._results)} outputs, not one")
        return self._results[0]


class _ModuleUserOp(_UserOp):
    """The builder of a module, which outlives the jobs: it hands its blobs over to what it builds."""

    def Build(self) -> _UserOp:
        operator = super().Build()
        self._inputs = {}
        return operator


def user_op_module_builder(op_type_name: str) -> _UserOp:
    """The builder of `user_op_builder` under the name of the operator."""
    return _ModuleUserOp(op_type_name).Op(op_type_name)


consistent_user_op_builder = user_op_builder
consistent_user_op_module_builder = user_op_module_builder
