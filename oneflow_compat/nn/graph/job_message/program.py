"""The captured program as OneFlow's job message, which converters and OneFlow's tests read.

They read it as graph._graph_proto.net.op. The message has input, variable and output operators, and a user
operator for each ATen operator. `_tables/graph_operators.py` has OneFlow's names of types, inputs, settings.
`operator_lines` writes the same operators for the text of a graph. Nothing runs from the message.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from ...._message import Map, Message, data_type_number
from ...._ops.tensor.texts import dtype_text
from ...._tables.graph_operators import GRAPH_ARITHMETIC, GRAPH_OPERATORS
from ..graph_repr import _device
from .calls import CALLS, PARTS
from .job_conf import JobConfigProto
from .node_calls import (
    argument_at,
    arguments_by_name,
    is_in_place,
    makes_several,
    operator_name,
    positional,
    schema_of,
)
from .op_conf import AttrValue, BlobDesc, ListString, OperatorConf
from .views import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...._graph import Program
    from ..graph_members import GraphMembers
    from ..graph_repr import ModuleCalls
    from .views import Settings, Value


# OneFlow's prefix for values that activation checkpointing recomputes
_RECOMPUTED = "OneFlow-System-Checkpointing-Fake-Fw-Op_"


class Job(Message):
    FIELDS = {"net": {"op": []}, "job_conf": JobConfigProto, "helper": {"lbn2logical_blob_desc": Map()}}


def job(graph: GraphMembers) -> Job | None:
    """Return the Job of the program last run; None before the first call."""
    if graph.program is None:
        return None
    message = JobWriter(graph.program, graph._calls).described()
    message.job_conf.CopyFrom(graph.config.proto)
    return message


def operator_lines(program: Program, calls: ModuleCalls, location: bool = False) -> dict[str, list[str]]:
    """Return {module name: [OPERATOR lines]} of a program; "" holds the operators outside every module."""
    writer, lines = JobWriter(program, calls), defaultdict(list)
    for op in writer.job.net.op:
        if op.WhichOneof("op_type") != "user_conf":
            continue
        conf = op.user_conf
        inputs = ", ".join(writer.value_text(v) for key in conf.input_order for v in conf.input[key].s)
        outputs = ", ".join(writer.value_text(v) for key in conf.output_order for v in conf.output[key].s)
        location_text = f", location=({op.loc})" if location and op.loc else ""
        lines[writer.modules[op.name]].append(
            f"(OPERATOR: {op.name}({inputs}) -> ({outputs}),"
            f' placement=(oneflow.placement(type="{op.device_tag}", ranks=[0])){location_text})'
        )
    return lines


class JobWriter:
    """Write the operators of a program as the operators of a OneFlow job: `job`.

    A value of the job is named "operator/output_0". Operators that OneFlow writes differently have a writer
    in `_SPECIAL`, `CALLS` or `PARTS`. The others are written by the table, or under ATen's name.
    """

    def __init__(self, program: Program, calls: ModuleCalls) -> None:
        self.job, self.count = Job(), 0
        self.names: dict[torch.fx.Node, str] = {}
        self.shapes: dict[torch.fx.Node, Any] = {}
        self.values: dict[str, tuple[Any, torch.dtype | None]] = {}  # name of a value -> (shape, dtype)
        self.modules: dict[str, str] = {}  # name of an operator -> its module
        self.turned: set[torch.fx.Node] = set()  # transposes that products take as a setting
        arguments, returned = (
            [name for name, leaf in leaves if leaf.is_tensor] for leaves in calls.get("", ((), ()))
        )
        self._write_inputs(program, arguments)
        for node in program.graph.nodes:
            if node.op == "get_attr":
                self.names[node] = self._value(f"{node.target}/out", node)
            elif node.op == "call_function":
                self._call(node)
        self._write_results(program, returned)

    def _write_inputs(self, program: Program, arguments: Sequence[str]) -> None:
        """Write an input or variable operator for each slot; `arguments` are the names of the arguments."""
        inputs = iter(arguments)
        for node, slot in zip(program.placeholders, program.slots):
            name = next(inputs, slot.name) if slot.role == "arg" else slot.name
            self.names[node], self.shapes[node] = f"{name}/out", slot.shape
            self.values[f"{name}/out"] = slot.shape, slot.dtype
            if slot.dtype is None:  # a Python scalar: a rate, a step count
                continue
            op = self._op(name, getattr(slot.device, "type", "cpu"))
            conf = op.input_conf if slot.role == "arg" else op.variable_conf
            conf.out = "out"
            _describe(conf.blob_conf if slot.role == "arg" else conf, slot.shape or (), slot.dtype)

    def _write_results(self, program: Program, returned: Sequence[str]) -> None:
        """Write an output operator for each tensor that build() returned."""
        for name, node in zip(returned, positional(program.graph.output_node())[0]):
            op = self._op(name, _device(node))
            setattr(op.output_conf, "in", self.names.get(node, node.name))
            op.output_conf.out = "out"
            info: Any = node.meta.get("tensor")
            if isinstance(info, tuple):
                _describe(op.output_conf.blob_conf, info[0], info[1])

    def described(self) -> Job:
        """Return the job with the sizes of all its values."""
        for name, (shape, dtype) in self.values.items():
            if dtype is not None:
                _describe(self.job.helper.lbn2logical_blob_desc.setdefault(name, BlobDesc()), shape, dtype)
        return self.job

    def _op(self, name: str, device: str) -> OperatorConf:
        op = OperatorConf(name=name, device_tag=device)
        self.job.net.op.append(op)
        return op

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self.names[node] = self._part(node, *positional(node))
            return
        op_name, in_place = operator_name(node), is_in_place(node)
        if op_name in PARTS and makes_several(node):
            return  # written where one of its results is read
        tensors = [a for a in positional(node) if isinstance(a, torch.fx.Node)]
        self.names[node] = out = self._written(node, op_name, tensors)
        if in_place and tensors:
            self.names[tensors[0]] = out  # later readers of the tensor read the written value

    def _part(self, node: torch.fx.Node, source: torch.fx.Node, index: int) -> str:
        op_name = operator_name(source)
        out = (
            PARTS[op_name](self, node, arguments_by_name(source), index)
            if op_name in PARTS and makes_several(source) and self._sized(source, node)
            else None
        )
        if out is not None:
            return out
        if source not in self.names:
            self.names[source] = self._plain(
                source, op_name, [a for a in positional(source) if isinstance(a, torch.fx.Node)]
            )
        return self._value(f"{self.names[source].rpartition('_')[0]}_{index}", node)

    def _sized(self, node: torch.fx.Node, result: torch.fx.Node) -> bool:
        """Return True if every input and the result of the operator have static sizes."""
        shapes = [self.values.get(self.names.get(n, ""), (None, None))[0] for n in node.all_input_nodes]
        shapes.append(self.result(result))
        return all(shape is not None and all(isinstance(d, int) for d in shape) for shape in shapes)

    def _written(self, node: torch.fx.Node, op_name: str, tensors: Sequence[torch.fx.Node]) -> str:
        """Write the operator of a node; return the name of its value."""
        special = _SPECIAL.get(op_name)
        if special is not None and (out := special(self, node)) is not None:
            return out
        if op_name in CALLS and hasattr(node.target, "_schema") and self._sized(node, node):
            if (out := CALLS[op_name](self, node, arguments_by_name(node))) is not None:
                return out
        if op_name in GRAPH_ARITHMETIC and len(positional(node)) == 2 and not node.kwargs:
            return self._arithmetic(node, op_name)
        return self._plain(node, op_name, tensors)

    def _addmm(self, node: torch.fx.Node) -> str:
        bias, a, b = positional(node)
        product = self._matmul(node, a, b)
        return self.user(node, "broadcast_add", {"x": [product], "y": [bias]}, "z", {})

    def _transposed(self, node: torch.fx.Node) -> str:
        """Write a transpose; one that only products read becomes a setting of these products."""
        if operator_name(node) == "t" and all(_matrix_of(user, node) for user in node.users):
            self.turned.add(node)
            return self.name_of(positional(node)[0])
        perm = list(range(len(self.shape_of(positional(node)[0]))))
        i, j = positional(node)[1:] or (0, len(perm) - 1)
        perm[i], perm[j] = perm[j], perm[i]
        settings = {"perm": ("at_list_int32", perm)}
        return self.user(node, "transpose", {"input": [positional(node)[0]]}, "output", settings)

    def _plain(self, node: torch.fx.Node, op_name: str, tensors: Sequence[torch.fx.Node]) -> str:
        """Write one operator under the name in the table, or under ATen's name."""
        if op_name not in GRAPH_OPERATORS:
            return self.user(node, op_name, {"in": node.all_input_nodes}, "out", _settings(node))
        op_type, inputs, output, settings = GRAPH_OPERATORS[op_name]
        flat: Any = positional(node)[0] if isinstance(positional(node)[0], (list, tuple)) else None
        operands = {inputs[0]: flat} if flat is not None else {k: [t] for k, t in zip(inputs, tensors)}
        values = {k: (field, argument_at(node, k, position)) for k, (field, position) in settings.items()}
        return self.user(node, op_type, operands, output, values)

    def name_of(self, x: Value) -> str:
        return x if isinstance(x, str) else self.names.get(x, x.name)

    def size(self, x: Value) -> Any:
        """Return the shape of a value, by node or name."""
        return self.values[self.name_of(x)][0]

    def result(self, node: torch.fx.Node) -> Any:
        """Return the shape of the node's result; None for several tensors."""
        info: Any = node.meta.get("tensor")
        return list(info[0]) if _is_one(info) else None

    def dtype(self, node: torch.fx.Node) -> Any:
        info: Any = node.meta.get("tensor")
        return info[1] if _is_one(info) else self.values[self.name_of(node)][1]

    def shape_of(self, node: torch.fx.Node) -> Any:
        return self.shapes.get(node) or node.meta["tensor"][0]

    def _convolution(self, node: torch.fx.Node) -> str:
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = positional(node)
        shape = self.shape_of(weight)
        settings = {
            "filters": ("at_int32", shape[1] * groups if transposed else shape[0]),
            "kernel_size": ("at_list_int32", list(shape[2:])),
            "strides": ("at_list_int32", stride),
            "padding_before": ("at_list_int32", padding),
            "dilation_rate": ("at_list_int32", dilation),
            "groups": ("at_int32", groups),
            "data_format": ("at_string", "channels_first"),
        }
        if transposed:
            settings["output_padding"] = ("at_list_int32", output_padding)
        out = self.user(
            node,
            f"{'de' if transposed else ''}conv{len(stride)}d",
            {"in": [x], "weight": [weight]},
            "out",
            settings,
        )
        return (
            out
            if bias is None
            else self.user(node, "bias_add", {"a": [out], "b": [bias]}, "out", {"axis": ("at_int32", 1)})
        )

    def _matmul(self, node: torch.fx.Node, a: torch.fx.Node, b: torch.fx.Node) -> str:
        settings = {
            "transpose_a": ("at_bool", a in self.turned),
            "transpose_b": ("at_bool", b in self.turned),
            "alpha": ("at_double", 1.0),
        }
        return self.user(node, "matmul", {"a": [a], "b": [b]}, "out", settings)

    def _mean(
        self, node: torch.fx.Node, x: torch.fx.Node, dims: Sequence[int] | None = None, keepdim: bool = False
    ) -> str | None:
        if not all(isinstance(n, int) for n in self.shape_of(x)):
            return None
        if dims == [-1, -2] and keepdim:  # ATen's form of adaptive_avg_pool2d to one element
            return self.user(
                node, "adaptive_avg_pool2d", {"x": [x]}, "y", {"output_size": ("at_list_int64", [1, 1])}
            )
        shape = self.shape_of(x)
        dims = [d % len(shape) for d in dims] if dims else list(range(len(shape)))
        settings = {"axis": ("at_list_int32", dims), "keepdims": ("at_bool", keepdim)}
        total = self.user(node, "reduce_sum", {"input_tensor": [x]}, "output_tensor", settings)
        return self.scalar(node, "mul", total, 1.0 / max(1, math.prod(shape[d] for d in dims)))

    def _arithmetic(self, node: torch.fx.Node, op_name: str) -> str:
        x, y = positional(node)
        if isinstance(x, torch.fx.Node) and isinstance(y, torch.fx.Node):
            return self.user(node, f"broadcast_{op_name}", {"x": [x], "y": [y]}, "z", {})
        return self.scalar(node, op_name, *((x, y) if isinstance(x, torch.fx.Node) else (y, x)))

    def scalar(self, node: torch.fx.Node, op_name: str, tensor: Value, scalar: float) -> str:
        return self.user(node, f"scalar_{op_name}", {"in": [tensor]}, "out", numbers(scalar))

    def user(
        self,
        node: torch.fx.Node,
        op_name: str,
        inputs: Mapping[str, Sequence[Value]],
        output: str,
        settings: Settings,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> str:
        """Write one user operator; `inputs` are nodes or names of values.

        Return the name of its value, which has the node's shape and dtype unless others are given.
        """
        meta = (positional(node)[0] if node.target is operator.getitem else node).meta
        module = meta.get("module") or ""
        prefix = (_RECOMPUTED if meta.get("recomputed") else "") + (f"{module}-" if module else "")
        name = f"{prefix}{op_name}-{self.count}"
        self.count += 1
        op = self._op(name, _device(node))
        conf = op.user_conf
        conf.op_type_name = op_name
        for key, values in inputs.items():
            conf.input[key] = ListString(s=[self.name_of(v) for v in values])
            conf.input_order.append(key)
        conf.output[output] = ListString(s=[f"{name}/{output}_0"])
        conf.output_order.append(output)
        for key, setting in settings.items():
            if (value := _attr(*setting)) is not None:
                conf.attr[key] = value
        if meta.get("location"):
            op.loc = str(meta["location"])
        self.modules[name] = module
        return self._value(f"{name}/{output}_0", node, shape, dtype)

    def _value(
        self,
        name: str,
        node: torch.fx.Node,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> str:
        info: Any = node.meta.get("tensor")
        if _is_one(info):
            self.values[name] = (
                info[0] if shape is None else tuple(shape),
                info[1] if dtype is None else dtype,
            )
        return name

    def value_text(self, name: str) -> str:
        shape, dtype = self.values.get(name, (None, None))
        return (
            name
            if dtype is None
            else f"{name}:(sbp=(B), size=({', '.join(map(str, shape))}), dtype=({dtype_text(dtype)}))"
        )


def _is_one(info: object) -> bool:
    """Return True if the metadata of a node describes a single tensor."""
    return isinstance(info, tuple) and len(info) > 1 and isinstance(info[0], (tuple, torch.Size))


def _matrix_of(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Return True if `node` is a matrix operand of the product `user`."""
    op_name = getattr(user.target, "_opname", None)
    return op_name in ("mm", "addmm") and not (op_name == "addmm" and positional(user)[0] is node)


def _describe(conf: Any, shape: Sequence[int | str], dtype: torch.dtype | None) -> None:
    # -1: a size that is only known at run time
    conf.shape.dim.extend(d if isinstance(d, int) else -1 for d in shape)
    conf.data_type = data_type_number(dtype)


def _settings(node: torch.fx.Node) -> Settings:
    """Return the arguments that are not tensors, under ATen's names."""
    schema = schema_of(node)
    if schema is None:
        return {}
    arguments = [*zip((a.name for a in schema.arguments), positional(node)), *node.kwargs.items()]
    return {name: (field, value) for name, value in arguments if (field := _field_of(value))}


def _field_of(value: object) -> str | None:
    """Return the field of AttrValue for a Python value, or None."""
    if isinstance(value, (list, tuple)):
        return "at_list_int64" if value and all(type(v) is int for v in value) else None
    return {bool: "at_bool", int: "at_int64", float: "at_double", str: "at_string"}.get(type(value))


def _attr(field: str, value: Any) -> AttrValue | None:
    """Return an AttrValue, or None if the value is not a constant (a size that is computed)."""
    attribute = AttrValue()
    if field == "at_shape" or field.startswith("at_list"):
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
            return None
        part = getattr(attribute, field)
        (part.dim if field == "at_shape" else part.val).extend(value)
        part.SetInParent()
    elif isinstance(value, str if field == "at_string" else (bool, int, float)):
        number_types: dict[str, Callable[[Any], float]] = {"at_float": _float32, "at_double": float}
        setattr(attribute, field, number_types[field](value) if field in number_types else value)
    else:
        return None
    return attribute


def _float32(value: float) -> float:
    return ctypes.c_float(value).value


# ATen operator -> how it is written; a writer returns None where the general form serves
_SPECIAL = {
    "convolution": JobWriter._convolution,
    "mm": lambda writer, node: writer._matmul(node, *positional(node)),
    "addmm": JobWriter._addmm,
    "mean": lambda writer, node: writer._mean(node, *positional(node)),
    "t": JobWriter._transposed,
    "transpose": JobWriter._transposed,
}
