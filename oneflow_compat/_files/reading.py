"""Read what oneflow.load opens: OneFlow's folders and pickles, torch's files, safetensors."""

from __future__ import annotations

import functools
import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, TypeGuard

import torch

from .._errors import RefusedFile
from .._file_safety import torch_file
from .._file_safety.errors import CheckpointError, RefusedError, named_errors
from .._file_safety.opening import open_regular
from .._file_safety.shown import shown
from . import layout, modules, pickles, safetensors
from .map_location import is_placement, map_tensors
from .sharded import dcp, loading
from .sharded.folder import is_sharded, open_folder

# Under mock_torch a program may replace torch.load by a wrapper that calls oneflow.load.
_torch_load = torch.load


@dataclass(frozen=True)
class LoadOptions:
    """How oneflow.load reads a file."""

    map_location: Any
    to_device: Callable[[torch.Tensor], torch.Tensor] | None  # moves one tensor by map_location
    reads_torch_files: bool
    arguments: dict[str, Any]  # arguments of torch.load, and check_crc, that the caller passed
    into: Any = None  # tensors of the caller to read into
    is_alone: bool = False  # whether this rank reads without the others

    @property
    def is_safe(self) -> bool:
        return self.arguments.get("weights_only") is not False

    @property
    def builds_layers(self) -> bool:
        return "weights_only" not in self.arguments

    def moved(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return tensors if self.to_device is None else {k: self.to_device(v) for k, v in tensors.items()}


def is_path(target: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(target, (str, os.PathLike))


def read_source(source: str | os.PathLike[str] | IO[bytes], options: LoadOptions) -> object:
    """Return the object in a folder, a file or an open binary file."""
    if not is_path(source):
        if not hasattr(source, "read"):
            raise RefusedFile(f"load: expected a path or a binary file, found {type(source).__name__}")
        if isinstance(source, io.TextIOBase):
            raise TypeError("load: expected a binary file, found one in text mode; open it with mode 'rb'")
        _check_seekable(source)
        return _read_file(source, getattr(source, "name", "the file object"), options)
    source = os.fspath(source)
    if os.path.isdir(source):
        return _read_folder(source, options)
    if not os.path.exists(source):
        raise FileNotFoundError(f"load: there is no file or folder {source!r}")
    with open_regular(source) as file:
        return _read_file(file, source, options)


def _check_seekable(file: object) -> None:
    if not (hasattr(file, "seek") and hasattr(file, "tell")):
        # The last two sentences are torch's, which programs search for.
        raise RefusedFile(
            f"load: {type(file).__name__} lacks seek() or tell(). You can only torch.load from a file that is"
            " seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it"
            " instead."
        )


def _read_folder(source: Any, options: Any) -> Any:
    sharded = _sharded_source(source, options)
    if sharded is not None:
        return _read_sharded(sharded, source, options)
    _refuse_into(options, source)
    pickled = os.path.join(source, layout.PICKLE)
    if os.path.exists(os.path.join(source, "program.json")) and not os.path.exists(pickled):
        from ..nn.graph.storage.deploy import load_graph  # import cost: only a saved graph needs the engine

        return load_graph(source, options.map_location)
    root = source if options.is_safe else None
    with named_errors(source):
        if not os.path.lexists(pickled):
            return options.moved(layout.read_variables(source, options.is_safe))
    read = lambda name: layout.read_tensor(layout.tensor_folder(source, name), root)
    with layout.open_inside(root, pickled) as file:
        return _unpickled(file, size_of(file), pickled, read, options)


def _sharded_source(folder: str, options: LoadOptions) -> Callable[[], Any] | None:
    """Return the function that opens a sharded checkpoint, or None for a folder of another layout."""
    root, check_crc = folder if options.is_safe else None, options.arguments.get("check_crc", True)
    if is_sharded(folder):
        return functools.partial(open_folder, folder, root, check_crc)
    if dcp.is_dcp(folder):
        return functools.partial(dcp.open_folder, folder, root, check_crc)
    return None


def _read_sharded(open_source: Callable[[], Any], folder: str, options: LoadOptions) -> Any:
    placement = options.map_location if is_placement(options.map_location) else None
    is_plain = options.is_alone or options.map_location is not None and placement is None
    if is_plain and options.into is not None:
        raise ValueError(
            "load: into= gives the devices of the tensors; leave map_location and global_src_rank out"
        )
    check_crc = options.arguments.get("check_crc", True)
    request = loading.Request(options.into, placement, is_plain, check_crc)
    obj = loading.load(open_source, folder, request)
    if options.to_device is None or request.is_collective:
        return obj
    return map_tensors(obj, options.to_device)


def _refuse_into(options: LoadOptions, source: object) -> None:
    if options.into is not None:
        raise ValueError(
            f"load: into= needs a folder that was saved with layout='sharded' or by"
            f" torch.distributed.checkpoint; {source} is another file or folder. Use load_state_dict()"
        )


def _unpickled(file: IO[bytes], size: int, name: Any, read: Any, options: LoadOptions) -> Any:
    return pickles.load(
        file, size, name, read, options.to_device, safe=options.is_safe, layers=options.builds_layers
    )


def _read_file(file: Any, name: Any, options: Any) -> Any:
    """Return the object in a file, whose format is detected from its first bytes."""
    _refuse_into(options, name)
    size = size_of(file)
    if size == 0:
        raise CheckpointError.of(name, "the file is empty")
    file_format = format_of(file, size)
    if file_format == "safetensors":
        with named_errors(name):
            tensors = safetensors.read(file, size)
        return options.moved(tensors)
    if file_format == "pickle":
        return _unpickled(file, size, name, None, options)
    if file_format == "unknown":
        raise CheckpointError.of(
            name,
            f"not a file of OneFlow, torch or safetensors, or altered: it starts with {shown(file.read(8))}",
        )
    if not options.reads_torch_files:
        raise ValueError(f"load: {name} is a torch file, and support_pytorch_format=False")
    return _read_torch_file(file_format, file, name, options)


def _read_torch_file(file_format: str, file: Any, name: Any, options: Any) -> Any:
    becomes_global = is_placement(options.map_location)
    arguments = {"map_location": _torch_map_location(options.map_location), **options.arguments}
    mapped = name if arguments.get("mmap") else None
    if mapped is not None and not (is_path(name) and getattr(file, "name", None) == name):
        raise ValueError(
            f"load: mmap=True needs a path, found {type(file).__name__}; leave mmap out, or give the file's"
            " name"
        )
    has_unpickler = "pickle_module" in arguments and not arguments.get("weights_only")
    if has_unpickler or not options.is_safe:
        obj = _read_trusted(file if mapped is None else name, name, arguments)
    else:
        with named_errors(name):
            obj = _read_safely(file_format, file, mapped, arguments)
    return map_tensors(obj, options.to_device) if becomes_global else obj


def _torch_map_location(map_location: Any) -> Any:
    """Return the map_location for torch, which accepts "cpu" but not OneFlow's "cpu:0"."""
    if is_placement(map_location):
        return "cpu"
    is_cpu = not isinstance(map_location, dict) and str(map_location).startswith("cpu:")
    return "cpu" if is_cpu else map_location


def _read_safely(file_format: str, file: Any, mapped: str | None, arguments: dict[str, Any]) -> Any:
    """Return the object in a torch file, read with the unpickler of this package."""
    if file_format == "tar":
        raise RefusedError(
            "a torch file of before 2017 (tar), which a safe load does not read. If you trust the file, load"
            " it with weights_only=False"
        )
    common = {
        "map_location": arguments["map_location"],
        "find_shell": modules.layer_shell if "weights_only" not in arguments else None,
        "encoding": arguments.get("encoding", "utf-8"),
    }
    size = size_of(file)
    if file_format == "zip":
        check_crc = arguments.get("check_crc", True) and mapped is None
        return torch_file.load_zip(file, size, mapped=mapped, check_crc=check_crc, **common)
    if mapped is not None:
        raise ValueError("load: mmap=True needs a torch file of 2020 or newer")
    return torch_file.load_stream(file, size, **common)


# messages of torch's readers for damaged files
_DAMAGE = ("PytorchStreamReader", "unexpected EOF", "storage has wrong byte size", "Invalid protocol version")


def _read_trusted(source: Any, name: Any, arguments: dict[str, Any]) -> Any:
    """Return the object in a torch file that the user trusts. torch.load can run code that the file names."""
    arguments = {k: v for k, v in arguments.items() if k not in ("check_crc", "weights_only")}
    try:
        return _torch_load(source, weights_only=False, **arguments)
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(f"{name}: {error}") from None
    except (EOFError, KeyError, IndexError, UnicodeDecodeError, AssertionError, struct.error) as error:
        raise CheckpointError(f"{name}: truncated or altered ({type(error).__name__}: {error})") from error
    except RuntimeError as error:
        if any(message in str(error) for message in _DAMAGE):
            raise CheckpointError(f"{name}: truncated or altered ({str(error).splitlines()[0]})") from error
        if type(error) is RuntimeError:
            raise RuntimeError(f"{name}: {error}") from error
        raise


# --------------------------------------------- The formats of checkpoint files, told by their first bytes


def format_of(file: IO[bytes], size: int) -> str:
    """Return "zip", "torch-legacy", "tar", "safetensors", "pickle" or "unknown"; the position is kept."""
    start = file.tell()
    head = file.read(512)
    file.seek(start)
    if head[:4] == b"PK\x03\x04" or head[:4] == b"PK\x05\x06":
        return "zip"
    if _is_tar(head):
        return "tar"
    if torch_file.is_stream(head):
        return "torch-legacy"
    if len(head) >= 9 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] <= max(size - 8, 0):
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    return "unknown"


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def size_of(file: IO[bytes]) -> int:
    """Return the number of bytes from the current position to the end."""
    here = file.tell()
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(here)
    return end - here
