"""Regions with symbols in the shapes of their inputs, compiled once for many sizes.

torch's compiler asks more questions about sizes than the capture did, so each compiled *variant* of a region
has guards of its own. A call whose sizes no variant serves runs the captured operators of the region, or has
another variant compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ...guards.dimensions import DimensionGuards, evaluate
from ...program.symbol_environment import conditions_of, new_symbol

if TYPE_CHECKING:
    from torch.fx import Node
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from ...guards.dimensions import Dimension
    from ...program.program import CompiledFunction
    from ...program.tensor_info import TensorInfo
    from .regions import CompiledRegion, Region


MAX_VARIANTS = 8  # compiled forms of one region
# (variants, inputs of a call) -> a function for their sizes, or None if there is none yet
OtherVariant: TypeAlias = "Callable[[Variants, tuple[Any, ...]], CompiledFunction | None]"


def has_fixed_results(node: Node) -> bool:
    """Whether the shape and strides of a node's result have no symbols."""
    info = node.meta.get("tensor")
    return info is None or not any(type(n) is str for n in (*info.shape, *(info.stride or ())))


class SymbolicInputs:
    """Examples for the inputs of a region, in a symbolic environment of their own."""

    def __init__(self, guards: DimensionGuards, environment: ShapeEnv) -> None:
        self.guards, self.environment = guards, environment
        self.sizes = {
            d.symbol: new_symbol(environment, f"input{d.argument}", d.dim, d.example)
            for d in guards.dimensions
        }
        for condition in guards.conditions:  # conditions of the capture, equal sizes among them
            assert evaluate(condition, self.sizes), condition

    def examples(self, infos: list[TensorInfo]) -> list[torch.Tensor]:
        """Return symbolic tensors. Call it in the mode of the environment."""
        examples = []
        for index, info in enumerate(infos):
            layout = self.guards.layouts.get(index)
            described = info if layout is None else layout
            shape = [evaluate(n, self.sizes) for n in described.shape]
            stride = [evaluate(n, self.sizes) for n in described.stride]
            examples.append(torch.empty_strided(shape, stride, dtype=info.dtype, device=info.device))
        return examples

    def free(self) -> list[tuple[Dimension, torch.SymInt]]:
        """Return [(dimension, symbolic size)] of the symbols that no other one decides.

        They are inputs of the compiled code as well: inductor's cache tests the guards of an entry on such
        inputs only, and takes entries for other sizes without them (torch 2.13).
        """
        return [
            (dimension, size)
            for dimension, size in zip(self.guards.dimensions, self.sizes.values())
            if size.node.expr == size.node._expr
        ]

    def guards_after_compiling(self) -> DimensionGuards:
        """Return what must hold of the sizes of a call."""
        symbols = [size.node._expr for size in self.sizes.values()]
        dimensions = (replace(d, symbol=str(s)) for d, s in zip(self.guards.dimensions, symbols))
        return DimensionGuards(tuple(dimensions), {}, conditions_of(self.environment, symbols))


class Variants:
    """A function over the inputs of a region that runs the variant for their sizes."""

    __name__ = "region"  # torch.fx names the node of a call by it

    def __init__(
        self,
        functions: Sequence[CompiledRegion],
        captured: CompiledFunction,
        other_variant: OtherVariant | None = None,
        proved: Callable[[CompiledRegion], CompiledRegion] = lambda function: function,
    ) -> None:
        """`captured` runs the operators of the region. `other_variant(self, values)` returns a variant for
        other sizes, or None if there is none yet. `proved` compares a variant with the captured operators.
        """
        self.proved = proved
        self.variants: list[tuple[Callable[[Sequence[Any]], bool], CompiledRegion]] = []
        for function in functions:
            self.add(function)
        self.captured, self.other_variant = captured, other_variant
        self.graph = getattr(functions[0], "graph", None)

    def __call__(self, *values: Any) -> Sequence[Any]:
        function: CompiledFunction | None = self.variant_for(values)
        if function is None and self.other_variant is not None and len(self.variants) < MAX_VARIANTS:
            function = self.other_variant(self, values)
        return (function or self.captured)(*values)

    def variant_for(self, values: tuple[Any, ...]) -> CompiledRegion | None:
        """Return the variant that serves the sizes of these inputs, or None."""
        return next((function for serves, function in self.variants if serves(values)), None)

    def add(self, function: CompiledRegion) -> CompiledRegion:
        assert function.guards is not None, "the region has no symbols"
        function = self.proved(function)
        self.variants.append((function.guards.compile(), function))
        return function


def at_sizes_of(region: Region, values: tuple[Any, ...]) -> Region:
    """Return the region with the sizes of these inputs as examples."""
    resized, guards = copy.copy(region), region.guards
    assert guards is not None, "the region has no symbols"
    dimensions = (replace(d, example=values[d.argument].shape[d.dim]) for d in guards.dimensions)
    resized.guards = replace(guards, dimensions=tuple(dimensions))
    return resized


def caller_with_sizes(
    call: Callable[[list[Any]], Sequence[Any]], dimensions: Sequence[Dimension]
) -> CompiledFunction:
    """Return a function over the inputs of a region that hands `call` the sizes of dimensions first."""
    if not dimensions:
        return lambda *values: call(list(values))
    reads = [(d.argument, d.dim) for d in dimensions]

    def region(*values: Any) -> Sequence[Any]:
        return call([*(values[i].shape[dim] for i, dim in reads), *values])

    return region
