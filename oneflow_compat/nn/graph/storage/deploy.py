"""Graphs on disk: save and load_graph."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from ...._errors import unsupported
from ...._file_safety.atomic import check_target
from ...._graph import (
    GroupOption,
    html_report,
    location_text,
    package,
    refers_to_arguments,
    schedules,
    with_state_writes,
    writer,
)

if TYPE_CHECKING:
    from ...._graph import Effects, Entry, LoadedGraph, Program, Slot
    from ..graph_members import GraphMembers


def last_entry(graph: GraphMembers, what: str) -> Entry:
    """Return the entry of the program last run. RuntimeError that names `what` if there is none."""
    if graph._engine.eager_calls.unobserved is not None:
        raise graph._engine.eager_calls.no_program(what)
    if graph.program is None and graph._engine.eager_calls.has_begun:
        raise RuntimeError(
            f"{what}: graph {graph.name} has no program, because its calls ran in eager mode; explain()"
            " says why, and build_graph() raises the error of the capture"
        )
    if graph.program is None:
        raise RuntimeError(
            f"{what}: graph {graph.name} has no program yet; call it once (or build_graph) with arguments of"
            " the shapes to be saved"
        )
    return graph._engine.last_entry


def to_html(
    graph: GraphMembers, path: str | os.PathLike[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Write a program as an HTML page: the one last run, or that of a call with these arguments, timed."""
    seconds = None
    if args or kwargs:
        entry, values = graph._engine.find(args, kwargs)
        seconds = html_report.times(entry.program, values)
    else:
        entry = last_entry(graph, "to_html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(html_report.page(entry.program, seconds, _writes(entry.effects)))


def _writes(effects: Effects) -> list[str]:
    """Return what a run does outside its program, a line each."""
    lines = []
    for stored in effects.attributes:
        lines.append("appends to a list" if stored.appends else f"sets {stored.key!r}")
    if effects.argument_changes is not None:
        lines.append(f"changes {len(effects.argument_changes.changes)} parts of objects among the arguments")
    lines += [f"counts {guard.label}" for guard in effects.counters]
    steppers = (*effects.schedulers, *effects.schedulers_of_build)
    lines += [f"steps {type(scheduler).__name__}" for scheduler in steppers]
    if effects.gradients:
        lines.append(f"gives {len(effects.gradients)} tensors a gradient")
    return lines


def save(graph: GraphMembers, path: str | os.PathLike[str], compiled: bool = False) -> None:
    """Write the graph's programs, with weights and optimizer state, into the folder `path`; load_graph reads
    it back. `compiled`: write their machine code as well; see load_graph(trust_binaries=True).

    All programs that the graph has made for other shapes, Python arguments and values are kept besides the
    one last run.
    """
    path = check_target("save", path)
    entry = last_entry(graph, "save")
    check_steps(graph, entry, "saving")
    ending = entry.guards.ending
    if ending is not None:
        raise RuntimeError(
            f"save: each call of graph {graph.name} meets {ending.label}, which no saved program has\n"
            f"  {location_text(ending.code_location)}\n  With graph.config.eager_calls(False) before the"
            " first call, the program is saved without it."
        )
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
    programs = [written_program(e) for e in (entry, *_others(graph, entry))]
    writer.save(programs, path, backend, _schedules(graph, entry.program), compiled)


def written_program(entry: Entry) -> tuple[Program, tuple[object, ...]]:
    """Return the program as a file holds it, and the values of its slots."""
    values = entry.values_besides_arguments()
    return with_state_writes(entry.program, entry.effects.attributes, values), values


def _others(graph: GraphMembers, entry: Entry) -> list[Entry]:
    """Return the other programs that serve calls of the current graph, the most recent first."""
    # a loaded graph does not check the context of its call
    around = lambda e: e.key[:3] if e.key[:1] == ("autocast",) else None
    return [
        e
        for e in graph._engine.cache.recent_first
        if e is not entry
        and e.serves_later_calls
        and not (e.effects.state_values or _decided_by_steps(e) or _uses_argument_objects(e))
        and around(e) == around(entry)
        and e.prologue.holds_without_arguments()
    ]


def guarded_slots(entry: Entry) -> list[Slot]:
    """Return the slots that decide whether the program serves a call."""
    return [entry.program.slots[i] for i in entry.program.guard[1]] if entry.program.guard is not None else []


def _decided_by_steps(entry: Entry) -> bool:
    return any(s.role in ("optim", "lr") for s in guarded_slots(entry))


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


def check_steps(graph: GraphMembers, entry: Entry, what: str) -> None:
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
    if _uses_argument_objects(entry):
        raise unsupported(
            f"{what} graph {graph.name}, which changes or returns an object among its arguments,",
            "graph-save-objects",
            "Pass the tensors of the object, and return the new ones.",
        )


def _uses_argument_objects(entry: Entry) -> bool:
    return entry.effects.argument_changes is not None or refers_to_arguments(entry.program.out_spec)


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
