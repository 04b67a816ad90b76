"""Dimensions of arguments that are symbols while build() is captured, so that one program serves many sizes.

Such a symbol is *backed*: it has the size of the present call. torch's symbolic shapes answer each question
about it (is it even, is it larger than 16) from this size, and note the question as a guard. Sizes that
depend on values have *unbacked* symbols (symbolic_sizes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...errors import CaptureError, SizesNeeded, Specialization
from ...guards.dimensions import Dimension, DimensionGuards, Layout, UnsupportedExpression
from ...program.symbol_environment import conditions_of, new_symbol, printed

if TYPE_CHECKING:
    from torch.fx import Node

    from ..interfaces import RecorderInterface


class DynamicDimensions:
    """The symbols of one capture's arguments."""

    def __init__(self, recorder: RecorderInterface, dims: Any, positions: Any) -> None:
        self.recorder = recorder
        # index of a flat argument -> its dimensions that are symbols; an argument that is missing here is
        # guarded by the signature of the call
        self.dims = dims
        self.positions = iter(positions)  # positions of the tensors among the flat arguments
        self.dimensions: dict[Any, Any] = {}  # sympy symbol -> Dimension
        self.names: dict[Any, Any] = {}  # index of a flat argument -> its name
        self.layouts: dict[Any, Any] = {}  # index of a flat argument -> Layout

    @property
    def environment(self) -> Any:
        return self.recorder.fake_mode.shape_env

    def symbols(self) -> Any:
        return self.dimensions.keys()

    def shape_and_stride(self, tensor: torch.Tensor, name: str) -> tuple[Any, ...] | None:
        """The symbolic shape and strides of the next argument, or None if all its sizes are fixed."""
        index = next(self.positions)
        self.names[index] = name
        dims = self.dims.get(index)
        if not dims:
            if dims is not None:
                self.layouts[index] = Layout(tuple(tensor.shape), tensor.stride())
            return None
        self.recorder.sizes.begin()
        shape = [
            self._symbol(index, name, dim, size) if dim in dims else size
            for dim, size in enumerate(tensor.shape)
        ]
        stride = _strides_of(shape, tensor)
        self.layouts[index] = Layout(tuple(map(_text, shape)), tuple(map(_text, stride)))
        return shape, stride

    def _symbol(self, index: Any, name: str, dim: Any, size: Any) -> Any:
        symbol = new_symbol(self.environment, name, dim, size)
        expression = symbol.node.expr
        self.dimensions[expression] = Dimension(str(expression), index, dim, size)
        return symbol

    def define(self, node: Node, twin: Any) -> None:
        """Record the sizes of an argument as nodes."""
        for dim, size in enumerate(twin.shape):
            if type(size) is torch.SymInt:
                self.recorder.sizes.nodes[size.node._expr] = self.recorder.sizes.record(
                    torch.ops.aten.sym_size.int, (node, dim)
                )

    def specializations(self) -> list[Any]:
        """The dimensions that the capture needed as numbers."""
        environment = self.environment
        return [
            Specialization(
                dimension.argument,
                self.names[dimension.argument],
                dimension.dim,
                dimension.example,
                *environment.asked_at.get(symbol, (None, True)),
            )
            for symbol, dimension in self.dimensions.items()
            if environment.simplify(symbol).is_number
        ]

    def guards(self) -> Any:
        """The DimensionGuards of the capture. Raises SizesNeeded if it needed a dimension as a number."""
        specializations = self.specializations()
        if specializations:
            raise SizesNeeded(specializations)
        try:
            return DimensionGuards(
                tuple(self.dimensions.values()),
                self.layouts,
                conditions_of(self.environment, self.dimensions),
            )
        except UnsupportedExpression as error:
            raise CaptureError(
                f"the sizes of arguments are guarded by an expression without a printed form: {error}",
                "Each set of sizes gets its own program.",
            ) from error


def _text(size: Any) -> Any:
    return size if type(size) is int else printed(size.node.expr)


def _strides_of(shape: Any, tensor: torch.Tensor) -> Any:
    """Return strides as products of the sizes where they are such products, else as numbers."""
    products, strides = {1: 1}, [0] * len(shape)
    for dim in sorted(range(len(shape)), key=lambda d: (tensor.stride(d), -d)):
        step = tensor.stride(dim)
        strides[dim] = products.get(step, step)
        if step:  # the stride of an expanded dimension is 0
            products[step * tensor.shape[dim]] = strides[dim] * shape[dim]
    return strides
