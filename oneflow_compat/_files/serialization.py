"""oneflow.save and oneflow.load: OneFlow's checkpoint folders and files, torch's files, safetensors.

Differs from torch: OneFlow's folder layout is written and read, parent folders are created, saving is
atomic, and global tensors are saved as full tensors. Differs from OneFlow: the single file is in torch's
format, and loading is safe by default (difference row save-layout).
"""

from __future__ import annotations

import functools
import os
import pickle
import types
from collections.abc import Callable
from typing import IO, Any, Literal

import torch

from .. import _env, _processes
from .._errors import RefusedFile
from .._file_safety import atomic
from .._file_safety.errors import CheckpointError
from .._global import gathering
from .._global.collectives import checking
from .._global.gathering import gathered
from . import layout, modules, pickles
from .map_location import is_placement, mover, spread
from .reading import LoadOptions, is_path, read_source
from .sharded import saving
from .sharded.folder import is_sharded

__all__ = ["save", "load", "CheckpointError"]

_LAYOUTS = ("torch", "folder", "pickle", "sharded")
# Under mock_torch a program may replace torch.save by a wrapper that calls save() below.
_torch_save = torch.save


def save(
    obj: Any,
    path_or_buffer: str | os.PathLike[str] | IO[bytes] | None = None,
    global_dst_rank: int | None = None,
    save_as_external_data: bool | int = False,
    *,
    f: str | os.PathLike[str] | IO[bytes] | None = None,
    path: str | os.PathLike[str] | IO[bytes] | None = None,
    layout: Literal["zip", "folder", "sharded"] | str | None = None,
    asynchronous: bool = False,
    pickle_module: Any = None,
    pickle_protocol: int | None = None,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    consistent_dst_rank: int | None = None,
) -> Any:
    """Save an object. The old checkpoint is replaced when the new one is complete.

    The layouts are:

    - by default torch's zip file. torch.load and oneflow.load open it, and so does the original OneFlow
      (support_pytorch_format, if torch is installed too);
    - OneFlow's folder layout with save_as_external_data=True (layout="folder"), or if the path is an existing
      folder or ends with "/". OneFlow 0.7 to 1.0 opens it without torch;
    - with layout="pickle", OneFlow 1.0's single file: one pickle with the tensors as numpy arrays.
      pickle.load opens it if OneFlow 0.9 is imported;
    - with layout="sharded", a folder of safetensors files and an index, without a pickle. Every rank writes
      its shards of global tensors, and any number of ranks loads them. The object holds tensors, plain
      values, dicts, lists and tuples.

    path_or_buffer: str, path or binary file (not for the folder layout); `f` and `path` are other names for
    it. Missing parent folders are created. global_dst_rank: only this rank writes (old name:
    consistent_dst_rank). Calls in torch's form are accepted: save(obj, f, pickle_module, pickle_protocol).
    OneFlow's formats keep values, shapes, dtypes and whether a tensor is a Parameter. torch's file also keeps
    shared storages, strides and requires_grad of plain tensors. The folder and the pickle refuse sparse and
    quantized tensors (NotImplementedError). The sharded folder keeps requires_grad and shared values, and
    refuses sparse and quantized tensors, too.

    asynchronous=True, with layout="sharded": copy the values, write them in a thread, and return an object
    with `wait()`, which raises the error of the save, and `done()`. The next save and the exit of the process
    wait for it.

    TypeError for both spellings of `global_dst_rank`.
    """
    target = _only_argument("save", path_or_buffer=path_or_buffer, f=f, path=path)
    if is_path(target):
        atomic.check_target("save", target)
    if consistent_dst_rank is not None:
        if global_dst_rank is not None:
            raise TypeError(
                "save: consistent_dst_rank is the old name of global_dst_rank; give one of the two"
            )
        global_dst_rank = consistent_dst_rank
    if isinstance(global_dst_rank, types.ModuleType):
        global_dst_rank, pickle_module = None, global_dst_rank
    if _is_integer(save_as_external_data):
        save_as_external_data, pickle_protocol = False, int(save_as_external_data)
    if layout == "sharded" or asynchronous:
        return _save_sharded(obj, target, global_dst_rank, save_as_external_data, layout, asynchronous)
    own = getattr(type(obj), "__oneflow_save__", None)
    if own is not None:
        return own(obj, target) if _check_rank("global_dst_rank", global_dst_rank) else None
    arguments: dict[str, Any] = {"_use_new_zipfile_serialization": _use_new_zipfile_serialization}
    if _disable_byteorder_record:
        arguments["_disable_byteorder_record"] = True
    if pickle_protocol is not None:
        arguments["pickle_protocol"] = pickle_protocol
    write = functools.partial(
        _save, obj, target, global_dst_rank, save_as_external_data, layout, pickle_module, arguments
    )
    if _processes.get_world_size() == 1:
        return write()
    return gathering.save(obj, write, global_dst_rank, layout)


def _save_sharded(
    obj: Any,
    target: Any,
    global_dst_rank: int | None,
    save_as_external_data: bool | int,
    layout: Any,
    asynchronous: bool,
) -> Any:
    if layout != "sharded" or save_as_external_data:
        raise ValueError(
            f"save: asynchronous=True needs layout='sharded' alone, found layout={layout!r} and"
            f" save_as_external_data={save_as_external_data!r}"
        )
    if global_dst_rank is not None:
        raise ValueError(
            f"save: every rank writes with layout='sharded', found global_dst_rank={global_dst_rank!r}; leave"
            " it out"
        )
    if not is_path(target):
        raise TypeError(f"save: layout='sharded' needs the path of a folder, found {type(target).__name__}")
    return saving.save(obj, os.fspath(target), asynchronous)


def _save(
    obj: Any,
    target: Any,
    global_dst_rank: int | None,
    save_as_external_data: bool | int,
    layout: Any,
    pickle_module: Any,
    arguments: dict[str, Any],
) -> Any:
    """Check the arguments, and write if this rank is the one that writes."""
    writes = _check_rank("global_dst_rank", global_dst_rank)
    if layout is None:
        layout = "folder" if save_as_external_data or _is_folder(target) else "torch"
    if layout not in _LAYOUTS:
        raise ValueError(f"save: layout must be one of {', '.join(_LAYOUTS)}, found {layout!r}")
    if save_as_external_data and layout != "folder":
        raise ValueError(
            f"save: save_as_external_data=True writes the layout 'folder', found layout={layout!r}; give one"
            " of the two"
        )
    if not writes:
        return None
    if layout == "folder":
        return _save_folder(obj, target)
    if layout == "pickle":
        data = pickles.dumps(obj, full_values=_full_values, single=True)
        return _write_file(target, lambda file: file.write(data))
    return _write_file(
        target, lambda file: _torch_save(obj, file, pickle_module or _FullTensorPickle, **arguments)
    )


def load(
    path: str | os.PathLike[str] | IO[bytes] | None = None,
    global_src_rank: int | None = None,
    map_location: Any = None,
    *,
    support_pytorch_format: bool = True,
    f: str | os.PathLike[str] | IO[bytes] | None = None,
    pickle_module: Any = None,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    check_crc: bool = True,
    into: Any = None,
    **pickle_load_args: Any,
) -> Any:
    """Load an object that OneFlow, torch or safetensors saved. The format is detected from the content.

    Supported are OneFlow's folders (older folders of named variables give a dict), OneFlow's single-file
    pickles (also of one Tensor, Parameter or Module), torch's files of any version, safetensors, sharded
    folders, and the folders of torch.distributed.checkpoint. `path` is a path or a binary file; `f` is
    another name for it.

    Safe by default: only tensors, containers, numpy values and the layers of torch.nn are constructed.
    Other classes are refused with pickle.UnpicklingError. weights_only=False loads any class that the file
    names, which can run arbitrary code. To allow one class of your own, use
    torch.serialization.add_safe_globals([Class]). weights_only=True also refuses the layers in torch's files.

    map_location: device, "cpu", oneflow.placement (tensors become global), dict or callable as in
    torch. global_src_rank: this rank reads, and the tensors become global tensors on it.
    support_pytorch_format=False refuses torch's files. check_crc=False skips comparing the CRC-32s of a torch
    file or a sharded folder (mmap skips those of a file too). Parameters are loaded as Parameters.
    CheckpointError (a RuntimeError) names the file that is truncated or altered. A call in torch's form,
    load(f, map_location), is accepted.

    A sharded folder gives several ranks global tensors with the SBP of the save, and one process full
    ordinary tensors. Every rank makes the call, and reads its shards. into: a state dict whose tensors are
    filled in place, on any placement and with any SBP. Nothing is changed unless all shapes and dtypes fit.

    TypeError for a `global_src_rank` that is neither a rank nor a map_location. ValueError for tensors of
    `into` that do not fit.
    """
    source = _only_argument("load", path=path, f=f)
    if global_src_rank is not None and not _is_integer(global_src_rank):
        if isinstance(map_location, types.ModuleType):
            pickle_module, map_location = map_location, None
        if map_location is not None:
            raise TypeError(
                f"load: the second argument is a rank (int) or a map_location, found {global_src_rank!r}"
                " beside map_location"
            )
        global_src_rank, map_location = None, global_src_rank
    _check_rank("global_src_rank", global_src_rank)
    to_device = mover(map_location)
    if _env.is_set("TORCH_FORCE_WEIGHTS_ONLY_LOAD"):
        weights_only = True
    elif weights_only is None and _env.is_set("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        weights_only = False
    arguments = {
        "pickle_module": pickle_module,
        "weights_only": weights_only,
        "mmap": mmap,
        **pickle_load_args,
    }
    arguments = {k: v for k, v in arguments.items() if v is not None}
    if not check_crc:
        arguments["check_crc"] = False
    is_alone = global_src_rank is not None
    options = LoadOptions(map_location, to_device, support_pytorch_format, arguments, into, is_alone)
    read = functools.partial(read_source, source, options)
    if global_src_rank is not None:
        return spread(read, global_src_rank, map_location)
    if not is_placement(map_location):
        return read()
    with checking("load"):  # every rank reads the file itself; if one raises, all raise
        return read()


# --------------------------------------------------------------------------- arguments
def _only_argument(function: str, **names: Any) -> Any:
    """Return the value of the single argument that is not None."""
    selected = {k: v for k, v in names.items() if v is not None}
    if len(selected) != 1:
        raise TypeError(
            f"{function}() takes one of {', '.join(names)}; found {', '.join(selected) or 'none'}"
        )
    return next(iter(selected.values()))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_rank(name: Any, rank: Any) -> bool:
    """Whether this process reads or writes the file."""
    if rank is None:
        return True
    if not _is_integer(rank):
        raise TypeError(f"{name} must be an int, found {rank!r}")
    if not 0 <= rank < _processes.get_world_size():
        raise ValueError(f"{name} must be in 0..{_processes.get_world_size() - 1}, found {rank}")
    return rank == _processes.get_rank()


def _is_folder(target: Any) -> bool:
    return is_path(target) and (os.path.isdir(target) or os.fspath(target).endswith(os.sep))


def _full_values(tensor: torch.Tensor) -> Any:
    """Return the full values of a global or distributed tensor as a plain tensor, and any other tensor."""
    if hasattr(tensor, "_of_placement"):
        return gathered(tensor)
    if hasattr(tensor, "full_tensor"):
        return tensor.full_tensor()
    return tensor


# --------------------------------------------------------------------------- writing
class _FullTensorPickler(pickle.Pickler):
    """Python's pickler, except that global tensors are saved as plain tensors."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and hasattr(obj, "_of_placement"):
            plain = _full_values(obj).detach()
            if isinstance(obj, torch.nn.Parameter) or getattr(obj, "_is_param", False):
                plain = torch.nn.Parameter(plain, obj.requires_grad)
            return plain.__reduce_ex__(2)
        if isinstance(obj, torch.nn.Module):
            return modules.reduced_without_local_hooks(obj) or NotImplemented
        return NotImplemented


class _FullTensorPickle(types.SimpleNamespace):
    """A pickle module for torch.save."""

    Pickler = _FullTensorPickler
    dump, dumps, load, loads = pickle.dump, pickle.dumps, pickle.load, pickle.loads
    Unpickler = pickle.Unpickler
    __name__ = "pickle"


def _write_file(target: Any, write: Callable[..., Any]) -> None:
    if not is_path(target):
        if not hasattr(target, "write"):
            raise RefusedFile(f"save: the target is a path or a binary file, found {type(target).__name__}")
        write(target)
        return
    if os.path.isdir(target):
        raise IsADirectoryError(
            f"save: {os.fspath(target)!r} is a folder; the single-file layouts need a file name"
        )
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    with atomic.replacing(target) as file:
        write(file)


def _save_folder(obj: Any, target: Any) -> None:
    if not is_path(target):
        raise TypeError(
            "save: the folder layout (save_as_external_data=True) needs a path, found"
            f" {type(target).__name__}"
        )
    if is_sharded(os.fspath(target)):
        raise FileExistsError(
            f"save: {os.fspath(target)!r} has a sharded checkpoint; pass layout='sharded', or choose another"
            " folder"
        )
    if os.path.exists(target) and not os.path.isdir(target):
        raise FileExistsError(
            f"save: {os.fspath(target)!r} is a file; the folder layout needs a folder or a new name"
        )
    writer = layout.Writer(target)
    try:
        pickled = pickles.dumps(obj, store=writer.add, full_values=_full_values)
        writer.commit(pickled)
    except BaseException:
        writer.abandon()
        raise
