"""What is known of the values of symbolic tensors while they are recorded: constants, step counters, what a
program is guarded by.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import KEEP_VALUE, CaptureError


class KnownValues:
    """The part of Recorder that keeps the real value of a symbolic tensor in its `_value`, until it is
    written.
    """

    def _item(self, tensor):
        """The number that .item() of a tensor gives in build() or step(); CaptureError where a program cannot
        have one.
        """
        if "_value" in tensor.__dict__ and self.phase != "update":
            return tensor._value.item()
        if (
            "_value" in tensor.__dict__ and self.number_of is not None
        ):  # C++ takes a one-number tensor (a learning rate) as a number
            return self.number_of(tensor)
        node = getattr(tensor, "_of_node", None) if type(tensor) is FakeTensor else self.lift(tensor)[0]
        if node is not None and self.phase != "update":
            from .constant_folding import constant_value

            value = constant_value(self, node)
            if value is not None:
                return value.item()
            from .branch_values import state_number

            number = state_number(self, node)
            if number is not None:
                return number
            if tensor.numel() == 1:
                from .assertions import assumed

                value = assumed(self, tensor, node)
                if value is not None:
                    return value
                if tensor.dtype is torch.bool:
                    value = self.sizes.branch_on_values(node)
                    if value is not None:
                        return value
                elif not (tensor.is_floating_point() or tensor.is_complex()):
                    return self.sizes.count(node)
        raise CaptureError(
            "build() needs the value of a tensor (.item(), bool(), int(), float() or a branch on it), which a"
            " static program does not have",
            KEEP_VALUE,
        )

    def _forget_values(self, args):
        """What was written, directly or through a view, has no value known at the capture any more."""
        for t in _flat(args):
            if isinstance(t, FakeTensor):
                t.__dict__.pop("_value", None)
                if t.layout is torch.strided:
                    known = self.valued.pop(t.untyped_storage()._cdata, None)
                    if known is not None:
                        known.__dict__.pop("_value", None)

    def _follow(self, func, args, kwargs, out):
        """Keep the real value of one-number tensors (step counters) while the optimizer is recorded."""
        outs = out if isinstance(out, (tuple, list)) else (out,)
        if func.namespace == "_c10d_functional" or any(
            isinstance(o, torch.Tensor) and o.numel() != 1 for o in outs
        ):
            return  # of a collective: other ranks may not know its values
        tensors = [t for t in _flat(args) + _flat(tuple(kwargs.values())) if isinstance(t, FakeTensor)]
        if any(t.numel() != 1 for t in tensors):
            return
        if any("_value" not in t.__dict__ for t in tensors):
            if func._schema.is_mutable:
                for t in tensors:
                    t.__dict__.pop("_value", None)
            return
        real = func(*self._values(args), **{k: self._values(v) for k, v in kwargs.items()})
        for o, r in zip(outs, real if isinstance(real, (tuple, list)) else (real,)):
            if isinstance(o, FakeTensor) and "_value" not in o.__dict__:
                o._value = r

    def _values(self, a):
        if type(a) in (list, tuple):
            return type(a)(self._values(x) for x in a)
        if type(a) is float:
            return self.marker_values.get(a, a)
        return a._value if isinstance(a, FakeTensor) else a


def _flat(args):
    flat = []
    for a in args:
        if type(a) in (list, tuple):
            flat.extend(a)
        else:
            flat.append(a)
    return flat
