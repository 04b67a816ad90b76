"""Operators of torch that declare the results which the capture recorded, in place of symbolic sizes."""

from __future__ import annotations

import functools
import hashlib
from typing import Any, TypeAlias

import torch

from ..program.operators import facts_of
from ..program.tensor_info import TensorInfo

# The result of an operator; a tuple if it has several; None if nothing uses the result.
KnownResult: TypeAlias = "TensorInfo | tuple[KnownResult, ...] | None"
KnownOperator = tuple[torch._ops.OpOverload, KnownResult]


def _checked(target: torch._ops.OpOverload, results: KnownResult, *args: Any, **kwargs: Any) -> Any:
    """Run the operator and check that its results match the record, because the compiled code that follows
    reads that much memory. A saved program may claim any size. The generated code compares the strides.
    """
    outputs = target(*args, **kwargs)
    opaque = facts_of(target).opaque_results
    pairs: Any = zip(outputs, results) if type(results) is tuple else ((outputs, results),)
    for index, (output, info) in enumerate(pairs):
        if (
            isinstance(output, torch.Tensor)
            and info is not None
            and not (index in opaque and info.shape == (0,))
            and (tuple(output.shape), output.dtype) != (info.shape, info.dtype)
        ):
            raise RuntimeError(
                f"{target} gave {output.dtype}{list(output.shape)}, the program was captured for"
                f" {info.dtype}{list(info.shape)}"
            )
    return outputs


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library("oneflow_known", "FRAGMENT")


@functools.cache
def known_operator(target: torch._ops.OpOverload, results: KnownResult) -> torch._ops.OpOverload:
    """Return the operator that declares these results (or this single result). A result that nobody uses
    (None) is declared empty.

    The name depends on the content, because compiled regions on disk call the operator by its name.
    """
    digest = hashlib.sha256(repr((str(target._schema), results)).encode()).hexdigest()[:16]
    name = f"{target._opname}_{target._overloadname}_{digest}"
    arguments, returns = str(target._schema).split("(", 1)[1].rsplit("->", 1)
    library = _library()
    library.define(f"{name}({arguments}->{returns}".replace("SymInt", "int"))
    library.impl(name, functools.partial(_checked, target, results), "CompositeExplicitAutograd")

    lists = [isinstance(r.type, torch.ListType) for r in target._schema.returns]

    def empty(info: Any) -> torch.Tensor | list[Any]:
        if info is None:
            return torch.empty(0)
        if type(info) is tuple:
            return [empty(i) for i in info]
        return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=info.device)

    def fake(*args: Any, **kwargs: Any) -> torch.Tensor | list[Any] | tuple[Any, ...]:
        if type(results) is not tuple:
            return empty(results)
        return tuple(empty(() if info is None and listed else info) for info, listed in zip(results, lists))

    torch.library.register_fake(f"oneflow_known::{name}", fake, lib=library)
    operator: torch._ops.OpOverload = getattr(torch.ops.oneflow_known, name).default
    return operator
