"""What a capture knows of the values that nodes will have when the program runs.

`known_value(recorder, node)` tells constants, examples and unknown values apart. A program may be made for an
example only if it tests the value in each call: the caller adds a Condition to `recorder.guards`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ...._active import outside_capture
from ...errors import BRANCH_ON_TENSOR, KEEP_VALUE, NEEDS_VALUE, CaptureError
from ...guards.conditions import Condition, part
from ...program.memory import storage_of
from ...program.operators import communicates
from ...program.program import roots, written_args
from ...program.random_functions import samples
from ...program.writes import written_inputs
from ..interfaces import RecordedTensor
from .assertions import assumed
from .likely_branches import is_sampled
from .numbers_and_symbols import NumbersOfRun

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from torch.fx import Graph, Node

    from ...program.live_numbers import LiveNumber
    from ..interfaces import RecorderInterface
    from .symbolic_sizes import Sizes


aten = torch.ops.aten
_MOST_NODES = 2000
_MOST_FLOATS, _MOST_INTEGERS = 4096, 1 << 16  # elements that are read to compute an example


class Origin(enum.Enum):
    CONSTANT = "constant"  # the same in each run: torch.arange(3) of build()
    EXAMPLE = "example"  # the value in this call, such as the sum of a mask that is an argument
    UNKNOWN = "unknown"  # the value depends on much data, floating arguments, parameters or randomness


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of one value. The value is a tensor, or what the operator returns: a tuple, a bool."""

    origin: Origin
    value: Any = None

    @property
    def is_example(self) -> bool:
        return self.origin is Origin.EXAMPLE


UNKNOWN = Known(Origin.UNKNOWN)


def known_value(recorder: RecorderInterface, node: Node, of_arguments: bool = False) -> Known:
    """Return what is known of the value of a node.

    An example may be computed from small buffers and integer arguments; with `of_arguments`, from floating
    arguments, too.
    """
    constant = constant_value(recorder, node)
    if constant is not None:
        return Known(Origin.CONSTANT, constant)
    example = _example_value(recorder, node, of_arguments)
    return UNKNOWN if example is None else Known(Origin.EXAMPLE, example)


def guarded_tensor(
    recorder: RecorderInterface, tensor: torch.Tensor, of_arguments: bool = False
) -> torch.Tensor | None:
    """Return the value of a tensor, which the program tests from here on, or None if it is unknown."""
    node, _ = recorder._convert(tensor)
    known_tensor = known_value(recorder, node, of_arguments)
    value: torch.Tensor | None = known_tensor.value
    if known_tensor.is_example:
        recorder.guards.append(Condition(node, torch.equal, value))
    return value


def guarded_scalar(recorder: Any, node: Any) -> Any:
    """Return the scalar in a tensor, which the program tests from here on, or None if it is unknown."""
    known_scalar = known_value(recorder, node)
    if known_scalar.value is None:
        return None
    scalar = known_scalar.value.item()
    if known_scalar.is_example:
        item = recorder.graph.call_function(aten._local_scalar_dense.default, (node,))
        recorder.guards.append(Condition(item, operator.eq, scalar))
    return scalar


# -- constants -----------------------------------------------------------------------------
def constant_value(recorder: Any, node: Any) -> Any:
    """Return the value of a node that is computed from constants only, else None.

    `recorder` is a recorder or a program: it has a graph and its constants.
    """
    nodes = _ancestors(node)
    if nodes is None:
        return None
    calls = (n for n in recorder.graph.nodes if n.op == "call_function")
    writing = [call for call in calls if not nodes.isdisjoint(roots(written_args(call)))]
    # a tensor that step() makes, such as a counter of zero, is state that a run finds
    if getattr(recorder, "phase", "update") != "update":
        if any(n.meta.get("phase") == "update" for n in (*nodes, *writing)):
            return None
    if writing:
        return _replayed(recorder, node)
    values = {}
    with _disable_current_modes(), torch.no_grad():
        for n in (n for n in recorder.graph.nodes if n in nodes):
            if n.op == "get_attr":
                values[n] = recorder.constants[n.target]
            else:
                args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), values.__getitem__)
                values[n] = n.target(*args, **kwargs)
    return values[node]


def _replayed(recorder: RecorderInterface, node: Node) -> Any:
    """Return the constant in a tensor that was written in place: everything that wrote it runs again."""
    small, copies, inputs = part(recorder.graph, set(roots([node])))  # a base may be written after its view
    if (
        inputs
        or len(small.nodes) > _MOST_NODES
        or not all(n.op == "get_attr" or _is_determined(n) for n in small.nodes)
    ):
        return None
    small.output(copies[node])
    return _interpreted(recorder, small)


def _is_determined(node: Node) -> bool:
    """Return True if the inputs of the operator determine its result.

    Those of a collective may differ on other ranks, which may capture nothing at the same time.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target.__module__ in ("_operator", "operator")
    return not samples(node.target) and not communicates(node.target)


def _ancestors(node: Node) -> Any:
    ancestors, todo = set(), [node]
    while todo:
        n = todo.pop()
        if n in ancestors:
            continue
        ancestors.add(n)
        if len(ancestors) > _MOST_NODES or n.op not in ("call_function", "get_attr"):
            return None
        if n.op == "call_function" and not _is_determined(n):
            return None
        todo.extend(n.all_input_nodes)
    return ancestors


# -- examples -------------------------------------------------------------------------------
def _example_value(recorder: RecorderInterface, node: Node, of_arguments: Any) -> Any:
    """Return the value of a node in this call, computed from small inputs, or None."""
    small, copies, inputs = part(recorder.graph, {node})
    if not inputs or any(samples(n.target) or communicates(n.target) for n in small.nodes):
        return None
    if _is_written_by_another_name(recorder.graph, inputs):
        return None
    values = _example_inputs(recorder, inputs, of_arguments)
    if values is None:
        return None
    small.output((copies[node],))
    (value,) = _interpreted(recorder, small, values)
    with _disable_current_modes():
        return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), value)


def _is_written_by_another_name(graph: Graph, inputs: tuple[int, ...]) -> bool:
    """Whether the graph writes the memory of one of these placeholders through another placeholder.

    `flat.zero_(); loss.backward(); flat.norm().item()`, where the gradients are views of `flat`.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    storages = {n: storage_of(n.meta.get("value")) for n in placeholders}
    read = {placeholders[index] for index in inputs}
    return any(
        storages[n] is not None and storages[n] == storages[other]
        for n in written_inputs(graph.nodes)
        for other in read - {n}
    )


def _example_inputs(recorder: RecorderInterface, inputs: Any, of_arguments: Any) -> Any:
    """Return the values of these placeholders, or None if they are too large or must not be read."""
    placeholders = [n for n in recorder.graph.nodes if n.op == "placeholder"]
    lifted = {node for _, node, _ in recorder.lifted.values()}
    values = []
    totals = {True: 0, False: 0}  # whether the tensors hold integers -> their total number of elements
    for node in (placeholders[index] for index in inputs):
        value = node.meta.get("value")
        if not isinstance(value, torch.Tensor) or value.requires_grad:
            return None
        is_integer = not (value.is_floating_point() or value.is_complex())
        if not (of_arguments or is_integer or node in lifted):
            return None
        totals[is_integer] += value.numel()
        values.append(value)
    return values if totals[True] <= _MOST_INTEGERS and totals[False] <= _MOST_FLOATS else None


def _interpreted(recorder: RecorderInterface, graph: Graph, values: Any = ()) -> Any:
    """Run a part of the captured graph on real tensors."""
    module = torch.nn.Module()
    for name, constant in recorder.constants.items():
        module.register_buffer(name, constant)
    with outside_capture(), torch.no_grad():  # the interpreter is no code of build()
        return torch.fx.Interpreter(torch.fx.GraphModule(module, graph)).run(*values)


# -- values of fake tensors -------------------------------------------------------------------
class KnownValues:
    """The part of Recorder that keeps the real value of a fake tensor in its `_value`, until it is written.

    These are tensors that build() makes of Python data, and step counters while the optimizer is recorded.
    """

    if TYPE_CHECKING:  # attributes of Recorder
        phase: str
        sizes: Sizes
        valued: dict[int, RecordedTensor]
        gives_numbers: bool
        numbers: list[weakref.ref[LiveNumber]]
        marker_values: dict[float, float]
        scalar_of: Callable[[torch.Tensor], float] | None

        def lift(self, tensor: torch.Tensor) -> tuple[Node, RecordedTensor]: ...

    def _item(self, tensor: Any) -> Any:
        """Return what .item() of a tensor gives in build() or step().

        Raise CaptureError if a program cannot have the scalar.
        """
        is_constant = "_value" in tensor.__dict__ and not _is_of_update(tensor)
        if is_constant and self.phase != "update":
            return tensor._value.item()
        # C++ takes a learning rate as a scalar
        if "_value" in tensor.__dict__ and self.scalar_of is not None:
            return self.scalar_of(tensor)
        node = getattr(tensor, "_of_node", None) if type(tensor) is RecordedTensor else self.lift(tensor)[0]
        value = self._scalar_in_build(tensor, node) if node is not None and self.phase != "update" else None
        if value is None:
            raise CaptureError(
                NEEDS_VALUE,
                BRANCH_ON_TENSOR if node is not None and is_sampled(node) else KEEP_VALUE,
            )
        return value

    def _scalar_in_build(self, tensor: Any, node: Node) -> Any:
        """Return the scalar in a tensor, guarded or asserted, or a symbol for an integer, or None."""
        value = guarded_scalar(self, node)
        if value is not None or tensor.numel() != 1:
            return value
        value = assumed(self, tensor, node)
        if value is not None:
            return value
        if tensor.dtype is torch.bool:
            return self.sizes.branch_on_values(node)
        if tensor.is_floating_point():
            return self._number_of(node) if self.gives_numbers else None
        return None if tensor.is_complex() else self.sizes.count(node)

    def _number_of(self, node: Node) -> Any:
        """Return the float in a tensor, whose value only a run knows."""
        advice = BRANCH_ON_TENSOR if is_sampled(node) else KEEP_VALUE
        numbers = NumbersOfRun(self.sizes, self.numbers, advice)
        return torch.SymFloat(numbers.unknown(self.sizes.record(aten._local_scalar_dense.default, (node,))))

    def _forget_values(self, args: Any) -> None:
        """Forget the values of tensors that were written, directly or through a view."""
        for t in _flat(args):
            if isinstance(t, RecordedTensor):
                t.__dict__.pop("_value", None)
                if t.layout is torch.strided:
                    constant = self.valued.pop(t.untyped_storage()._cdata, None)
                    if constant is not None:
                        constant.__dict__.pop("_value", None)

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Keep the real value of tensors of one element (step counters) while the optimizer is recorded."""
        if communicates(func):
            return
        outs = _as_several(out)
        tensors = [t for t in _flat(args) + _flat(tuple(kwargs.values())) if isinstance(t, RecordedTensor)]
        if any(t.numel() != 1 for t in (*outs, *tensors) if isinstance(t, torch.Tensor)):
            return
        if not samples(func) and all("_value" in t.__dict__ for t in tensors):
            real = func(*self._values(args), **{k: self._values(v) for k, v in kwargs.items()})
            for o, r in zip(outs, _as_several(real)):
                if isinstance(o, RecordedTensor) and "_value" not in o.__dict__:
                    o._value = r
        elif func._schema.is_mutable:
            for t in tensors:
                t.__dict__.pop("_value", None)

    def _values(self, a: Any) -> Any:
        if type(a) in (list, tuple):
            return type(a)(self._values(x) for x in a)
        if type(a) is float:
            return self.marker_values.get(a, a)
        return a._value if isinstance(a, RecordedTensor) else a


def _is_of_update(tensor: Any) -> bool:
    """Whether step() of an optimizer made or read a tensor, as a step counter: each run has another value."""
    node = getattr(tensor, "_of_node", None)
    return node is not None and (node.op == "placeholder" or node.meta.get("phase") == "update")


def _as_several(results: object) -> Sequence[Any]:
    """Return the results of an operator as a sequence, also if there is one."""
    return results if isinstance(results, (tuple, list)) else (results,)


def _flat(args: Any) -> Any:
    flat = []
    for a in args:
        if type(a) in (list, tuple):
            flat.extend(a)
        else:
            flat.append(a)
    return flat
