"""Graphs as files for other runtimes: torch.export, AOTInductor and ONNX."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any, Literal

import torch

from ...._errors import unsupported
from ...._graph import compile_program
from .deploy import check_steps, guarded_slots, last_entry, written_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._graph import Entry, Program, Slot
    from ..graph_members import GraphMembers


def export(
    graph: GraphMembers, path: str | os.PathLike[str], format: Literal["pt2", "aoti", "onnx"] = "pt2"
) -> None:
    """Write an inference graph for other runtimes: "pt2" (torch.export.load opens it), "aoti" (AOTInductor
    package), "onnx".

    The program last run is exported, for its shapes, with the weights inside.
    """
    entry = last_entry(graph, "export")
    if entry.program.training:
        raise ValueError(
            f"export: graph {graph.name} trains; only inference graphs are exported, save() keeps a"
            " training one"
        )
    if format not in ("pt2", "aoti", "onnx"):
        raise ValueError(f"export: format is 'pt2', 'aoti' or 'onnx', found {format!r}")
    check_steps(graph, entry, "exporting")
    _check_values(graph, entry, "exporting")
    if format == "onnx" and importlib.util.find_spec("onnxscript") is None:
        raise RuntimeError(
            "export(format='onnx') needs the packages onnx and onnxscript, which are not installed"
        )
    program, values = written_program(entry)
    module = _Exported(program, values)
    arguments = [s for s in program.slots if s.role == "arg"]
    examples = tuple(torch.zeros(program.example_shape(s), dtype=s.dtype, device=s.device) for s in arguments)
    with torch.no_grad():
        exported = torch.export.export(module, examples, dynamic_shapes=_dynamic_shapes(program, arguments))
    os.makedirs(os.path.dirname(os.path.abspath(os.fspath(path))), exist_ok=True)
    if format == "pt2":
        torch.export.save(exported, path)
    elif format == "aoti":
        torch._inductor.aoti_compile_and_package(exported, package_path=os.fspath(path))
    else:
        torch.onnx.export(
            exported,
            args=examples,
            f=os.fspath(path),
            dynamo=True,
            input_names=[s.name for s in arguments],
            output_names=[_identifier(o.name).strip("_") or "output" for o in program.outputs],
            verbose=False,
        )


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _dynamic_shapes(program: Program, arguments: Sequence[Slot]) -> tuple[Any, ...] | None:
    """The dimensions that torch.export may leave open, or None for a static program."""
    if program.dimensions is None:
        return None
    return (
        tuple(
            {dim: torch.export.Dim.AUTO for dim, size in enumerate(s.shape or ()) if type(size) is str}
            for s in arguments
        ),
    )


class _Exported(torch.nn.Module):
    """The program as a module whose buffers are its weights; it takes and returns tensors."""

    def __init__(self, program: Program, values: Sequence[object]) -> None:
        super().__init__()
        self._program = compile_program(program)
        self._inputs: list[tuple[int, str | None]] = []  # (index of a slot, its buffer or None)
        self._fixed: dict[int, Any] = {}
        for i, (slot, value) in enumerate(zip(program.slots, values)):
            if slot.role == "arg":
                self._inputs.append((i, None))
            elif isinstance(value, torch.Tensor):
                name = f"t{i}_{_identifier(slot.name)}"
                self.register_buffer(name, value.detach().clone())
                self._inputs.append((i, name))
            else:
                self._fixed[i] = value
        self._single = program.out_spec.is_leaf()
        self._count = len(program.slots)

    def forward(self, *args: torch.Tensor) -> Any:
        values, arguments = [self._fixed.get(i) for i in range(self._count)], iter(args)
        for i, name in self._inputs:
            values[i] = next(arguments) if name is None else getattr(self, name)
        out = self._program(*values)
        return out[0] if self._single else out


def _check_values(graph: GraphMembers, entry: Entry, what: str) -> None:
    """Refuse a program that values select before each call, because the file holds only one."""
    values = [s.name for s in guarded_slots(entry)]
    if values:
        raise unsupported(
            f"{what} graph {graph.name}, whose build() decides by the values of {', '.join(values)},",
            "graph-save-guards",
            "Compute with torch.where, or pass the decision as a Python argument. Where values decide a size"
            " (x[mask]), call the graph with other values first: the program for all sizes can be exported.",
        )
