"""Graphs on disk: save and load_graph, and export to torch.export, AOTInductor and ONNX files."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal

import torch

from ... import _bind
from ..._errors import unsupported
from ..._graph.program import html_report
from ..._graph.program.codegen import compile_program
from ..._graph.program.locations import GroupOption
from ..._graph.saved import package, schedules, writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._graph.call.entry import Entry
    from ..._graph.program.program import Program, Slot
    from ..._graph.saved.loaded import LoadedGraph
    from .graph_members import GraphMembers


def _entry(graph: GraphMembers, what: str) -> Entry:
    if graph.program is None:
        raise RuntimeError(
            f"{what}: graph {graph.name} has no program yet; call it once (or build_graph) with arguments of"
            " the shapes to be saved"
        )
    return graph._engine._last


def to_html(
    graph: GraphMembers, path: str | os.PathLike[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Write a program as an HTML page: the one last run, or that of a call with these arguments, timed."""
    seconds = None
    if args or kwargs:
        entry, values = graph._engine.find(args, kwargs)
        seconds = html_report.times(entry.program, values)
    else:
        entry = _entry(graph, "to_html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(html_report.page(entry.program, seconds))


def save(graph: GraphMembers, path: str | os.PathLike[str], compiled: bool = False) -> None:
    """Write the graph's programs, with weights and optimizer state, into the folder `path`; load_graph reads
    it back. `compiled`: write their machine code as well; see load_graph(trust_binaries=True).

    All programs that the graph has made for other shapes, Python arguments and values are kept besides the
    one last run.
    """
    entry = _entry(graph, "save")
    _check_steps(graph, entry, "saving")
    if entry.guards.serves_one_call:
        raise RuntimeError(
            f"save: the first call of graph {graph.name} also began the optimizer's state, as later ones do"
            " not; call it once more before saving"
        )
    backend = "aten" if graph._engine.config.backend == "aten" else None
    if compiled and backend is not None:
        raise ValueError(
            f"save: compiled=True of graph {graph.name}, which is set to the backend 'aten';"
            " set_backend('auto') or 'inductor' before its first call"
        )
    programs = [(e.program, e.values_besides_arguments()) for e in (entry, *_others(graph, entry))]
    writer.save(programs, os.fspath(path), backend, _schedules(graph, entry.program), compiled)


def _others(graph: GraphMembers, entry: Entry) -> list[Entry]:
    """Return the other programs that serve calls of the current graph, the most recent first."""
    # a loaded graph does not check the context of its call
    around = lambda e: e.key[:3] if e.key[:1] == ("autocast",) else None
    entries = [
        e for variants in reversed(graph._engine._entries.values()) for e in variants if e is not entry
    ]
    return [
        e
        for e in entries
        if e.serves_later_calls
        and not (e.effects.state_values or _decided_by_steps(e))
        and around(e) == around(entry)
        and e.prologue.holds_without_arguments()
    ]


def _guarded(entry: Entry) -> list[Slot]:
    """Return the slots that decide whether the program serves a call."""
    return [entry.program.slots[i] for i in entry.program.guard[1]] if entry.program.guard is not None else []


def _decided_by_steps(entry: Entry) -> bool:
    return any(s.role in ("optim", "lr") for s in _guarded(entry))


def _schedules(graph: GraphMembers, program: Program) -> list[dict[str, Any]]:
    """Return records of the graph's schedules, each with the slots of its groups' rates. Warn about a
    schedule that cannot be stored.
    """
    records: list[dict[str, Any]] = []
    slots = {s.location: s.name for s in program.slots if s.role == "lr" and s.shape is None}
    for o, (optimizer, schedule) in enumerate(graph._opts):
        if schedule is None:
            continue
        rates_are_scalars = not any(isinstance(g["lr"], torch.Tensor) for g in optimizer.param_groups)
        kept = (
            schedules.record(
                schedule,
                [slots.get(GroupOption(o, g, ("lr",))) for g in range(len(optimizer.param_groups))],
            )
            if rates_are_scalars
            else None
        )
        if kept is None:
            warnings.warn(
                f"save: the schedule {type(schedule).__name__} of graph {graph.name} cannot be stored; the"
                " loaded graph keeps the learning rates of now until its set_lr() changes them",
                stacklevel=4,
            )
        else:
            records.append(kept)
    return records


def _check_steps(graph: GraphMembers, entry: Entry, what: str) -> None:
    """Refuse a program that the optimizer's step number selects before each call, because the file would hold
    only that program.
    """
    if _decided_by_steps(entry) or entry.effects.state_values:
        raise unsupported(
            f"{what} graph {graph.name}, whose optimizer decides by its step number,",
            "graph-save-guards",
            "Save an inference graph, or train with an optimizer without such a rule (SGD, Adam, AdamW,"
            " ...).",
        )


def _check_values(graph: GraphMembers, entry: Entry, what: str) -> None:
    """Refuse a program that values select before each call, because the file holds only one."""
    values = [s.name for s in _guarded(entry)]
    if values:
        raise unsupported(
            f"{what} graph {graph.name}, whose build() decides by the values of {', '.join(values)},",
            "graph-save-guards",
            "Compute with torch.where, or pass the decision as a Python argument. Where values decide a size"
            " (x[mask]), call the graph with other values first: the program for all sizes can be exported.",
        )


def load_graph(
    path: str | os.PathLike[str],
    map_location: torch.device | str | None = None,
    backend: str | None = None,
    trust_binaries: bool = False,
) -> LoadedGraph:
    """The graph saved in the folder `path`, without its Python class: call it as the graph was called.

    Inference and training graphs; weights and optimizer state are its own copies. Nothing in the files is
    executed; a damaged or foreign file is an error that names it. `map_location`: a device. `backend`: as of
    config.set_backend(); without one "aten" where the graph was set to it, else the default ("auto").

    `trust_binaries`: run the machine code of save(compiled=True) if it fits this machine, also where there is
    no compiler. It is a program of whoever wrote the folder, so say so only if you trust them.
    """
    return package.load(path, map_location, backend, trust_binaries)


def export(
    graph: GraphMembers, path: str | os.PathLike[str], format: Literal["pt2", "aoti", "onnx"] = "pt2"
) -> None:
    """Write an inference graph for other runtimes: "pt2" (torch.export.load opens it), "aoti" (AOTInductor
    package), "onnx".

    The program last run is exported, for its shapes, with the weights inside.
    """
    entry = _entry(graph, "export")
    program = entry.program
    if program.training:
        raise ValueError(
            f"export: graph {graph.name} trains; only inference graphs are exported, save() keeps a"
            " training one"
        )
    if format not in ("pt2", "aoti", "onnx"):
        raise ValueError(f"export: format is 'pt2', 'aoti' or 'onnx', found {format!r}")
    _check_steps(graph, entry, "exporting")
    _check_values(graph, entry, "exporting")
    if format == "onnx" and importlib.util.find_spec("onnxscript") is None:
        raise RuntimeError(
            "export(format='onnx') needs the packages onnx and onnxscript, which are not installed"
        )
    module = _Exported(program, entry.values_besides_arguments())
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
        names = [s.name for s in program.slots if s.role == "arg"]
        results = [
            "".join(c if c.isalnum() else "_" for c in o.name).strip("_") or "output" for o in program.outputs
        ]
        torch.onnx.export(
            exported,
            args=examples,
            f=os.fspath(path),
            dynamo=True,
            input_names=names,
            output_names=results,
            verbose=False,
        )


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

    def __init__(self, program: Program, values: Sequence[Any]) -> None:
        super().__init__()

        self._program = compile_program(program)
        self._inputs: list[tuple[int, str | None]] = []  # (index of a slot, its buffer or None)
        self._fixed: dict[int, Any] = {}
        for i, (slot, value) in enumerate(zip(program.slots, values)):
            if slot.role == "arg":
                self._inputs.append((i, None))
            elif isinstance(value, torch.Tensor):
                name = f"t{i}_" + "".join(c if c.isalnum() else "_" for c in slot.name)
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


# --------------------------------------------------------------------------- the compiled program inside a
# state dict
def runtime_state_dict(
    graph: GraphMembers, destination: OrderedDict[str, Any] | None = None, with_eager: bool = False
) -> OrderedDict[str, Any]:
    """The compiled program and what it reads as an OrderedDict that flow.save can write; see
    load_runtime_state_dict.

    A graph made with_dynamic_input_shape gives {its name: that OrderedDict}. `with_eager`: add the modules'
    state dicts under "eager_state".
    """
    _entry(graph, "runtime_state_dict")
    whole = out = OrderedDict() if destination is None else destination
    if graph._dynamic:
        out = whole[graph.name] = OrderedDict(outputs_original=None)  # clients look through this entry
    with tempfile.TemporaryDirectory() as folder:
        save(graph, os.path.join(folder, "graph"))
        for key, name in (("program", "program.json"), ("tensors", "tensors.pt")):
            with open(os.path.join(folder, "graph", name), "rb") as file:
                out[key] = file.read()
    out["oneflow_version"], out["graph_name"] = _bind.ours("oneflow", "__version__"), graph.name
    if with_eager:
        out["eager_state"] = OrderedDict(
            (name, block._origin.state_dict()) for name, block in graph._blocks.items()
        )
    return whole


def load_runtime_state_dict(
    graph: GraphMembers, state_dict: dict[str, Any], warmup_with_run: bool = True
) -> None:
    """Take over a program from runtime_state_dict(): the first call captures nothing.

    The graph's modules keep their weights, and get the saved ones from runtime_state_dict(with_eager=True).
    `warmup_with_run`: run the program once on zeros (inference graphs only).
    """
    graph._before_first_call("load_runtime_state_dict")
    if not isinstance(state_dict, dict):
        raise TypeError(
            "load_runtime_state_dict takes what runtime_state_dict() returned, found"
            f" {type(state_dict).__name__}"
        )
    # of a graph made with_dynamic_input_shape
    if len(state_dict) == 1 and isinstance(only_state := next(iter(state_dict.values())), dict):
        state_dict = only_state
    _check_files("load_runtime_state_dict", state_dict)
    with tempfile.TemporaryDirectory() as folder:
        for key, name in (("program", "program.json"), ("tensors", "tensors.pt")):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(state_dict[key])
        loaded = load_graph(folder, backend=graph._engine.config.backend)
    live = {}
    for prefix, block in graph._blocks.items():
        for tensors in (block._origin.named_parameters(), block._origin.named_buffers()):
            live.update({f"{prefix}.{n}": t for n, t in tensors})
    read = loaded.take(live)
    if "eager_state" in state_dict:
        with torch.no_grad():
            for name, value in read.items():
                live[name].copy_(value)
    if warmup_with_run and not loaded.training:
        loaded.warm_up()
    object.__setattr__(graph, "_loaded", loaded)


def runtime_state_dict_to(state_dict: dict[str, Any], device: torch.device | str) -> dict[str, Any]:
    """The state dict with its program on another device."""
    if "program" not in state_dict:
        return type(state_dict)(
            (name, runtime_state_dict_to(state, device)) for name, state in state_dict.items()
        )
    _check_files("runtime_state_dict_to", state_dict)
    out = type(state_dict)(state_dict)
    out["program"], out["tensors"] = writer.moved(state_dict["program"], state_dict["tensors"], device)
    return out


def _check_files(what: str, state_dict: dict[str, Any]) -> None:
    """Raise unless the state dict holds the two files of a saved graph."""
    missing = {"program", "tensors"} - set(state_dict)
    if missing:
        raise RuntimeError(f"{what}: {sorted(missing)} are missing; give what runtime_state_dict() returned")
    for key in ("program", "tensors"):
        if not isinstance(state_dict[key], bytes):
            raise TypeError(
                f"{what}: {key!r} must be bytes, found {type(state_dict[key]).__name__}; give what"
                " runtime_state_dict() returned"
            )
