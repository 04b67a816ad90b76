"""oneflow.save and oneflow.load: OneFlow's checkpoint folders and files, torch's files, safetensors.

Differs from torch: OneFlow's folder layout is written and read, parents are created, saving is
atomic, global tensors are saved whole. Differs from OneFlow: the single file is torch's format, and
loading is safe by default (difference row save-layout).
"""

from __future__ import annotations

import functools
import os
import pickle
import struct
import types

import torch

from .. import _env, _processes, sbp
from .._global import gathering
from .._global.collectives import checking, from_rank
from .._global.gathering import whole
from .._global.placement import placement
from .._global.tensor import make_global
from . import atomic, formats, layout, modules, pickles, safetensors, torch_file
from .errors import CheckpointError, RefusedError, named_errors

__all__ = ["save", "load", "CheckpointError"]

_LAYOUTS = ("torch", "folder", "pickle")


def save(
    obj,
    path_or_buffer=None,
    global_dst_rank=None,
    save_as_external_data=False,
    *,
    f=None,
    path=None,
    layout=None,
    pickle_module=None,
    pickle_protocol=None,
    _use_new_zipfile_serialization=True,
    _disable_byteorder_record=False,
    consistent_dst_rank=None,
):
    """Save an object; the old checkpoint stays whole until the new one is.

    What is written:

    - by default torch's zip file, which torch.load opens, this load, and OneFlow's own load
      (support_pytorch_format, where torch is installed beside OneFlow);
    - with save_as_external_data=True (layout="folder"), or when the path is an existing folder or
      ends with "/", OneFlow's folder, which OneFlow 0.7 to 1.0 opens without torch;
    - with layout="pickle", OneFlow 1.0's single file: one pickle, tensors inside as numpy arrays;
      pickle.load opens it where OneFlow 0.9 is imported.

    path_or_buffer: str, path or binary file (not for the folder); `f` and `path` are other names for
    it. Missing parent folders are made. global_dst_rank: only this rank writes (its
    old name: consistent_dst_rank). torch's arguments hold in torch's places too: save(obj, f, pickle_module,
    pickle_protocol).
    OneFlow's formats keep values, shapes, dtypes and "is a Parameter"; torch's file also keeps
    shared storages, strides and requires_grad of plain tensors. The folder and the pickle refuse
    sparse and quantized tensors (NotImplementedError).
    """
    target = _one_of("save", path_or_buffer=path_or_buffer, f=f, path=path)
    if consistent_dst_rank is not None:
        if global_dst_rank is not None:
            raise TypeError(
                "save: consistent_dst_rank is the old name of global_dst_rank; give one of the two"
            )
        global_dst_rank = consistent_dst_rank
    if isinstance(global_dst_rank, types.ModuleType):
        global_dst_rank, pickle_module = None, global_dst_rank
    if isinstance(save_as_external_data, int) and not isinstance(save_as_external_data, bool):
        save_as_external_data, pickle_protocol = False, save_as_external_data
    own = getattr(type(obj), "__oneflow_save__", None)
    if own is not None:
        return own(obj, target) if _check_rank("global_dst_rank", global_dst_rank) else None
    arguments = {"_use_new_zipfile_serialization": _use_new_zipfile_serialization}
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


def _save(obj, target, global_dst_rank, save_as_external_data, layout, pickle_module, arguments):
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
        data = pickles.dumps(obj, whole=_whole, single=True)
        return _write_file(target, lambda file: file.write(data))
    return _write_file(target, lambda file: torch.save(obj, file, pickle_module or _WholePickle, **arguments))


def load(
    path=None,
    global_src_rank=None,
    map_location=None,
    *,
    support_pytorch_format=True,
    f=None,
    pickle_module=None,
    weights_only=None,
    mmap=None,
    check_crc=True,
    **pickle_load_args,
):
    """Load what OneFlow, torch or safetensors saved; the format is found by looking.

    Reads OneFlow's folders (also the older ones of named variables: a dict), OneFlow's single-file
    pickles (also of a bare Tensor, Parameter or Module), torch's files of any age, and safetensors;
    from a path or a binary file. `f` is another name for `path`.

    Safe by default: tensors, containers, numpy values and the layers of torch.nn are constructed,
    nothing else; another class is refused with pickle.UnpicklingError. weights_only=False loads any
    class the file names, which runs code the file chooses; for one class of yours rather use
    torch.serialization.add_safe_globals([Class]). weights_only=True also refuses the layers in torch's files.

    map_location: device, "cpu", oneflow.placement (tensors become global), dict or callable as in
    torch. global_src_rank: this rank reads and the tensors become global on it. support_pytorch_format=False
    refuses torch's files. check_crc=False skips comparing the CRC-32s of a torch file (mmap skips it too).
    Parameters come back as Parameters. CheckpointError (a RuntimeError) names
    the file that is truncated or altered. torch's call form load(f, map_location) is accepted.
    """
    source = _one_of("load", path=path, f=f)
    if global_src_rank is not None and (
        isinstance(global_src_rank, bool) or not isinstance(global_src_rank, int)
    ):
        if isinstance(map_location, types.ModuleType):
            pickle_module, map_location = map_location, None
        if map_location is not None:
            raise TypeError(
                f"load: the second argument is a rank (int) or a map_location, found {global_src_rank!r}"
                " beside map_location"
            )
        global_src_rank, map_location = None, global_src_rank
    _check_rank("global_src_rank", global_src_rank)
    to_device = _placer(map_location)
    if _env.is_set("TORCH_FORCE_WEIGHTS_ONLY_LOAD"):
        weights_only = True
    elif weights_only is None and _env.is_set("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        weights_only = False
    options = {"pickle_module": pickle_module, "weights_only": weights_only, "mmap": mmap, **pickle_load_args}
    options = {k: v for k, v in options.items() if v is not None}
    if not check_crc:
        options["check_crc"] = False
    read = functools.partial(_load, source, map_location, to_device, support_pytorch_format, options)
    if global_src_rank is not None:
        return _spread(read, global_src_rank, map_location)
    if not _is_placement(map_location):
        return read()
    with checking("load"):  # every rank reads for itself; where one raises, all raise
        return read()


# --------------------------------------------------------------------------- arguments
def _one_of(function, **names):
    selected = {k: v for k, v in names.items() if v is not None}
    if len(selected) != 1:
        raise TypeError(
            f"{function}() takes one of {', '.join(names)}; found {', '.join(selected) or 'none'}"
        )
    return next(iter(selected.values()))


def _check_rank(name, rank) -> bool:
    """Whether this process does the work."""
    if rank is None:
        return True
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise TypeError(f"{name} must be an int, found {rank!r}")
    if not 0 <= rank < _processes.get_world_size():
        raise ValueError(f"{name} must be in 0..{_processes.get_world_size() - 1}, found {rank}")
    return rank == _processes.get_rank()


def _is_path(target) -> bool:
    return isinstance(target, (str, os.PathLike))


def _is_folder(target) -> bool:
    return _is_path(target) and (os.path.isdir(target) or os.fspath(target).endswith(os.sep))


def _whole(tensor):
    """A global or distributed tensor's full values as a plain tensor; others as they are."""
    if hasattr(tensor, "_of_placement"):
        return whole(tensor)
    if hasattr(tensor, "full_tensor"):
        return tensor.full_tensor()
    return tensor


# --------------------------------------------------------------------------- writing
class _WholePickler(pickle.Pickler):
    """Python's pickler, saving global tensors as plain ones."""

    def reducer_override(self, obj):
        if isinstance(obj, torch.Tensor) and hasattr(obj, "_of_placement"):
            plain = _whole(obj).detach()
            if isinstance(obj, torch.nn.Parameter) or getattr(obj, "_is_param", False):
                plain = torch.nn.Parameter(plain, obj.requires_grad)
            return plain.__reduce_ex__(2)
        if isinstance(obj, torch.nn.Module):
            return modules.reduced_without_local_hooks(obj) or NotImplemented
        return NotImplemented


class _WholePickle(types.SimpleNamespace):
    """What torch.save takes as pickle_module."""

    Pickler = _WholePickler
    dump, dumps, load, loads, Unpickler = (
        pickle.dump,
        pickle.dumps,
        pickle.load,
        pickle.loads,
        pickle.Unpickler,
    )
    __name__ = "pickle"


def _write_file(target, write) -> None:
    if not _is_path(target):
        if not hasattr(target, "write"):
            raise TypeError(f"save: the target is a path or a binary file, found {type(target).__name__}")
        write(target)
        return
    if os.path.isdir(target):
        raise IsADirectoryError(
            f"save: {os.fspath(target)!r} is a folder; the single-file layouts need a file name"
        )
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    with atomic.replacing(target) as file:
        write(file)


def _save_folder(obj, target) -> None:
    if not _is_path(target):
        raise TypeError(
            "save: the folder layout (save_as_external_data=True) needs a path, found"
            f" {type(target).__name__}"
        )
    if os.path.exists(target) and not os.path.isdir(target):
        raise FileExistsError(
            f"save: {os.fspath(target)!r} is a file; the folder layout needs a folder or a new name"
        )
    writer = layout.Writer(target)
    try:
        pickled = pickles.dumps(obj, store=writer.add, whole=_whole)
        writer.commit(pickled)
    except BaseException:
        writer.abandon()
        raise


# --------------------------------------------------------------------------- reading
def _load(source, map_location, to_device, torch_too, options):
    if not _is_path(source):
        if not hasattr(source, "read"):
            raise TypeError(f"load: expected a path or a binary file, found {type(source).__name__}")
        return _load_file(
            source, getattr(source, "name", "the file object"), map_location, to_device, torch_too, options
        )
    source = os.fspath(source)
    if os.path.isdir(source):
        return _load_folder(source, map_location, to_device, options)
    if not os.path.exists(source):
        raise FileNotFoundError(f"load: there is no file or folder {source!r}")
    with open(source, "rb") as file:
        return _load_file(file, source, map_location, to_device, torch_too, options)


def _load_folder(source, map_location, to_device, options):
    pickled = os.path.join(source, layout.PICKLE)
    if os.path.exists(os.path.join(source, "program.json")) and not os.path.exists(pickled):
        from ..nn.graph.deploy import load_graph  # the engine is loaded for a saved graph only

        return load_graph(source, map_location)
    strict = options.get("weights_only")
    safe = strict is not False
    with named_errors(source):
        if not os.path.lexists(pickled):
            variables = layout.read_variables(source, safe)
            return {k: v if to_device is None else to_device(v) for k, v in variables.items()}
        with layout.open_inside(source if safe else None, pickled) as file:
            body = file.read()
    read = lambda name: layout.read_tensor(layout.tensor_folder(source, name), source if safe else None)
    return pickles.loads(body, pickled, read, to_device, safe=safe, layers=strict is None)


def _load_file(file, name, map_location, to_device, torch_too, options):
    size = formats.size_of(file)
    if size == 0:
        raise CheckpointError(f"{name}: the file is empty")
    file_format = formats.kind_of(file, size)
    if file_format == "safetensors":
        with named_errors(name):
            tensors = safetensors.read(file, size)
        return {k: v if to_device is None else to_device(v) for k, v in tensors.items()}
    strict = options.get("weights_only")
    if file_format == "pickle":
        return pickles.loads(
            file.read(), name, None, to_device, safe=strict is not False, layers=strict is None
        )
    if file_format == "unknown":
        raise CheckpointError(
            f"{name}: not a file of OneFlow, torch or safetensors, or altered: it starts with"
            f" {file.read(8)!r}"
        )
    if not torch_too:
        raise ValueError(f"load: {name} is a torch file, and support_pytorch_format=False")
    return _load_torch(file_format, file, name, map_location, to_device, options)


def _load_torch(file_format, file, name, map_location, to_device, options):
    ours = to_device is not None and _is_placement(map_location)
    if not isinstance(map_location, dict) and str(map_location).startswith("cpu:"):
        map_location = "cpu"  # torch restores "cpu" and not OneFlow's "cpu:0"
    options = {"map_location": "cpu" if ours else map_location, **options}
    mapped = name if options.get("mmap") else None
    if mapped is not None and not (_is_path(name) and getattr(file, "name", None) == name):
        raise ValueError(
            f"load: mmap=True needs a path, found {type(file).__name__}; leave mmap out, or give the file's"
            " name"
        )
    if options.get("weights_only") is False or (
        "pickle_module" in options and not options.get("weights_only")
    ):
        obj = _load_trusted(file if mapped is None else name, name, options)
    else:
        with named_errors(name):
            obj = _load_safely(file_format, file, mapped, options)
    return _map_tensors(obj, to_device) if ours else obj


def _load_safely(file_format, file, mapped, options):
    """The object in a torch file, made by the pickle machine of `_files`."""
    if file_format == "tar":
        raise RefusedError(
            "a torch file of before 2017 (tar), which a safe load does not read. If you trust the file, load"
            " it with weights_only=False"
        )
    common = {
        "map_location": options["map_location"],
        "layers": "weights_only" not in options,
        "encoding": options.get("encoding", "utf-8"),
    }
    size = formats.size_of(file)
    if file_format == "zip":
        return torch_file.load_zip(
            file, size, mapped=mapped, check_crc=options.get("check_crc", True) and mapped is None, **common
        )
    if mapped is not None:
        raise ValueError("load: mmap=True needs a torch file of 2020 or newer")
    return torch_file.load_stream(file, size, **common)


# what torch's readers say of a damaged file
_DAMAGE = ("PytorchStreamReader", "unexpected EOF", "storage has wrong byte size", "Invalid protocol version")


def _load_trusted(source, name, options):
    """The object in a torch file that the user trusts: torch's own load, which runs code that the
    file names.
    """
    options = {k: v for k, v in options.items() if k not in ("check_crc", "weights_only")}
    try:
        return torch.load(source, weights_only=False, **options)
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


# --------------------------------------------------------------------------- where tensors go
def _is_placement(where) -> bool:
    return type(where).__name__ == "placement"


def _placer(where):
    """A function that moves one loaded tensor, or None."""
    if where is None:
        return None
    if _is_placement(where):
        return lambda tensor: make_global(tensor, where, [sbp.broadcast] * len(where.hierarchy), whole=True)
    if isinstance(where, (str, torch.device)):
        device = torch.device(where)
        return lambda tensor: tensor.to(device)
    if isinstance(where, dict):
        return lambda tensor: tensor.to(where.get(str(tensor.device), tensor.device))
    if callable(where):

        def place(tensor):
            moved = where(tensor.untyped_storage(), str(tensor.device))
            return tensor if moved is None else tensor.to(moved.device)

        return place
    raise TypeError(f"load: map_location is a device, a placement, a dict or a callable, found {where!r}")


def _spread(read, rank, map_location):
    """Give every rank the object that `rank` reads, its tensors global on that rank; or its error, so that
    none waits.
    """
    if _processes.get_world_size() == 1:
        obj = read()
    else:
        obj = from_rank(rank, read, "load")
    if _is_placement(map_location):
        return obj
    where = placement("cpu", [rank])
    return _map_tensors(obj, lambda tensor: make_global(tensor, where, sbp.broadcast, whole=True))


def _map_tensors(obj, change):
    """`obj` with each tensor in its containers changed; what stands in several places is changed once."""
    done: dict[int, tuple] = {}

    def mapped(value):
        if not isinstance(value, torch.Tensor | dict | list | tuple):
            return value
        if id(value) not in done:
            done[id(value)] = value, value  # of a container within itself: the container
            done[id(value)] = value, changed(value)
        return done[id(value)][1]

    def changed(value):
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, dict):
            for key in value:
                value[key] = mapped(value[key])
            return value
        if isinstance(value, list):
            value[:] = [mapped(item) for item in value]
            return value
        items = [mapped(item) for item in value]
        return (
            type(value)(*items)
            if hasattr(value, "_fields")
            else tuple(items)
            if type(value) is tuple
            else value
        )

    try:
        return mapped(obj)
    except RecursionError:
        raise CheckpointError(
            "load: the containers of the file are nested too deep to place their tensors; load it without"
            " map_location"
        ) from None
