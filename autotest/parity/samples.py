"""Arguments for operators and modules, from the table torch tests itself with (torch.testing._internal, part
of every torch).

The table is private to torch; a version without it, or with another shape of it, gives no samples, and
the names are then listed as not run.
"""

from __future__ import annotations

import functools
import sys
import types
import unittest
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


OpInfo = Any  # a row of torch's table of operators
ModuleInfo = Any  # a row of torch's table of modules


class OperatorSample(NamedTuple):
    """Arguments of one call of an operator."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ModuleSample(NamedTuple):
    """Arguments of the constructor of a module, and of one call of it."""

    init_args: tuple[Any, ...]
    init_kwargs: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _load(module: str, name: str) -> Any:
    if "expecttest" not in sys.modules:  # torch's test helpers want this package; nothing used here does
        try:
            import expecttest  # noqa: F401
        except ImportError:
            stub = types.ModuleType("expecttest")
            vars(stub)["TestCase"] = unittest.TestCase
            sys.modules["expecttest"] = stub
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(__import__(f"torch.testing._internal.{module}", fromlist=[name]), name)
    except Exception:  # private: anything may be missing
        return []


@functools.cache
def operators() -> dict[str, OpInfo]:
    """Return the row of each operator by name and alias; of several variants the plain one."""
    by_name: dict[str, OpInfo] = {}
    for op in _load("common_methods_invocations", "op_db"):
        by_name.setdefault(op.name, op)
    for op in list(by_name.values()):
        for alias in op.aliases:
            by_name.setdefault(alias.name, op)
    return by_name


@functools.cache
def modules() -> dict[str, ModuleInfo]:
    """Return the row of each module class by its name."""
    return {m.module_cls.__name__: m for m in _load("common_modules", "module_db")}


def operator_samples(
    op: OpInfo, dtype: torch.dtype, requires_grad: bool = False, device: str = "cpu", limit: int = 4
) -> list[OperatorSample]:
    """Return samples of an operator for this dtype; the smaller half of a long list is enough."""
    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in op.sample_inputs(device, dtype, requires_grad=requires_grad):
            if size_of(sample) <= 4000:
                out.append(OperatorSample(sample.input, tuple(sample.args), dict(sample.kwargs)))
            if len(out) >= limit * 4:
                break
    step = max(len(out) // limit, 1)
    return out[::step][:limit]


def size_of(sample: Any) -> int:
    return sum(t.numel() for t in tensors((sample.input, sample.args, sample.kwargs)))


def tensors(x: object) -> list[torch.Tensor]:
    import torch

    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = tuple(x.values())
    if isinstance(x, (tuple, list)):
        return [t for e in x for t in tensors(e)]
    return []


def module_samples(
    info: ModuleInfo, dtype: torch.dtype, device: str = "cpu", training: bool = True, limit: int = 4
) -> list[ModuleSample]:
    """Return samples of a module for this dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=training)
    samples = []
    for m in out:
        c, f = m.constructor_input, m.forward_input
        if f is not None:
            samples.append(ModuleSample(tuple(c.args), dict(c.kwargs), tuple(f.args), dict(f.kwargs)))
    step = max(len(samples) // limit, 1)
    return samples[::step][:limit]
