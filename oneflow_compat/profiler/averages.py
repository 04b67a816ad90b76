"""Averages of torch's profiler that also answer as OneFlow's events: `name` without "aten::", shapes as one
text, KernelEvent or CustomEvent by kind.
"""

from __future__ import annotations

from torch.autograd.profiler_util import FunctionEventAvg

from .events import CustomEvent, KernelEvent

_NAMES = {
    "threshold_backward": "relu_grad",
    "convolution_backward": "conv_grad",
    "addmm": "addmm",
    "mm": "matmul",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "gelu_backward": "gelu_grad",
    "native_layer_norm": "layer_norm",
    "native_batch_norm": "normalization",
}


class _Average(FunctionEventAvg):
    @property
    def name(self) -> str:
        """The key without torch's namespace, under OneFlow's word where it has another."""
        plain = self.key.removeprefix("aten::")
        return _NAMES.get(plain, plain)


class OperatorAverage(_Average):
    """Calls of one operator; `input_shapes` is a text such as "(2,3), (3,4)", or "-" when shapes were not
    asked for.
    """

    @property
    def input_shapes(self) -> str:
        shapes = self.__dict__.get("input_shapes")
        if isinstance(shapes, str) or not shapes:
            return shapes or "-"
        return ", ".join("(" + ",".join(map(str, s)) + ")" for s in shapes if s) or "-"

    @input_shapes.setter
    def input_shapes(self, value):
        self.__dict__["input_shapes"] = value


class RangeAverage(_Average):
    """Times of one range of the user's."""


KernelEvent.register(OperatorAverage)
CustomEvent.register(RangeAverage)


def named(averages):
    """The list of torch, its items turned into these."""
    for event in averages:
        if type(event) is FunctionEventAvg:
            event.__class__ = RangeAverage if event.is_user_annotation else OperatorAverage
    return averages
