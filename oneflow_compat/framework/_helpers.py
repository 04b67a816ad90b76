"""Small functions of OneFlow's deep paths under `oneflow.framework`: rows of `_tables/deep_paths.py`."""

from __future__ import annotations

import doctest
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import _env, _processes
from ..utils.global_view.global_utils import src_sbp_broadcast as _broadcast_py_object

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable

    from ..nn.graph.scopes import Scope, ScopeProto


_numbers = itertools.count()


class BalancedRanges(list[tuple[int, int]]):
    """[(begin, end), ...]: `total` cut into `part_size` ranges whose lengths differ by one at most, longer
    ones first.
    """

    def __init__(self, total: int, part_size: int) -> None:
        base, rest = divmod(total, part_size)
        begin, parts = 0, []
        for i in range(part_size):
            end = begin + base + (i < rest)
            parts.append((begin, end))
            begin = end
        super().__init__(parts)


def add_docstr(fun: Any, docstr: str) -> Any:
    """`fun` with a docstring; RuntimeError where it has one."""
    if fun.__doc__ is not None:
        raise RuntimeError(f"{fun!r} has a docstring already; reset_docstr replaces it")
    return reset_docstr(fun, docstr)


def reset_docstr(o: Any, docstr: str) -> Any:
    """`o` with another docstring."""
    o.__doc__ = docstr
    return o


def HasAllMultiClientEnvVars() -> bool:
    """True: one process is its own world; several get their variables from the launcher."""
    variables = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")
    return all(map(_env.is_given, variables)) or not any(map(_env.is_given, variables[2:]))


def scope_to_proto(scope: Scope) -> ScopeProto:
    """The scope's name, numbers and attributes as a message (`scope_util.ScopeProto`)."""
    return scope.proto()


def UniqueStr(prefix: str) -> str:
    """`prefix` and a number that no other name of this process has."""
    return f"{prefix}{next(_numbers)}"


def register_tensor_op(op_name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function becomes the method `op_name` of every tensor; also torch's own of that name
    is replaced.
    """

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(torch.Tensor, op_name, function)
        return function

    return put


def convert_to_tensor_tuple(args: torch.Tensor | Iterable[torch.Tensor] | None) -> list[torch.Tensor]:
    """A list of tensors from one tensor, several, or None."""
    return [] if args is None else [args] if isinstance(args, torch.Tensor) else list(args)


# --------------------------------------------------------------------------- dtype

_NUMPY = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
_TORCH = {np.dtype(v): k for k, v in _NUMPY.items()}


def dtypes() -> list[torch.dtype]:
    """Every dtype a tensor may have."""
    return [*_NUMPY, torch.bfloat16]


def convert_oneflow_dtype_to_numpy_dtype(oneflow_dtype: torch.dtype) -> type[np.generic]:
    """numpy's type for a dtype; NotImplementedError for bfloat16, which numpy lacks."""
    if oneflow_dtype not in _NUMPY:
        raise NotImplementedError(f"numpy has no dtype for {oneflow_dtype}")
    return _NUMPY[oneflow_dtype]


def convert_numpy_dtype_to_oneflow_dtype(numpy_dtype: Any) -> torch.dtype:
    """The dtype for numpy's; NotImplementedError for one that tensors lack."""
    try:
        return _TORCH[np.dtype(numpy_dtype)]
    except KeyError:
        raise NotImplementedError(f"no tensor dtype for numpy's {np.dtype(numpy_dtype)}") from None


# In the order of OneFlow's dtype numbers. None: no tensor has this dtype.
_BY_NUMBER = (
    None,
    "char",
    "float32",
    "float64",
    "int8",
    "int32",
    "int64",
    "uint8",
    "of_record",
    "float16",
    "tensor_buffer",
    "bfloat16",
    "bool",
    "uint16",
    "uint32",
    "uint64",
    None,
    "int16",
    None,
    "complex32",
    "complex64",
    "complex128",
)


def convert_proto_dtype_to_oneflow_dtype(proto_dtype: int) -> Any:
    """The dtype with a number of OneFlow's files; NotImplementedError for one that tensors lack."""
    name = _BY_NUMBER[proto_dtype] if 0 <= proto_dtype < len(_BY_NUMBER) else None
    if name is None:
        raise NotImplementedError(f"no tensor dtype has the number {proto_dtype}")
    import oneflow

    return getattr(oneflow, name)


# --------------------------------------------------------------------------- unittest


def check_multi_rank_docstr(module: types.ModuleType) -> doctest.TestResults:
    """Run the examples in the docstrings of `module` and of its functions and classes on every rank.

    AssertionError with the failing examples of this rank; each rank runs the same ones, so collectives meet.
    """
    import oneflow

    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module, module.__name__):
        runner.run(test, out=report.append)
    result = (
        runner.summarize(verbose=False)
        if not runner.failures
        else doctest.TestResults(runner.failures, runner.tries)
    )
    if result.failed:
        raise AssertionError(
            f"rank {oneflow.env.get_rank()}: {result.failed} of {result.attempted} examples of"
            f" {module.__name__} failed\n{''.join(report)}"
        )
    return result


# --------------------------------------------------------------------------- check_point_v2


def tensor_getstate(self: torch.Tensor) -> dict[str, Any]:
    """A local tensor's values as an array, its dtype and the name of its device.

    NotImplementedError of a global tensor of several ranks.
    """
    if hasattr(self, "_dtensor"):
        raise NotImplementedError(
            "tensor_getstate of a global tensor of several ranks; pass tensor.to_local() or"
            " tensor.full_tensor()"
        )
    return {"data": self.detach().cpu().numpy(), "dtype": self.dtype, "device": str(self.device)}
