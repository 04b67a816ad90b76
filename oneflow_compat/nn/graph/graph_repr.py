"""The text of a graph: tags GRAPH, CONFIG, MODULE, PARAMETER, BUFFER, INPUT, OUTPUT and OPERATOR, in
OneFlow's form.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from ..._ops.tensor.texts import tensor_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .graph_members import GraphMembers

    Leaves = list[tuple[str, "LeafText"]]  # (name of a tensor or value, its text)
    ModuleCalls = dict[str, tuple[Sequence[Any], Sequence[Any]]]  # name of a module -> (inputs, outputs)


class LeafText:
    """The text of one leaf of the inputs or outputs, written when it is asked for. Few programs ask."""

    __slots__ = ("dtype", "function", "lazy", "requires_grad", "shape")

    def __init__(self, value: object, lazy: bool = False) -> None:
        if not isinstance(value, torch.Tensor):
            self.dtype: type | torch.dtype = type(value)
            self.shape: tuple[int | str, ...] | None = None
            return
        self.dtype, self.lazy, self.requires_grad = value.dtype, lazy, value.requires_grad
        # symbols would keep the capture alive
        self.shape = tuple(n if type(n) is int else str(n) for n in value.shape)
        function = value.grad_fn if lazy else None
        name = None if function is None else function.name
        # a plain string if a custom operator or function created the node
        self.function = name if name is None or isinstance(name, str) else name()

    @property
    def is_tensor(self) -> bool:
        return self.shape is not None

    def __str__(self) -> str:
        if self.shape is None:
            return str(self.dtype)
        grad_fn = self.function and self.function.replace("Backward0", "_backward").lower()
        return tensor_text(
            self.shape, self.dtype, lazy=self.lazy, requires_grad=self.requires_grad, grad_fn=grad_fn
        )


def named_leaves(
    prefix: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[tuple[str, Any]]:
    """Return [(name, leaf)] with OneFlow's names. _m_input.0.1_3 is the second positional value; names of
    keyword arguments end in their key.
    """
    order = itertools.count(2)
    leaves = [_leaves(prefix, f".0.{i}", None, value, order) for i, value in enumerate(args)]
    leaves += [
        _leaves(prefix, f".1.{i}", key, value, order) for i, (key, value) in enumerate((kwargs or {}).items())
    ]
    return list(itertools.chain.from_iterable(leaves))


def _leaves(
    prefix: str, path: str, key: object, value: Any, order: Iterator[int]
) -> Iterator[tuple[str, Any]]:
    """Yield (name, leaf) below a value. `order` counts the values, containers included.

    A container inside itself has no leaves there.
    """
    pending: list[tuple[str, object, Any, frozenset[int]]] = [(path, key, value, frozenset())]
    while pending:
        path, key, value, containers = pending.pop()
        index = next(order)
        if isinstance(value, dict):
            children: Iterable[tuple[Any, Any]] = value.items()
        elif isinstance(value, (list, tuple)):
            children = ((None, v) for v in value)
        else:
            yield f"_{prefix}{path}_{index if key is None else key}", value
            continue
        if id(value) not in containers:
            inside = containers | {id(value)}
            pending += reversed([(f"{path}.{i}", k, v, inside) for i, (k, v) in enumerate(children)])


def module_lines(
    module: torch.nn.Module,
    name: str,
    calls: ModuleCalls,
    operators: Mapping[str, Sequence[str]],
    indent: int = 0,
) -> list[str]:
    """Return the lines of a module block: inputs, parameters, buffers, children, outputs, operators."""
    pad = "  " * indent
    description = f"{type(module).__name__}({module.extra_repr()})"
    ins, outs = calls.get(name, ((), ()))
    lines = [f"{pad}(MODULE:{name}:{description}): ("]
    lines += [f"{pad}  (INPUT:{n}:{t})" for n, t in ins]
    for tag, tensors in (("PARAMETER", module._parameters), ("BUFFER", module._buffers)):
        lines += [
            f"{pad}  {tensor_line(tag, f'{name}.{n}', t)}: ()" for n, t in tensors.items() if t is not None
        ]
    for child_name, child in module._modules.items():
        if child is not None:
            lines += module_lines(child, f"{name}.{child_name}", calls, operators, indent + 1)
    lines += [f"{pad}  (OUTPUT:{n}:{t})" for n, t in outs]
    own = operators.get(name, ())
    lines.append(f"{pad}  (GraphModule:{name}()): (" + ("" if own else ")"))
    if own:
        lines += [f"{pad}    {line}" for line in own] + [f"{pad}  )"]
    return lines + [f"{pad})"]


def tensor_line(tag: str, name: str, tensor: torch.Tensor) -> str:
    return (
        f"({tag}:{name}:{tensor_text(tuple(tensor.shape), tensor.dtype, requires_grad=tensor.requires_grad)})"
    )


def _device(node: torch.fx.Node) -> str:
    info = node.meta.get("tensor")
    device = info[2] if isinstance(info, tuple) and len(info) > 2 else None
    return getattr(device, "type", None) or "cpu"


def graph_text(graph: GraphMembers) -> str:
    """Return the full text of a graph. Operators, inputs and outputs are present after its first call."""
    calls = graph._calls
    operators = graph._operators()
    ins, outs = calls.get("", ((), ()))
    lines = [f"(GRAPH:{graph.name}:{type(graph).__name__}): (", f"  {graph.config!r}"]
    lines += [f"  (INPUT:{n}:{t})" for n, t in ins]
    for name, block in graph._blocks.items():
        lines += module_lines(block._origin, name, calls, operators, 1)
    lines += [f"  {line}" for line in operators.get("", ())]
    lines += [f"  (OUTPUT:{n}:{t})" for n, t in outs]
    return "\n".join(lines + [")"])
