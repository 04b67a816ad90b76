"""What a safe load may construct.

Names that are absent are refused. Everything here only builds plain values: no name runs code that
a file could choose. torch's own allow-list (`torch.serialization.add_safe_globals`) is honoured too.
"""
from __future__ import annotations

import functools
import importlib

# module: names, of plain data that checkpoints hold beside tensors
PLAIN = {
    "collections": "OrderedDict Counter deque defaultdict",
    "builtins": "set frozenset complex bytearray slice range list dict tuple int float bool str bytes object",
    "datetime": "datetime date time timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "pathlib": "Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath",
    "pathlib._local": "Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath",
    "argparse": "Namespace",
    "types": "SimpleNamespace",
    "uuid": "UUID",
    "numpy": "ndarray dtype bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128",
    "torch": "Size device float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32 complex64 complex128 "
    "float8_e4m3fn float8_e5m2 strided sparse_coo contiguous_format channels_last channels_last_3d preserve_format per_tensor_affine",
    "torch.nn.modules.module": "_IncompatibleKeys",
    "torch.nn.functional": "relu gelu silu tanh elu leaky_relu softmax hardtanh relu6",
    "_codecs": "encode",
}
NUMPY_FUNCTIONS = {"_reconstruct", "scalar"}  # of numpy(._)core.multiarray
_ALIASES = {"__builtin__": "builtins", "copy_reg": "copyreg"}


def _safe_scalar(dtype, data=None):
    """numpy's scalar constructor, without its object form (which would unpickle)."""
    import numpy as np

    if np.dtype(dtype).hasobject:
        raise ValueError("a numpy object scalar")
    multiarray = importlib.import_module("numpy.core.multiarray" if np.__version__ < "2" else "numpy._core.multiarray")
    return multiarray.scalar(dtype) if data is None else multiarray.scalar(dtype, data)


def _reconstructor(cls, base, state):
    """copyreg's constructor of protocol 0 and 1, for the allowed classes."""
    import copyreg

    return copyreg._reconstructor(cls, base, state)


def module_class(module: str, name: str):
    """A torch.nn or oneflow.nn layer class of that name, or None."""
    from torch import nn

    if not (module.startswith("torch.nn.modules.") or module == "torch.nn"):
        return None
    cls = getattr(importlib.import_module("torch.nn"), name, None)
    return cls if isinstance(cls, type) and issubclass(cls, nn.Module) and cls is not nn.Module else None


@functools.cache
def plain(module: str, name: str):
    """The allowed object, or None."""
    module = _ALIASES.get(module, module)
    if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in NUMPY_FUNCTIONS:
        if name == "scalar":
            return _safe_scalar
        import numpy as np

        return np.ndarray.__reduce__(np.empty(0))[0]
    if module in ("numpy.core.numeric", "numpy._core.numeric") and name == "_frombuffer":
        import numpy as np

        return np.empty(0).__reduce_ex__(5)[0]
    if module == "numpy.dtypes" and name.endswith("DType"):
        return getattr(importlib.import_module("numpy.dtypes"), name, None)
    if module == "copyreg" and name == "_reconstructor":
        return _reconstructor
    if name in PLAIN.get(module, "").split():
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            return None
    return module_class(module, name)


def find(module: str, name: str):
    """The allowed object of that global name, the user's additions included, or None."""
    found = plain(module, name)
    if found is not None:
        return found
    return user_globals().get(f"{module}.{name}")


def user_globals() -> dict:
    """What the user allowed with `torch.serialization.add_safe_globals`: {full name: object}."""
    import torch

    out = {}
    for item in torch.serialization.get_safe_globals():
        obj, full = item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")
        out[full] = obj
    return out


@functools.cache
def torch_globals() -> tuple:
    """`PLAIN` and the layer classes as torch.load(weights_only=True) takes them: (object, full name)."""
    from torch import nn

    out = []
    for module, names in PLAIN.items():
        if module in ("torch", "builtins", "_codecs"):
            continue  # torch allows its own
        for name in names.split():
            found = plain(module, name)
            if found is not None:
                out.append((found, f"{module}.{name}"))
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        out += [(plain(module, n), f"{module}.{n}") for n in NUMPY_FUNCTIONS]
    import numpy.dtypes

    out += [(c, f"numpy.dtypes.{n}") for n, c in vars(numpy.dtypes).items() if n.endswith("DType") and isinstance(c, type)]
    for name in dir(nn):
        cls = getattr(nn, name)
        if isinstance(cls, type) and issubclass(cls, nn.Module) and cls is not nn.Module and cls.__module__.startswith("torch.nn.modules."):
            out.append((cls, f"{cls.__module__}.{name}"))
    from .. import nn as ours

    for name in dir(nn):  # subclasses that only change a constructor
        cls = getattr(ours, name)
        if isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__.startswith(ours.__name__ + ".modules."):
            out.append((cls, f"{cls.__module__}.{cls.__name__}"))
    for name in ("set", "frozenset", "complex", "slice", "list", "dict"):
        out.append((plain("builtins", name), f"builtins.{name}"))
    return tuple(out)
