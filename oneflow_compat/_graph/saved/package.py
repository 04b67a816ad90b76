"""Read a graph from a folder without running anything of it: program.json (readable) and tensors.pt.

writer.py writes the folder. Operators are stored by name and looked up among torch's; Python functions come
from a short list. Shapes, phases and the marks of recurrent layers are stored as well, so the backends
compile a loaded program as they compile a captured one (format 2 had none of these).

A damaged or foreign file gives a PackageError. reader.py checks values, operators.py the calls, and
tensors.py the tensors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..._file_safety.shown import reason, shown
from ..compile import BACKENDS, check_name, default_backend
from ..compile.notices import say
from .binaries import FOLDER as BINARIES
from .binaries import SavedBinaries
from .folder import PROGRAM, TENSORS, TENSORS_NAME, opened
from .loaded import LoadedGraph, LoadedProgram
from .program_json import PROGRAM_KEYS, read_program
from .reader import (
    PackageError,
    anything,
    choice,
    label,
    listed,
    optional,
    parse,
    record,
    refuse,
    text,
)
from .schedules import SavedSchedule
from .tensors import read_tensors
from .writer import FORMAT, checksum

if TYPE_CHECKING:
    from ..program.program import Program
    from .tensors import MapLocation


READABLE_FORMATS = (2, 3)
_head = record(
    {
        "backend": optional(choice(*BACKENDS)),
        "schedules": listed(anything),
        "others": listed(anything),
        "tensors": text,
        "crc32": text,
        **dict.fromkeys(PROGRAM_KEYS, anything),
    },
    format=anything,
    name=label,
)


def load(
    folder: str | os.PathLike[str],
    map_location: MapLocation = None,
    backend: str | None = None,
    trust_binaries: bool = False,
) -> LoadedGraph:
    """Return the graph in `folder`, ready to call. `backend`: as in graph.config.set_backend().

    `trust_binaries`: run the machine code that graph.save(compiled=True) left in the folder.
    """
    if backend is not None:
        check_name(backend)
    map_location, folder = _available(map_location), os.fspath(folder)
    path = os.path.join(folder, PROGRAM)
    with _damage_named(path):
        document, checksum, tensors = _read_files(folder, path, map_location)
    device = torch.device(map_location) if isinstance(map_location, (str, torch.device)) else None
    binaries = _binaries(document, backend, folder, trust_binaries)
    backend = _backend(document, backend, path)
    with _damage_named(path):
        graph = _graph(document, path, tensors, device, backend, binaries)
    if document["format"] == FORMAT and document["crc32"] not in (None, checksum):
        raise PackageError(
            f"{path} is damaged: its values have the CRC-32 {checksum}, it says {shown(document['crc32'])}. "
            "Save the graph again; if you changed the file on purpose, remove its key 'crc32'"
        )
    return graph


@contextlib.contextmanager
def _damage_named(path: str) -> Iterator[None]:
    """Raise a PackageError that names the file for every error that a damaged file can cause."""
    try:
        yield
    except PackageError:
        raise
    except Exception as error:
        if getattr(error, "of_the_caller", False):
            raise
        raise PackageError(
            f"{path} is damaged: {type(error).__name__}: {reason(error)}; save the graph again"
        ) from None


def _read_files(
    folder: str, path: str, map_location: MapLocation
) -> tuple[dict[str, Any], str, dict[str, torch.Tensor]]:
    """Return (checked document, its checksum, tensors).

    A save may replace both files in between; then they are read once more.
    """
    document, checksum = _read_document(folder, path)
    for _ in range(3):
        name = document["tensors"] or TENSORS
        if not TENSORS_NAME.match(name):
            raise refuse(f"{path}: tensors", f"the name of a file beside it, such as {TENSORS}", name)
        try:
            with opened(folder, name) as file:
                return document, checksum, read_tensors(file, os.path.join(folder, name), map_location)
        except PackageError:
            before, (document, checksum) = document, _read_document(folder, path)
            if document["tensors"] == before["tensors"]:
                raise
    raise PackageError(
        f"{path} was replaced again and again while it was read; load the graph when nobody saves it"
    )


def _read_document(folder: str, path: str) -> tuple[dict[str, Any], str]:
    with opened(folder, PROGRAM) as file:
        document: Any = parse(file.read(), path)
    version = document.get("format") if type(document) is dict else type(document).__name__
    if type(version) is not int or version not in READABLE_FORMATS:
        raise PackageError(
            f"{path} is not a graph of the formats {' and '.join(map(str, READABLE_FORMATS))}: found format"
            f" {shown(version)}"
        )
    head = _head(document, f"{path}:")
    return head, checksum(document)


def _backend(document: dict[str, Any], backend: str | None, path: str) -> str:
    """Return the requested backend, else the backend of the file, else the default."""
    if document["format"] < FORMAT and backend not in (None, "aten"):
        raise PackageError(
            f"{path} is of format {shown(document['format'])}, which holds no shapes for the backend"
            f" {backend!r};"
            " save the graph again, or load it with 'aten'"
        )
    return backend or ("aten" if document["format"] < FORMAT else document["backend"]) or default_backend()


def _binaries(
    document: dict[str, Any], backend: str | None, folder: str, trusted: bool
) -> SavedBinaries | None:
    """Return the binaries in the folder if they may be run and are not overridden by the backend aten."""
    if not os.path.isdir(os.path.join(folder, BINARIES)):
        return None
    if not trusted:
        say(
            f"graph {shown(document['name'])}: the machine code in {os.path.join(folder, BINARIES)} is not"
            " used; if"
            " you trust it, pass trust_binaries=True"
        )
    return SavedBinaries(folder) if trusted and (backend or document["backend"]) != "aten" else None


def _graph(
    document: dict[str, Any],
    path: str,
    tensors: dict[str, torch.Tensor],
    device: torch.device | None,
    backend: str,
    binaries: SavedBinaries | None,
) -> LoadedGraph:
    """Return the graph of a program.json. Its first program is at the top, and the others are in "others"."""
    state: dict[str, Any] = {}
    primary = {k: document[k] for k in PROGRAM_KEYS if document[k] is not None}
    others = [(record, f"{path}: others[{i}]") for i, record in enumerate(document["others"] or ())]
    programs = [
        read_program(document["name"], record, location, tensors, device, state)
        for record, location in ((primary, f"{path}:"), *others)
    ]
    rates = {s.name for s in programs[0].slots if s.role == "lr"}
    schedules = [
        SavedSchedule(record, rates, f"{path}: schedules[{i}]")
        for i, record in enumerate(document["schedules"] or ())
    ]
    if device is not None and device.type != "meta":
        for program in programs:
            _check_kernels(program, device, path)
    return LoadedGraph(
        [LoadedProgram(program, state, backend, path, binaries) for program in programs],
        state,
        backend,
        schedules,
    )


def _available(map_location: MapLocation) -> MapLocation:
    if isinstance(map_location, (str, torch.device)):
        if torch.device(map_location).type == "cuda" and not torch.cuda.is_available():
            raise PackageError(f"map_location={str(map_location)!r}: there is no CUDA device")
    return map_location


_FOR_EVERY_DEVICE = (
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)


def _check_kernels(program: Program, device: torch.device, path: str) -> None:
    """Raise if the program holds operators that only exist on the device of the capture: cuDNN's batch norm,
    oneDNN's LSTM, fused attention.
    """
    keys = torch._C._dispatch_key_for_device(device.type), *_FOR_EVERY_DEVICE
    for target in {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}:
        name = target.name()
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, k) for k in keys):
            raise PackageError(
                f"{path}: the operator {name} has no kernel for the device {device.type!r}; save the"
                " graph of a model on that device"
            )
