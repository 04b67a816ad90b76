"""A compiled region as a function: the library that inductor's C++ wrapper is built into, loaded by Python's
import system.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os

import torch

_ENTRY = "inductor_entry_cpp"  # the function of the library, and the last part of its module's name
# the library reads the address of a function of torch from this variable while it is loaded
_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


def load_library(path, name: str, constants=()):
    """Return a function over the inputs of a region. `constants`: tensors that its code reads besides.

    ImportError: the file is damaged, or a library that it needs is missing.
    """
    spec = importlib.util.spec_from_file_location(f"{name}.{_ENTRY}", os.fspath(path))
    with _address_of_torch():
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return caller(getattr(module, _ENTRY), constants)


def caller(entry, constants=()):
    """Return a function that hands tensors to the entry of a library and takes its results."""
    give = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
    take = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
    constants = list(constants)

    def region(*values):
        return take(entry(give([*values, *constants])))

    return region


def with_sizes(function, sizes):
    """Return a function over the inputs of a region for a library that takes these sizes first, as tensors.

    `sizes`: (input, dimension) of each.
    """

    def region(*values):
        return function(*[torch.tensor(values[i].shape[dim]) for i, dim in sizes], *values)

    return region


@contextlib.contextmanager
def _address_of_torch():
    before = os.environ.get(_ADDRESS)
    os.environ[_ADDRESS] = str(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ADDRESS]
        else:
            os.environ[_ADDRESS] = before
