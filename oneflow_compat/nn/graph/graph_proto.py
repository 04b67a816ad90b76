"""The captured program as OneFlow's job message: what converters and OneFlow's tests read as graph._graph_proto.net.op.

Input, variable and output operators, and one user operator per ATen operator under OneFlow's type, input and setting
names where `_tables/graph_operators.py` knows them. The message is for reading: nothing is run from it.
"""
from __future__ import annotations

import operator

import torch

from ..._tables.graph_operators import DATA_TYPE_NUMBERS, GRAPH_ARITHMETIC, GRAPH_OPERATORS
from ...core.message import Message
from ...core.operator.op_conf_pb2 import AttrValue, ListString, OperatorConf
from .graph_repr import _device

_RECOMPUTED = "OneFlow-System-Checkpointing-Fake-Fw-Op_"  # OneFlow's prefix for what activation checkpointing computes again


class Job(Message):
    FIELDS = {"net": {"op": []}}


def job(graph):
    """The Job of the program last run; None before the first call."""
    return None if graph.program is None else _Writer(graph).job


def _number(dtype) -> int:
    return DATA_TYPE_NUMBERS.get(str(dtype).removeprefix("torch."), 0)


class _Writer:
    def __init__(self, graph):
        self.job, self.names, self.shapes, self.count = Job(), {}, {}, 0
        program = graph.program
        given, returned = ([n for n, text in leaves if text.startswith("tensor(")] for leaves in graph._calls.get("", ((), ())))
        inputs = iter(given)
        for node, slot in zip(program.placeholders, program.slots):
            name = next(inputs, slot.name) if slot.role == "arg" else slot.name
            self.names[node], self.shapes[node] = f"{name}/out", slot.shape
            if slot.dtype is None:  # a number of Python's: a rate, a step count
                continue
            op = self._op(name, getattr(slot.device, "type", "cpu"))
            conf = op.input_conf if slot.role == "arg" else op.variable_conf
            conf.out = "out"
            _describe(conf.blob_conf if slot.role == "arg" else conf, slot.shape, slot.dtype)
        for node in program.graph.nodes:
            if node.op == "get_attr":
                self.names[node] = f"{node.target}/out"
            elif node.op == "call_function":
                self._call(node)
        for name, node in zip(returned, program.graph.output_node().args[0]):
            op = self._op(name, _device(node))
            setattr(op.output_conf, "in", self.names.get(node, node.name))
            op.output_conf.out = "out"
            info = node.meta.get("tensor")
            if isinstance(info, tuple):
                _describe(op.output_conf.blob_conf, info[0], info[1])

    def _op(self, name, device):
        op = OperatorConf(name=name, device_tag=device)
        self.job.net.op.append(op)
        return op

    def _call(self, node):
        if node.target is operator.getitem:
            self.names[node] = f"{self.names.get(node.args[0], '?').rpartition('_')[0]}_{node.args[1]}"
            return
        overload = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", str(node.target))
        kind, in_place = overload.rstrip("_"), overload.endswith("_")
        tensors = [a for a in node.args if isinstance(a, torch.fx.Node)]
        if kind == "convolution":
            out = self._convolution(node)
        elif kind == "addmm":
            out = self._user(node, "matmul", {"a": [node.args[1]], "b": [node.args[2]]}, "out", {})
            out = self._user(node, "broadcast_add", {"x": [out], "y": [node.args[0]]}, "z", {})
        elif kind in ("t", "transpose"):
            perm = list(range(len(self._shape(tensors[0]))))
            i, j = node.args[1:] or (0, len(perm) - 1)
            perm[i], perm[j] = perm[j], perm[i]
            out = self._user(node, "transpose", {"input": tensors}, "output", {"perm": ("at_list_int32", perm)})
        elif kind in GRAPH_ARITHMETIC and len(node.args) == 2:
            out = self._arithmetic(node, kind)
        elif kind in GRAPH_OPERATORS:
            kind, inputs, output, settings = GRAPH_OPERATORS[kind]
            flat = node.args[0] if isinstance(node.args[0], (list, tuple)) else None
            given = {inputs[0]: flat} if flat is not None else {k: [t] for k, t in zip(inputs, tensors)}
            out = self._user(node, kind, given, output, {k: (how, _argument(node, k, at)) for k, (how, at) in settings.items()})
        else:
            out = self._user(node, kind, {"in": node.all_input_nodes}, "out", _settings(node))
        self.names[node] = out
        if in_place and tensors:
            self.names[tensors[0]] = out  # what reads the tensor from here on reads what was written

    def _shape(self, node):
        return self.shapes.get(node) or node.meta["tensor"][0]

    def _convolution(self, node):
        x, weight, bias, stride, padding, dilation, transposed, more, groups = node.args
        shape = self._shape(weight)
        settings = {
            "filters": ("at_int32", shape[1] * groups if transposed else shape[0]), "kernel_size": ("at_list_int32", list(shape[2:])),
            "strides": ("at_list_int32", stride), "padding_before": ("at_list_int32", padding), "dilation_rate": ("at_list_int32", dilation),
            "groups": ("at_int32", groups), "data_format": ("at_string", "channels_first"),
        }
        if transposed:
            settings["output_padding"] = ("at_list_int32", more)
        out = self._user(node, f"{'de' if transposed else ''}conv{len(stride)}d", {"in": [x], "weight": [weight]}, "out", settings)
        return out if bias is None else self._user(node, "bias_add", {"a": [out], "b": [bias]}, "out", {"axis": ("at_int32", 1)})

    def _arithmetic(self, node, kind):
        x, y = node.args
        if isinstance(x, torch.fx.Node) and isinstance(y, torch.fx.Node):
            return self._user(node, f"broadcast_{kind}", {"x": [x], "y": [y]}, "z", {})
        number = y if isinstance(x, torch.fx.Node) else x
        whole = isinstance(number, int)
        return self._user(node, f"scalar_{kind}", {"in": node.all_input_nodes}, "out", {
            "has_int_operand": ("at_bool", whole), "has_float_operand": ("at_bool", not whole),
            "int_operand": ("at_int64", number if whole else 0), "float_operand": ("at_double", 0.0 if whole else number),
        })

    def _user(self, node, kind, inputs, output, settings):
        """One user operator; `inputs` are nodes or names of values. Returns the name of its value."""
        module = node.meta.get("module") or ""
        name = f"{_RECOMPUTED if node.meta.get('recomputed') else ''}{module + '-' if module else ''}{kind}-{self.count}"
        self.count += 1
        op = self._op(name, _device(node))
        conf = op.user_conf
        conf.op_type_name = kind
        for key, values in inputs.items():
            conf.input[key] = ListString(s=[v if isinstance(v, str) else self.names.get(v, v.name) for v in values])
            conf.input_order.append(key)
        conf.output[output] = ListString(s=[f"{name}/{output}_0"])
        conf.output_order.append(output)
        for key, setting in settings.items():
            if (value := _attr(*setting)) is not None:
                conf.attr[key] = value
        if node.meta.get("location"):
            op.loc = str(node.meta["location"])
        return f"{name}/{output}_0"


def _describe(conf, shape, dtype):
    conf.shape.dim.extend(d if isinstance(d, int) else -1 for d in shape)  # -1: a size that is known when the program runs
    conf.data_type = _number(dtype)


def _argument(node, name, position):
    """ATen's argument at this place; a window without a stride moves by its size."""
    rest = node.target._schema.arguments[position:]
    value = node.args[position] if position < len(node.args) else rest[0].default_value if rest else None
    return node.args[1] if name == "stride" and not value else value


def _settings(node):
    """The arguments that are no tensors, under ATen's names."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    given = [*zip((a.name for a in schema.arguments), node.args), *node.kwargs.items()]
    return {name: (_kind_of(value), value) for name, value in given if _kind_of(value)}


def _kind_of(value):
    if isinstance(value, (list, tuple)):
        return "at_list_int64" if value and all(type(v) is int for v in value) else None
    return {bool: "at_bool", int: "at_int64", float: "at_double", str: "at_string"}.get(type(value))


def _attr(kind, value):
    """An AttrValue, or None for what is no constant (a size that is computed)."""
    made = AttrValue()
    if kind == "at_shape" or kind.startswith("at_list"):
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
            return None
        part = getattr(made, kind)
        (part.dim if kind == "at_shape" else part.val).extend(value)
    elif isinstance(value, str if kind == "at_string" else (bool, int, float)):
        setattr(made, kind, float(value) if kind in ("at_float", "at_double") else value)
    else:
        return None
    return made
