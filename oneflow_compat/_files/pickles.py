"""OneFlow's pickles: protocol 4, tensors as `oneflow.Tensor` / `oneflow.nn.Parameter`.

A tensor's state is {"path": folder name} in a checkpoint folder, and {"data": numpy array, "dtype", "device"}
in a single file. pickle.Pickler writes a global only under its real name, so the writer derives from
pickle._Pickler, the implementation in Python. A pickle ends with the opcode STOP. We append a CRC-32 of all
bytes before it, which other readers ignore.
"""

from __future__ import annotations

import io
import pickle
import types
import zlib
from collections.abc import Callable
from typing import IO, Any

import torch

from .. import sbp
from .._file_safety.budget import Budget
from .._file_safety.constructors.numpy_values import Shell
from .._file_safety.errors import CheckpointError, named_errors
from .._file_safety.shown import shown
from .._file_safety.unpickler import Unpickler
from .._global.placement import placement
from . import dtypes, modules

PROTOCOL_VERSION = 1
MAGIC_KEY = "__oneflow__"
_MARK = b"oneflow-crc32:"
_CHUNK = 1 << 22


# --------------------------------------------------------------------------- writing
class _Name(type):
    """A class that is pickled under the global name `where`."""

    where = ("", "")


def _stand_in(module: str, name: str) -> _Name:
    return _Name(name, (), {"where": (module, name)})


_TENSOR, _PARAMETER = _stand_in("oneflow", "Tensor"), _stand_in("oneflow.nn", "Parameter")
_SIZE, _DTYPE = _stand_in("oneflow", "Size"), _stand_in("oneflow._oneflow_internal", "dtype")
_PLACEMENT = _stand_in("oneflow._oneflow_internal", "placement")
_SBP = _stand_in("oneflow._oneflow_internal.sbp", "sbp")


class Pickler(pickle._Pickler):
    """Write an object for OneFlow.

    `store(tensor)` writes a tensor to a folder and returns the folder's name. Without `store`, the pickle
    contains the values. `full_values(tensor)` returns the full values of a global tensor.
    """

    def __init__(
        self, file: IO[bytes], store: Callable | None = None, full_values: Callable | None = None
    ) -> None:
        super().__init__(file, protocol=4)
        self._store, self._full_values = store, full_values

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        rewritten = None if id(obj) in self.memo else self._rewritten(obj)
        if rewritten is None:
            return super().save(obj, save_persistent_id)
        cls, args, state = rewritten
        self.save(cls)
        self.save(args)
        self.write(pickle.NEWOBJ)
        self.memoize(obj)
        if state is not None:
            self.save(state)
            self.write(pickle.BUILD)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.nn.Module):
            return modules.reduced_without_local_hooks(obj) or NotImplemented
        return NotImplemented

    def _rewritten(self, obj: Any) -> tuple[Any, ...] | None:
        """Return (class, constructor arguments, state) if OneFlow has a class for the object, else None."""
        if isinstance(obj, torch.Tensor):
            parameter = isinstance(obj, torch.nn.Parameter) or getattr(obj, "_is_param", False)
            return _PARAMETER if parameter else _TENSOR, (), self._state(obj, parameter)
        if isinstance(obj, torch.Size):
            return _SIZE, (tuple(obj),), None
        if isinstance(obj, torch.dtype):
            return _DTYPE, (), dtypes.number_of(obj)
        if type(obj).__name__ == "placement" and type(obj).__module__ == "oneflow":
            return _PLACEMENT, (), {"type": obj.type, "ranks": obj.ranks}
        if type(obj).__name__ == "sbp" and type(obj).__module__.startswith("oneflow"):
            letter = {"split": "S", "broadcast": "B", "partial_sum": "P"}[obj._kind]
            return _SBP, (), (letter, -1 if obj._dim is None else obj._dim)
        return None

    def _state(self, tensor: torch.Tensor, parameter: bool) -> dict[str, Any]:
        plain = tensor if self._full_values is None else self._full_values(tensor)
        if self._store is not None:
            state = {"path": self._store(plain)}
        else:
            device = "cuda" if tensor.is_cuda else "cpu"
            state = {"data": dtypes.to_numpy(plain), "dtype": tensor.dtype, "device": device}
        if parameter and not tensor.requires_grad:
            state["requires_grad"] = False  # our addition; OneFlow ignores it
        return state

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if isinstance(obj, _Name):
            self._write_global(obj, *obj.where)
        elif (getattr(obj, "__module__", "") or "").startswith("numpy._core"):
            # a name that numpy 1 has too
            module = obj.__module__.replace("numpy._core", "numpy.core", 1)
            self._write_global(obj, module, name or obj.__qualname__)
        else:
            super().save_global(obj, name)

    def _write_global(self, obj: Any, module: str, name: Any) -> None:
        self.save(module)
        self.save(name)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)

    dispatch = {**pickle._Pickler.dispatch, types.FunctionType: save_global, type: save_global}


def dumps(
    obj: object, store: Callable | None = None, full_values: Callable | None = None, single: bool = False
) -> bytes:
    """Return OneFlow's pickle of {"protocol_version", "data": obj}, and its checksum."""
    top: dict[str, object] = {"protocol_version": PROTOCOL_VERSION}
    if single:
        top[MAGIC_KEY] = None
    top["data"] = obj
    out = io.BytesIO()
    Pickler(out, store, full_values).dump(top)
    body = out.getvalue()
    return body + _MARK + f"{zlib.crc32(body):08x}".encode()


# --------------------------------------------------------------------------- reading
class _State(Shell):
    """A value of OneFlow's own class, which its state describes."""


class _Tensor(_State):
    parameter = False


class _Parameter(_State):
    parameter = True


class _DType(_State):
    pass


class _Generator(_State):
    """The random generator of a dropout layer. torch's generators cannot use its state."""


class _Placement(_State):
    pass


class _Sbp(_State):
    pass


_TENSOR_NAMES = {
    ("oneflow", "Tensor"),
    ("oneflow._oneflow_internal", "Tensor"),
    ("oneflow.framework.tensor", "Tensor"),
    ("oneflow.python.framework.tensor", "Tensor"),
    ("oneflow.experimental", "Tensor"),
}
_PARAMETER_NAMES = {
    ("oneflow.nn", "Parameter"),
    ("oneflow.nn.parameter", "Parameter"),
    ("oneflow._oneflow_internal.nn", "Parameter"),
    ("oneflow._oneflow_internal", "Parameter"),
    ("oneflow.nn.modules.module", "Parameter"),
    ("oneflow.python.nn.parameter", "Parameter"),
}
_VALUE_NAMES = {
    ("oneflow._oneflow_internal", "Generator"): _Generator,
    ("oneflow._oneflow_internal", "dtype"): _DType,
    ("oneflow", "dtype"): _DType,
    ("oneflow._oneflow_internal", "placement"): _Placement,
    ("oneflow", "placement"): _Placement,
    ("oneflow._oneflow_internal.sbp", "sbp"): _Sbp,
    ("oneflow.sbp", "sbp"): _Sbp,
}
_SIZE_NAMES = {("oneflow", "Size"), ("oneflow._oneflow_internal", "Size")}


def _oneflow_class(module: str, name: Any) -> Any:
    """Return the shell of a class of OneFlow, or None."""
    if (module, name) in _TENSOR_NAMES:
        return _Tensor
    if (module, name) in _PARAMETER_NAMES:
        return _Parameter
    return _VALUE_NAMES.get((module, name))


class _States:
    """Turn the states of OneFlow's own classes into tensors, dtypes, placements and SBPs."""

    def __init__(
        self, folder_tensor: Callable[..., Any] | None, to_device: Callable[[Any], Any] | None, budget: Budget
    ) -> None:
        self._folder_tensor, self._to_device, self._budget = folder_tensor, to_device, budget
        self._read: set[str] = set()

    def value_of(self, shell: _State, state: Any) -> Any:
        """Return the value that a state describes."""
        if isinstance(shell, _Generator):
            return None  # torch's default generator
        if isinstance(shell, _Tensor | _Parameter):
            loaded = self._tensor(state)
            if not shell.parameter:
                return loaded
            is_differentiable = loaded.is_floating_point() or loaded.is_complex()
            requires_grad = is_differentiable and bool(state.get("requires_grad", True))
            return torch.nn.Parameter(loaded, requires_grad=requires_grad)
        if isinstance(shell, _DType):
            if type(state) is not int or state not in dtypes.NUMBER_TO_DTYPE:
                raise CheckpointError(f"altered: element type number {shown(state)} is not known")
            return dtypes.NUMBER_TO_DTYPE[state]
        return _placement(state) if isinstance(shell, _Placement) else _sbp(state)

    def _tensor(self, state: Any) -> torch.Tensor:
        if not isinstance(state, dict) or not ("path" in state or "data" in state):
            raise CheckpointError("altered: a tensor's state has neither 'path' nor 'data'")
        loaded = self._outer(state["path"]) if "path" in state else self._inner(state)
        return loaded if self._to_device is None else self._to_device(loaded)

    def _outer(self, name: Any) -> Any:
        """Return a tensor of the folder. Each tensor is expected once; repeated reads are charged."""
        if self._folder_tensor is None:
            raise CheckpointError(
                "its tensors are in a checkpoint folder; load the folder, not the file in it"
            )
        loaded = self._folder_tensor(name)
        if name in self._read:
            self._budget.charge_data(loaded.nbytes, "a tensor that is named again")
        self._read.add(name)
        return loaded

    def _inner(self, state: Any) -> Any:
        import numpy as np

        data, dtype = state["data"], state.get("dtype")
        if type(data) is not np.ndarray or data.dtype.kind not in "biufc":
            raise CheckpointError(f"altered: a tensor's data is a {type(data).__name__}, not numbers")
        dtype = dtype if isinstance(dtype, torch.dtype) else None
        item = max(data.dtype.itemsize, 0 if dtype is None else dtype.itemsize)
        self._budget.charge_data(data.size * item, "a tensor")
        return dtypes.from_numpy(data, dtype)


def _placement(state: Any) -> Any:
    has_type = isinstance(state, dict) and type(state.get("type")) is str
    if not has_type or not isinstance(state.get("ranks"), list | tuple):
        raise CheckpointError(f"altered: the state of a placement is {shown(state)}")
    return placement(state["type"], state["ranks"])


def _sbp(state: Any) -> Any:
    is_pair = type(state) is tuple and len(state) == 2
    if not is_pair or state[0] not in ("B", "P", "S") or type(state[1]) is not int:
        raise CheckpointError(f"altered: the state of an SBP is {shown(state)}")
    letter, dim = state
    if letter == "S":
        return sbp.split(dim)
    return sbp.broadcast if letter == "B" else sbp.partial_sum


class SafeReader(Unpickler):
    """Read OneFlow's pickles, and construct only what `allow` lists."""

    def __init__(self, file: Any, size: Any, states: Any, budget: Budget, layers: bool = True) -> None:
        super().__init__(file, size, budget, find_shell=modules.layer_shell if layers else None)
        self._states = states

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SIZE_NAMES:
            module = "torch"
        target = _oneflow_class(module, name)
        return super().find_class(module, name) if target is None else target

    def value_of(self, shell: Shell, state: Any) -> Any:
        if isinstance(shell, _State):
            return self._states.value_of(shell, state)
        return super().value_of(shell, state)


class FullReader(pickle._Unpickler):
    """Read OneFlow's pickles, and construct any class that the file names. This can run arbitrary code."""

    def __init__(self, file: Any, states: Any) -> None:
        super().__init__(file)
        self._states = states

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SIZE_NAMES:
            return torch.Size
        target: Any = _oneflow_class(module, name)
        if target is None and module.startswith("oneflow.nn"):
            target = modules.layer_shell(module, name)
        return super().find_class(module, name) if target is None else target

    def load_build(self) -> None:
        state, target = self.stack[-1], self.stack[-2]
        if not isinstance(target, Shell):
            super().load_build()
            return
        self.stack.pop()
        if isinstance(target, _State):
            value = self._states.value_of(target, state)
        else:
            value = modules.build(target, state, None)
        self.stack[-1] = value
        for index in reversed(self.memo):  # the object entered the memo just before its state
            if self.memo[index] is target:
                self.memo[index] = value
                break

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}


def _checksum_line(crc: int) -> bytes:
    return _MARK + f"{crc:08x}".encode()


_LINE = len(_checksum_line(0))


def _check_sum(file: IO[bytes], size: int) -> bool:
    """Compare the checksum after the pickle. Return False if there is none, as in OneFlow's own pickles.

    The position of the file is kept.
    """
    start = file.tell()
    file.seek(start + max(size - _LINE - 1, 0))
    last = file.read(_LINE + 1)
    at = last.find(
        _MARK
    )  # a truncated checksum begins later, an altered file may have another byte behind it
    file.seek(start)
    if at < 0:
        return False
    length, crc = size - len(last) + at, 0
    while length:
        chunk = file.read(min(_CHUNK, length))
        if not chunk:
            raise CheckpointError("truncated while it was read")
        crc, length = zlib.crc32(chunk, crc), length - len(chunk)
    file.seek(start)
    if last[at:] != _checksum_line(crc):
        raise CheckpointError(
            f"truncated or altered: {crc:08x} is the CRC-32 of its values, {shown(last[at:])} stands behind"
            " them"
        )
    return True


def load(
    file: IO[bytes],
    size: int,
    source: str,
    folder_tensor: Callable[[str], torch.Tensor] | None = None,
    to_device: Callable[[torch.Tensor], torch.Tensor] | None = None,
    safe: bool = True,
    layers: bool = True,
) -> Any:
    """Return the object in a pickle: the next `size` bytes of a file. Every error names `source`.

    `layers`: whether torch.nn's modules are constructed.
    """
    if not safe:
        return _load_trusted(file, size, source, folder_tensor, to_device)
    with named_errors(source):
        return _load_safely(file, size, folder_tensor, to_device, layers)


def _load_safely(
    file: IO[bytes],
    size: int,
    folder_tensor: Callable[..., Any] | None,
    to_device: Callable[[Any], Any] | None,
    layers: bool,
) -> Any:
    end = file.tell() + size
    has_checksum = _check_sum(file, size)  # the checksum is read before anything is constructed
    budget = Budget(size)
    out = SafeReader(file, size, _States(folder_tensor, to_device, budget), budget, layers).load()
    budget.finish()
    rest = end - file.tell()
    if not has_checksum and rest:
        raise CheckpointError(
            f"truncated or altered: {rest} bytes stand behind its values, {shown(file.read(_LINE))}"
        )
    return _content(out)


def _load_trusted(
    file: IO[bytes],
    size: int,
    source: Any,
    folder_tensor: Callable[..., Any] | None,
    to_device: Callable[[Any], Any] | None,
) -> Any:
    """Return the object in a pickle that the user trusts.

    Errors of the classes in it are raised unchanged.
    """
    try:
        _check_sum(file, size)
        states = _States(folder_tensor, to_device, Budget(1 << 60))
        return _content(FullReader(file, states).load())
    except (EOFError, IndexError, KeyError, ValueError, pickle.UnpicklingError, CheckpointError) as error:
        with named_errors(source):
            raise error


def _content(out: Any) -> Any:
    if isinstance(out, dict) and "protocol_version" in out and "data" in out:
        if out["protocol_version"] != PROTOCOL_VERSION:
            raise CheckpointError(
                f"protocol version {shown(out['protocol_version'])}; this reader knows {PROTOCOL_VERSION}"
            )
        return out["data"]
    return out
