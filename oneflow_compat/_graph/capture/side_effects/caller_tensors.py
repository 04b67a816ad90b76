"""Tensors that belong to the caller: arguments, and tensors that build() takes from closures and globals.

In OneFlow, a write of build() to such a tensor stays inside the call. The program then works on a copy that
it makes at its start. A tensor in an object among the arguments belongs to that object, and a write reaches
it. Parameters, buffers, and tensors in attributes of modules and of the graph are state: writes to
them persist.
"""

from __future__ import annotations

import collections
import operator
import warnings
from typing import TYPE_CHECKING, Any

import torch

from ...._global.tensor import memory_of
from ...errors import CaptureError, location_text
from ...program.memory import memory_id
from ...program.operators import facts_of
from ...program.program import roots, written_args
from ...program.tensor_info import TensorInfo
from .argument_objects import owned_by_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Graph

    from ..interfaces import CaptureInterface


aten = torch.ops.aten
_PACKAGE = __package__.partition(".")[0]
_WITHOUT_PARTS = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device))
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, collections.deque)


def keep_callers_values(capture: CaptureInterface, graph: Graph) -> list[str]:
    """Give each tensor of the caller that the program writes a copy at the start of the program; return the
    names of these tensors.
    """
    writers = _writers(graph)
    arguments, owned = _arguments(capture, graph)
    captured = _captured_tensors(capture, [p for p in writers if p not in arguments])
    names = []
    for placeholder, nodes in writers.items():
        if placeholder in owned:
            continue
        if placeholder in arguments or _is_outside_state(placeholder, nodes, captured):
            _copy_at_start(graph, placeholder, nodes[0])
            what = f"its argument {placeholder.target!r}" if placeholder in arguments else "a captured tensor"
            names.append(f"{what} ({location_text(nodes[0].meta.get('location'))})")
    return names


def warn_of_kept_values(capture: CaptureInterface, written: Sequence[str]) -> None:
    """Warn once of the writes that the callers of the graph will not see."""
    if written and capture.assumptions.is_first_report("kept values"):
        warnings.warn(
            f"graph {capture.definition.name}: build() writes in place to {'; '.join(written)}. The write"
            " stays inside the call, as in OneFlow: outside, the tensor keeps its values. Keep a value"
            " between calls in a buffer, or in an attribute of a module or of the graph;"
            " oneflow.set_dialect('torch') lets such writes through.",
            stacklevel=2,
        )


def same_contents(before: Any, after: Any) -> bool:
    """Whether two flattened structures have the same form and the same objects as leaves."""
    (leaves, spec), (now, spec_now) = before, after
    return spec == spec_now and all(map(operator.is_, leaves, now))


def note_changed_containers(capture: CaptureInterface) -> None:
    """Warn once that the lists and dicts which build() changes are not those of the caller.

    In the dialect of torch they are, so the call runs in eager mode.
    """
    if capture.definition.writes_through() and capture.config.ends_capture:
        raise CaptureError(
            "build() changes a list or dict among its arguments",
            "Return the new elements, or keep them in an attribute of a module or of the graph.",
        )
    if capture.assumptions.is_first_report("changed containers"):
        warnings.warn(
            f"graph {capture.definition.name}: build() changes a list or dict among its arguments. The"
            " change stays inside the call, as in OneFlow: the caller's list or dict keeps its elements."
            " Return the new elements, or keep them in an attribute of a module or of the graph.",
            stacklevel=2,
        )


def _writers(graph: Graph) -> Any:
    """Return {placeholder: nodes that write it or a view of it}."""
    writers: dict[Any, Any] = {}
    for node in graph.nodes:
        if node.op != "call_function" or facts_of(node.target).renames:
            continue
        for root in roots(written_args(node)):
            if root.op == "placeholder":
                writers.setdefault(root, []).append(node)
    return writers


def _arguments(capture: CaptureInterface, graph: Graph) -> tuple[set[Any], set[Any]]:
    """Return the placeholders of the arguments, and those whose tensors belong to objects of the caller."""
    recorder = capture.recorder
    no_arguments = {node for _, node, _ in recorder.lifted.values()} | set(
        capture.update.inputs.values() if capture.update is not None else ()
    )
    arguments = [n for n in graph.nodes if n.op == "placeholder" and n not in no_arguments]
    indices = [i for i, leaf in enumerate(capture.args_flat) if isinstance(leaf, torch.Tensor)]
    _, of_objects = owned_by_objects(capture.in_spec)
    return set(arguments), {n for i, n in zip(indices, arguments) if i in of_objects}


def _captured_tensors(capture: CaptureInterface, placeholders: Any) -> set[Any]:
    """Return the placeholders that stand for tensors of no module, optimizer or graph."""
    placeholder_set = set(placeholders)
    tensors: dict[Any, Any] = {}
    for tensor, node, _ in capture.recorder.lifted.values():
        if node in placeholder_set:
            tensors.setdefault(node, []).append(tensor)
    if not tensors:
        return set()
    state = _memories_of_state(capture)
    return {
        node
        for node, node_tensors in tensors.items()
        if not any(
            isinstance(t, torch.nn.Parameter)
            or capture.state.entry(t) is not None
            or memory_id(memory_of(t)) in state
            for t in node_tensors
        )
    }


def _is_outside_state(placeholder: Any, nodes: Any, captured: Any) -> Any:
    """Return True if the placeholder is captured from outside the graph's state.

    The optimizers' own tensors are state. So is a tensor that build() fills by copy_(), because OneFlow
    keeps that value, too.
    """
    if placeholder not in captured or any(n.meta.get("phase") == "update" for n in nodes):
        return False
    return not any(n.target is aten.copy_.default and n.args[0] is placeholder for n in nodes)


def _memories_of_state(capture: CaptureInterface) -> Any:
    """Return the memory of every tensor of a module, an optimizer, the graph or its gradient scaler."""
    pending = [entry.tensor for entry in capture.state.by_id.values()]
    pending += [optimizer.state for optimizer, _ in capture.state.optimizers]
    for owner in capture.owners:
        pending += [owner.__dict__, *(getattr(owner, name, {}) for name in ("_parameters", "_buffers"))]
    if capture.update is not None and capture.update.scaler is not None:
        pending.append(capture.update.scaler.__dict__)
    memories, seen = set(), {}
    while pending:
        value = pending.pop()
        if type(value) in _WITHOUT_PARTS or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            memories.add(memory_id(memory_of(value)))
        else:
            pending += _parts(value)
    return memories


def _parts(value: Any) -> Any:
    """Return the values that a container or a user's object holds."""
    value_type = type(value)
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += dict.values(value)
    for container in _CONTAINERS:  # a subclass may count or list its elements otherwise
        if isinstance(value, container):
            parts += container.__iter__(value)
    if (
        not isinstance(value, type)
        and value_type.__module__.partition(".")[0] not in (_PACKAGE, "builtins")
        and isinstance(getattr(value, "__dict__", None), dict)
    ):
        parts += vars(value).values()
    return parts


def _copy_at_start(graph: Graph, placeholder: Any, writer: Any) -> None:
    info = placeholder.meta["tensor"]
    first_operator = next(n for n in graph.nodes if n.op != "placeholder")
    added: list[Any] = []

    def call(target: Any, *args: Any, shape: Any = info.shape, **options: Any) -> Any:
        added.append(graph.call_function(target, args, options))
        added[-1].meta.update(
            tensor=TensorInfo(*info)._replace(shape=shape),
            phase="forward",
            module="",
            location=writer.meta.get("location"),
        )
        return added[-1]

    with graph.inserting_before(first_operator):
        if info.stride is None or _is_dense(info):
            copied = call(aten.clone.default, placeholder)
        else:  # a copy with the same gaps, because views of the copy count by strides
            shape, stride = list(info.shape), list(info.stride)
            copied = call(aten.empty_strided.default, shape, stride, dtype=info.dtype, device=info.device)
            # elements of an expanded tensor lie in the same memory, which is written once
            sizes = [size if step else min(size, 1) for size, step in zip(shape, stride)]
            parts = [copied, placeholder]
            if sizes != shape:
                parts = [call(aten.as_strided.default, t, sizes, stride, shape=(*sizes,)) for t in parts]
            call(aten.copy_.default, *parts, shape=(*sizes,))
    placeholder.replace_all_uses_with(copied, delete_user_cb=lambda user: user not in added)


def _is_dense(info: Any) -> bool:
    expected = 1
    for stride, size in sorted((st, n) for n, st in zip(info.shape, info.stride) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True
