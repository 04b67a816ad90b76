"""The decorator of "replace" rows of `_tables/tensor.py`, and the signatures that help() shows for them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from ..._method import named_method
from .._signature import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = Callable[..., Any]  # a method of torch.Tensor, or its replacement

_PACKAGE = __package__.partition(".")[0]
_NEW = "self, *size, dtype=None, device=None, placement=None, sbp=None, requires_grad=False, **torch_keywords"

# Signatures that help() shows, without the name. torch's own keyword names are accepted too.
SIGNATURES = {
    "uniform_": "self, a=0, b=1, *, generator=None, **torch_keywords",
    "normal_": "self, mean=0.0, std=1.0, *, generator=None",
    "exponential_": "self, lambd=1.0, generator=None",
    "copy_": "self, other, non_blocking=False",
    "requires_grad_": "self, requires_grad=True",
    "backward": "self, gradient=None, retain_graph=None, create_graph=False, inputs=None",
    "__deepcopy__": "self, memo",
    "matmul": "self, other, transpose_a=False, transpose_b=False, alpha=1.0",
    "bmm": "self, b, transpose_a=False, transpose_b=False, alpha=1.0, *, mat2=None",
    "mm": "self, mat2",
    "where": "self, x=None, y=None, *, condition=None, other=None",
    "argmax": "self, dim=None, keepdim=None, dtype=None",
    "argmin": "self, dim=None, keepdim=None, dtype=None",
    "topk": "self, k, dim=None, largest=True, sorted=True",
    "cumsum": "self, dim, dtype=None, *, out=None",
    "cumprod": "self, dim, dtype=None, *, out=None",
    "median": "self, dim=-1, keepdim=False",
    "prod": "self, dim=None, keepdim=False, *, dtype=None",
    "std": "self, dim=None, unbiased=None, keepdim=None, *, correction=None",
    "var": "self, dim=None, unbiased=None, keepdim=None, *, correction=None",
    "softmax": "self, dim=None, dtype=None",
    "log_softmax": "self, dim=None, dtype=None",
    "quantile": "self, q, dim=None, keepdim=False, interpolation='linear', ignore_nan=False",
    "unique": "self, sorted=True, return_inverse=False, return_counts=False, dtype=None, *, dim=None",
    "addmm": "self, mat1, mat2, alpha=1, beta=1",
    "bernoulli": "self, p=None, *, dtype=None, generator=None, inplace=False",
    "dot": "self, other, **torch_keywords",
    "repeat_interleave": "self, repeats, dim=None, output_size=None",
    "split": "self, split_size_or_sections, dim=0, **torch_keywords",
    "new_empty": _NEW,
    "new_zeros": _NEW,
    "new_ones": _NEW,
    "new_full": (
        "self, size, fill_value, dtype=None, device=None, placement=None, sbp=None, requires_grad=False,"
        " **torch_keywords"
    ),
    "new_tensor": (
        "self, data, dtype=None, device=None, requires_grad=False, placement=None, sbp=None, **torch_keywords"
    ),
    "gather": "self, dim, index, sparse_grad=False",
    "index_add": "self, dim, index, source, alpha=1",
    "index_add_": "self, dim, index, source, alpha=1",
    "nonzero": "self, as_tuple=False",
    "swapaxes": "self, dim0, dim1, **torch_keywords",
    "type_as": "self, target, **torch_keywords",
    "clamp_max_": "self, min, **torch_keywords",
    "broadcast_to": "self, shape, **torch_keywords",
    "unflatten": "self, dim, shape, **torch_keywords",
    "logical_and": "self, other",
    "logical_or": "self, other",
    "logical_xor": "self, other",
    "bernoulli_": "self, p=0.5, *, dtype=None, generator=None",
    "type": "self, dtype=None, non_blocking=False",
}


def replacing(slow: Callable[..., Any]) -> Callable[[Method], Method]:
    """Make `slow(original, error, self, *args, **kwargs)` a "replace" row.

    It returns NotImplemented for a call that OneFlow refuses, too. torch's error is raised then, and also if
    `slow` runs into an error that is none of this package.
    """
    expected = inspect.signature(slow)

    def fallback(
        original: Method, error: Exception | None, self: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if not takes(expected, original, error, self, *args, **kwargs):
            return NotImplemented
        try:
            return slow(original, error, self, *args, **kwargs)
        except Exception as inner:
            if is_ours(inner):
                raise
            return NotImplemented

    def row(original: Method) -> Method:
        method = named_method(original, fallback)
        shown = SIGNATURES.get(original.__name__)
        if shown is not None:
            method.__signature__ = parse(f"({shown})")
        return method

    row.__doc__ = slow.__doc__
    return row


def is_ours(error: Exception) -> bool:
    """Whether the class of an error is of this package: such an error says what to do."""
    return type(error).__module__.partition(".")[0] == _PACKAGE


def takes(signature: inspect.Signature, /, *args: Any, **kwargs: Any) -> bool:
    """Whether a function of this signature can be called with these arguments."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def promoted(*tensors: torch.Tensor) -> list[torch.Tensor] | None:
    """Return the tensors in their common dtype, or None if their dtypes already agree."""
    dtype = tensors[0].dtype
    if all(t.dtype is dtype for t in tensors):
        return None
    for t in tensors[1:]:
        dtype = torch.promote_types(dtype, t.dtype)
    return [t.to(dtype) for t in tensors]
