"""Program: one captured, frozen ATen graph with a record of what each input and output is."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.fx
from torch.utils._pytree import TreeSpec

from ..errors import ProgramError
from ..pipeline_plan import PipelinePlan
from .codegen import readable
from .locations import Argument, Location
from .operators import facts_of, is_written
from .tensor_info import Shape

if TYPE_CHECKING:
    from ..guards.dimensions import DimensionGuards

# the values of the slots, as arguments -> the outputs
CompiledFunction = Callable[..., Sequence[Any]]

ROLES = ("arg", "param", "buffer", "optim", "lr", "free", "number")


@dataclass(frozen=True)
class Slot:
    """One input: its role, readable name, location and metadata (shape is None for a Python number)."""

    role: str
    name: str
    location: Location
    shape: Shape | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    stride: Shape | None = None
    written: bool = False  # the program writes it in place

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.role} {self.name}: number"
        dtype = str(self.dtype).replace("torch.", "")
        return f"{self.role} {self.name}: {dtype}[{', '.join(map(str, self.shape))}] {self.device}" + (
            " (updated)" if self.written else ""
        )


@dataclass(frozen=True)
class Output:
    """One output of build(): a tensor, or a value fixed when the program was captured."""

    name: str
    shape: Shape | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None


@dataclass(frozen=True)
class Program:
    """One captured program: `graph` takes the slots in order and returns the tensors of `outputs` in order.

    Running the nodes in order, in-place ones included, is the meaning of the program.
    """

    name: str
    graph: torch.fx.Graph
    slots: tuple[Slot, ...]
    outputs: tuple[Output, ...]
    in_spec: TreeSpec
    out_spec: TreeSpec
    out_constants: tuple[tuple[int, Any], ...]  # (flat index, value) of outputs that are no tensors
    # (flat index, name, repr) of arguments that are no tensors: the program is valid for these values only
    in_constants: tuple[tuple[int, str, str], ...] = ()
    constants: dict[str, torch.Tensor] = field(default_factory=dict)  # get_attr target -> tensor
    # (fx graph, input indices): the assumptions about lr and step counters, see guards/conditions.py
    guard: tuple[torch.fx.Graph, tuple[int, ...]] | None = None
    training: bool = False
    config: object = None
    # some tensors have sizes that depend on values; such a dimension is a string in their shapes
    unknown_sizes: bool = False
    # some dimensions of arguments are symbols, which are strings in the shapes of tensors
    dimensions: DimensionGuards | None = None
    pipeline: PipelinePlan | None = None  # the operators are in the order of this plan
    history: tuple[tuple[str, float, int], ...] = ()  # (stage name, seconds, nodes after it)

    def with_(self, **changes: Any) -> Program:
        return replace(self, **changes)

    def example_shape(self, slot: Slot) -> tuple[int, ...]:
        """Return the shape of an argument at the capture."""
        dimensions = self.dimensions.dimensions if self.dimensions is not None else ()
        sizes = {(d.argument, d.dim): d.example for d in dimensions}
        location, shape = slot.location, slot.shape
        assert isinstance(location, Argument) and shape is not None, slot.name
        example: tuple[Any, ...] = tuple(
            sizes.get((location.index, dim), size) for dim, size in enumerate(shape)
        )
        return example

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        return [n for n in self.graph.nodes if n.op == "placeholder"]

    def check(self) -> Program:
        """Verify that graph, slots and outputs agree; raise ProgramError naming the first inconsistency."""
        holders = self.placeholders
        if len(holders) != len(self.slots):
            raise ProgramError(
                f"program {self.name}: {len(holders)} placeholders but {len(self.slots)} slots"
            )
        seen = set()
        for node in self.graph.nodes:
            for used in node.all_input_nodes:
                if used not in seen:
                    raise ProgramError(
                        f"program {self.name}: {node.name} uses {used.name} before it is computed"
                    )
            seen.add(node)
            if node.op == "get_attr" and node.target not in self.constants:
                raise ProgramError(f"program {self.name}: no constant named {node.target!r}")
            if node.op == "call_function" and not callable(node.target):
                raise ProgramError(f"program {self.name}: {node.name} calls {node.target!r}")
            if node.op in ("call_method", "call_module"):
                raise ProgramError(
                    f"program {self.name}: {node.name} is a {node.op}; only ATen calls are allowed"
                )
        for slot in self.slots:
            if slot.role not in ROLES:
                raise ProgramError(f"program {self.name}: slot {slot.name} has unknown role {slot.role!r}")
        returned: Any = self.output_node.args[0]
        if len(returned) != len(self.outputs):
            raise ProgramError(
                f"program {self.name}: returns {len(returned)} values, {len(self.outputs)} outputs are"
                " declared"
            )
        return self

    @property
    def output_node(self) -> torch.fx.Node:
        return self.graph.output_node()

    def count(self) -> int:
        return sum(
            1 for n in self.graph.nodes if n.op == "call_function" and n.target is not operator.getitem
        )

    def __str__(self) -> str:
        return readable(self)

    __repr__ = __str__


def node_argument(node: torch.fx.Node, position: int) -> torch.fx.Node:
    """Return the argument of a call at this position, which is a node."""
    return cast(torch.fx.Node, node.args[position])


def written_args(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the argument nodes that an ATen node writes in place."""
    statistics = facts_of(node.target).written_statistics
    if statistics is not None:
        mean, var, training = statistics
        args: Any = node.args
        return [args[i] for i in (mean, var) if args[i] is not None] if args[training] else []
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    written = []
    for position, arg in enumerate(schema.arguments):
        if not is_written(arg):
            continue
        value = node.args[position] if position < len(node.args) else node.kwargs.get(arg.name)
        if isinstance(value, torch.fx.Node):
            written.append(value)
        elif isinstance(value, (list, tuple)):
            written.extend(v for v in value if isinstance(v, torch.fx.Node))
    return written


def is_view(node: torch.fx.Node) -> bool:
    """Return True if the node's result shares memory with an argument without writing it."""
    if node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None and not is_written(r) for r in schema.returns)


def roots(nodes: Iterable[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """Yield the nodes themselves and the nodes they are views of."""
    for node in nodes:
        while node.op == "call_function" and is_view(node):
            yield node
            base: Any = node.args[0]
            node = base if isinstance(base, torch.fx.Node) else base[0]
        yield node
