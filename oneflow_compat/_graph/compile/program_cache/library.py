"""A compiled region as a function: the library that inductor's C++ wrapper is built into, loaded by Python's
import system.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_ENTRY = "inductor_entry_cpp"  # the function of the library, and the last part of its module's name
# the library reads the address of a function of torch from this variable while it is loaded
_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


def load_library(
    path: str | os.PathLike[str], name: str, constants: Sequence[torch.Tensor] = ()
) -> Callable[..., list[torch.Tensor]]:
    """Return a function over the inputs of a region. `constants`: further tensors that its code reads.

    Raise ImportError if the file is damaged, or if a library that it needs is missing.
    """
    spec: Any = importlib.util.spec_from_file_location(f"{name}.{_ENTRY}", os.fspath(path))
    with _address_of_torch():
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return caller(getattr(module, _ENTRY), constants)


def caller(
    entry: Callable[..., Any], constants: Sequence[torch.Tensor] = ()
) -> Callable[..., list[torch.Tensor]]:
    """Return a function over tensors that calls the entry of a library and owns its results."""
    give = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
    take = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
    constants = list(constants)

    def region(*values: torch.Tensor) -> list[torch.Tensor]:
        return take(entry(give([*values, *constants])))

    return region


def with_sizes(
    function: Callable[..., list[torch.Tensor]], sizes: Sequence[tuple[int, int]]
) -> Callable[..., list[torch.Tensor]]:
    """Return a function over the inputs of a region for a library that takes these sizes first, as tensors.

    `sizes`: (input, dimension) of each.
    """

    def region(*values: torch.Tensor) -> list[torch.Tensor]:
        return function(*[torch.tensor(values[i].shape[dim]) for i, dim in sizes], *values)

    return region


@contextlib.contextmanager
def _address_of_torch() -> Iterator[None]:
    before = os.environ.get(_ADDRESS)
    address = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr  # type: ignore[attr-defined]
    os.environ[_ADDRESS] = str(address)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ADDRESS]
        else:
            os.environ[_ADDRESS] = before
