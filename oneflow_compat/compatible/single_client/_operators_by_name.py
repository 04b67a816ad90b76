"""Operators by OneFlow's type names."""

from __future__ import annotations

from ._user_ops import run

__all__ = ["builtin_op", "stateful_op"]


class builtin_op:
    """A OneFlow operator by name, called with tensors.

    Example: builtin_op("add_n").Input("in", 2).Output("out").Build()(a, b). A call returns a list of the
    operator's results. Attributes are set by Attr(name, value) or by keyword. An operator that is in no table
    raises NotImplementedError (difference legacy-user-ops).
    """

    def __init__(self, op_type_name, op_name=None):
        self._type, self._name, self._inputs, self._attrs = op_type_name, op_name, [], {}

    def Input(self, input_name, num=1):
        self._inputs.append((input_name, num))
        return self

    def Output(self, output_name, num=1):
        return self

    def Attr(self, attr_name, attr_value, attr_type_name=None):
        self._attrs[attr_name] = attr_value
        return self

    @property
    def op(self):
        return self

    def Build(self):
        return self

    def __call__(self, *tensors, **attrs):
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
