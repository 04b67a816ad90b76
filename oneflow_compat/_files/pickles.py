"""OneFlow's pickles: protocol 4, tensors as `oneflow.Tensor` / `oneflow.nn.Parameter`.

A tensor's state is {"path": folder name} in a checkpoint folder, and {"data": numpy array, "dtype",
"device"} in a single file. Python's own pickle.Pickler cannot write a global name that is not
where the object lives, so the writer is pickle._Pickler (the documented pickle machine in Python).
A pickle ends with STOP; we put the CRC-32 of what stands before behind it, where no reader looks.
"""
from __future__ import annotations

import io
import pickle
import types
import zlib

import torch

from . import allow, dtypes
from .layout import CheckpointError

PROTOCOL_VERSION = 1
MAGIC_KEY = "__oneflow__"
_MARK = b"oneflow-crc32:"


# --------------------------------------------------------------------------- writing
class _Name(type):
    """A class that is pickled under the global name `where`."""

    where = ("", "")


def _stand_in(module: str, name: str) -> _Name:
    return _Name(name, (), {"where": (module, name)})


_TENSOR, _PARAMETER = _stand_in("oneflow", "Tensor"), _stand_in("oneflow.nn", "Parameter")
_SIZE, _DTYPE = _stand_in("oneflow", "Size"), _stand_in("oneflow._oneflow_internal", "dtype")
_PLACEMENT, _SBP = _stand_in("oneflow._oneflow_internal", "placement"), _stand_in("oneflow._oneflow_internal.sbp", "sbp")


class Pickler(pickle._Pickler):
    """Writes an object for OneFlow. `store(tensor) -> folder name` puts tensors outside; None: inside."""

    def __init__(self, file, store=None, whole=None):
        super().__init__(file, protocol=4)
        self._store, self._whole = store, whole

    def save(self, obj, save_persistent_id=True):
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

    def _rewritten(self, obj):
        """(class, constructor arguments, state) of what OneFlow has its own class for, else None."""
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
            kind = {"split": "S", "broadcast": "B", "partial_sum": "P"}[obj._kind]
            return _SBP, (), (kind, -1 if obj._dim is None else obj._dim)
        return None

    def _state(self, tensor, parameter):
        plain = tensor if self._whole is None else self._whole(tensor)
        if self._store is not None:
            state = {"path": self._store(plain)}
        else:
            device = "cuda" if tensor.is_cuda else "cpu"
            state = {"data": dtypes.to_numpy(plain), "dtype": tensor.dtype, "device": device}
        if parameter and not tensor.requires_grad:
            state["requires_grad"] = False  # an addition of ours; OneFlow does not look at it
        return state

    def save_global(self, obj, name=None):
        if isinstance(obj, _Name):
            self._write_global(obj, *obj.where)
        elif (getattr(obj, "__module__", "") or "").startswith("numpy._core"):
            # the name that numpy 1 knows as well
            self._write_global(obj, obj.__module__.replace("numpy._core", "numpy.core", 1), name or obj.__qualname__)
        else:
            super().save_global(obj, name)

    def _write_global(self, obj, module, name):
        self.save(module)
        self.save(name)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)

    dispatch = {**pickle._Pickler.dispatch, types.FunctionType: save_global, type: save_global}


def dumps(obj, store=None, whole=None, single=False) -> bytes:
    """OneFlow's pickle of {"protocol_version", "data": obj}, and the check behind it."""
    top = {"protocol_version": PROTOCOL_VERSION}
    if single:
        top[MAGIC_KEY] = None
    top["data"] = obj
    out = io.BytesIO()
    Pickler(out, store, whole).dump(top)
    body = out.getvalue()
    return body + _MARK + f"{zlib.crc32(body):08x}".encode()


# --------------------------------------------------------------------------- reading
class Refused(pickle.UnpicklingError):
    """The pickle asks for something a safe load does not do."""


class _Shell:
    """Made empty by a pickle; `Reader.load_build` puts the real object in its place when its state arrives."""


class _Tensor(_Shell):
    parameter = False


class _Parameter(_Shell):
    parameter = True


class _DType(_Shell):
    pass


class _Generator(_Shell):
    """A dropout's random generator: its state means nothing to torch's."""


class _Placement(_Shell):
    pass


class _Sbp(_Shell):
    pass


_TENSOR_NAMES = {
    ("oneflow", "Tensor"), ("oneflow._oneflow_internal", "Tensor"), ("oneflow.framework.tensor", "Tensor"),
    ("oneflow.python.framework.tensor", "Tensor"), ("oneflow.experimental", "Tensor"),
}  # fmt: skip
_PARAMETER_NAMES = {
    ("oneflow.nn", "Parameter"), ("oneflow.nn.parameter", "Parameter"), ("oneflow._oneflow_internal.nn", "Parameter"),
    ("oneflow._oneflow_internal", "Parameter"), ("oneflow.nn.modules.module", "Parameter"), ("oneflow.python.nn.parameter", "Parameter"),
}  # fmt: skip
_VALUE_NAMES = {
    ("oneflow._oneflow_internal", "Generator"): _Generator,
    ("oneflow._oneflow_internal", "dtype"): _DType, ("oneflow", "dtype"): _DType,
    ("oneflow._oneflow_internal", "placement"): _Placement, ("oneflow", "placement"): _Placement,
    ("oneflow._oneflow_internal.sbp", "sbp"): _Sbp, ("oneflow.sbp", "sbp"): _Sbp,
    ("oneflow", "Size"): torch.Size, ("oneflow._oneflow_internal", "Size"): torch.Size,
}  # fmt: skip


class Reader(pickle._Unpickler):
    """Reads OneFlow's pickles. `safe`: only what `allow` lists; else any class the file names.

    `folder_tensor(name)` reads a tensor folder (None in a single file); `place` moves each tensor.
    """

    def __init__(self, file, source, folder_tensor=None, place=None, safe=True):
        super().__init__(file)
        self._source, self._folder_tensor, self._place, self._safe = source, folder_tensor, place, safe

    def find_class(self, module, name):
        key = (module, name)
        if key in _TENSOR_NAMES:
            return _Tensor
        if key in _PARAMETER_NAMES:
            return _Parameter
        if key in _VALUE_NAMES:
            return _VALUE_NAMES[key]
        from . import modules

        if module.startswith("oneflow.nn.modules.") or module == "oneflow.nn":
            shell = modules.shell(module, name)
            if shell is not None:
                return shell
        found = allow.find(module, name)
        if found is not None:
            return found
        if not self._safe:
            return super().find_class(module, name)
        raise Refused(
            f"it holds a {module}.{name}, which a safe load does not construct. If you trust the file, load it with "
            f"weights_only=False, or allow the class with torch.serialization.add_safe_globals([{name}])"
        )

    def tensor(self, state) -> torch.Tensor:
        """The tensor that a state dictionary describes."""
        if not isinstance(state, dict) or not ("path" in state or "data" in state):
            raise CheckpointError(f"{self._source}: altered: a tensor's state has neither 'path' nor 'data'")
        if "path" in state:
            if self._folder_tensor is None:
                raise CheckpointError(f"{self._source}: its tensors are in a checkpoint folder; load the folder, not the file in it")
            loaded = self._folder_tensor(state["path"])
        else:
            loaded = self._inner(state)
        return loaded if self._place is None else self._place(loaded)

    def _inner(self, state):
        import numpy as np

        if not isinstance(state["data"], np.ndarray) or state["data"].dtype.hasobject:
            raise CheckpointError(f"{self._source}: altered: a tensor's data is a {type(state['data']).__name__}, not numbers")
        dtype = state.get("dtype")
        return dtypes.from_numpy(state["data"], dtype if isinstance(dtype, torch.dtype) else None)

    def load_build(self):
        """BUILD, on instances only: a pickle may not change a class or a function."""
        state, target = self.stack[-1], self.stack[-2]
        if isinstance(target, _Shell):
            self.stack.pop()
            self.stack[-1] = value = self._value(target, state)
            for number in reversed(self.memo):  # it was noted just before its state
                if self.memo[number] is target:
                    self.memo[number] = value
                    break
            return
        if self._safe and isinstance(target, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            raise Refused(f"it tries to change {target!r}")
        super().load_build()

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}

    def _value(self, target, state):
        if isinstance(target, _Generator):
            return None  # torch's default one
        if isinstance(target, _Tensor | _Parameter):
            loaded = self.tensor(state)
            if not target.parameter:
                return loaded
            trains = (loaded.is_floating_point() or loaded.is_complex()) and bool(state.get("requires_grad", True))
            return torch.nn.Parameter(loaded, requires_grad=trains)
        if isinstance(target, _DType):
            if state not in dtypes.NUMBER_TO_DTYPE:
                raise CheckpointError(f"{self._source}: element type number {state!r} is not known")
            return dtypes.NUMBER_TO_DTYPE[state]
        if isinstance(target, _Placement):
            from .._global.placement import placement

            return placement(state["type"], state["ranks"])
        from .. import sbp

        kind, dim = state
        return {"B": lambda: sbp.broadcast, "P": lambda: sbp.partial_sum}.get(kind, lambda: sbp.split(dim))()


def check(body: bytes, rest: bytes, source) -> None:
    """Compare the check behind a pickle of ours; OneFlow's have none."""
    if not rest:
        return
    pickled = body[: len(body) - len(rest)]
    wanted = _MARK + f"{zlib.crc32(pickled):08x}".encode()
    if rest != wanted:
        raise CheckpointError(f"{source}: truncated or altered: {wanted[-8:].decode()} is the CRC-32 of its values, {rest[:40]!r} stands behind them")


def loads(body: bytes, source, folder_tensor=None, place=None, safe=True):
    """The object in a pickle; every error names `source`."""
    end = body.rfind(_MARK)
    if end > 0:  # checked before anything is constructed
        check(body, body[end:], source)
    stream = io.BytesIO(body)
    try:
        out = Reader(stream, source, folder_tensor, place, safe).load()
    except CheckpointError:
        raise
    except Refused as error:
        raise pickle.UnpicklingError(f"{source}: {error}") from None
    except Exception as error:
        if not safe and not isinstance(error, EOFError | IndexError | KeyError | ValueError | pickle.UnpicklingError):
            raise
        raise CheckpointError(f"{source}: truncated or altered ({type(error).__name__}: {error})") from error
    if end < 0:
        check(body, stream.read(), source)
    if isinstance(out, dict) and "protocol_version" in out and "data" in out:
        if out["protocol_version"] != PROTOCOL_VERSION:
            raise CheckpointError(f"{source}: protocol version {out['protocol_version']!r}; this reader knows {PROTOCOL_VERSION}")
        return out["data"]
    return out
