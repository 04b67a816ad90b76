"""Comparison of one result or gradient of the two sides; each check has its own message."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

from .errors import Mismatch

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .config import Options
    from .pair import CandidateTensor, Names, Pair

SHOWN = 8  # rows of the difference table


def compare_values(
    pair: Pair,
    r: Any,
    c: Any,
    what: str,
    options: Options,
    names: Names | None = None,
    check_values: bool = True,
) -> None:
    """Compare one result of the two sides: number and type, shape, dtype, values."""
    names = names or pair.names
    if pair.is_reference_tensor(r) and pair.is_candidate_tensor(c):
        compare_tensors(pair, r, c, what, options, names, check_values)
    elif pair.is_reference_tensor(r) or pair.is_candidate_tensor(c) and not pair.is_reference_tensor(c):
        raise _different_types(pair, r, c, what, names)
    elif isinstance(r, (tuple, list, dict)):
        compare_containers(pair, r, c, what, options, names, check_values)
    elif isinstance(r, (bool, numbers.Number, str)) or r is None:
        compare_plain(r, c, what, options, names, check_values)
    elif (described := description_of(r)) is not None:
        if described != description_of(c):
            raise Mismatch(described[0], f"{what} is {r} in {names[0]} and {c} in {names[1]}")
    elif type(r).__module__ == "numpy" and hasattr(r, "shape"):
        compare_arrays(r, c, what, options, names, check_values)


def _different_types(pair: Pair, r: object, c: object, what: str, names: Names) -> Mismatch:
    """Return the error for two results of different types."""
    shown = [
        "a tensor" if is_tensor(x) else type_text(x)
        for x, is_tensor in ((r, pair.is_reference_tensor), (c, pair.is_candidate_tensor))
    ]
    return Mismatch(
        "number and type of outputs", f"{what} is {shown[0]} in {names[0]} and {shown[1]} in {names[1]}"
    )


def compare_containers(
    pair: Pair, r: Any, c: Any, what: str, options: Options, names: Names, check_values: bool
) -> None:
    """Compare the elements of two tuples, lists or dicts."""
    if isinstance(r, dict):
        if not isinstance(c, dict) or r.keys() != c.keys():
            raise Mismatch(
                "number and type of outputs",
                f"{what} has the keys {sorted(r)} in {names[0]}, {type_text(c)} in {names[1]}",
            )
        keys = list(r)
    else:
        if not isinstance(c, (tuple, list)) or len(r) != len(c):
            raise _different_types(pair, r, c, what, names)
        keys = list(range(len(r)))
    for key in keys:
        compare_values(pair, r[key], c[key], f"{what}[{key!r}]", options, names, check_values)


def compare_arrays(
    r: np.ndarray, c: Any, what: str, options: Options, names: Names, check_values: bool
) -> None:
    """Compare two NumPy arrays: shape and values."""
    import numpy as np

    if not hasattr(c, "shape") or r.shape != c.shape:
        raise Mismatch(
            "shape",
            f"{what} has shape {r.shape} in {names[0]} and {getattr(c, 'shape', type_text(c))} in {names[1]}",
        )
    rtol, atol = of_plain_numbers(options.rtol, options.atol)
    numeric = check_values and r.dtype.kind in "fciub"
    if numeric and not np.allclose(r, c, rtol=rtol, atol=atol, equal_nan=True):
        raise Mismatch("values", f"{what} differs\n{names[0]}: {r}\n{names[1]}: {c}")


def description_of(x: Any) -> tuple[Any, ...] | None:
    """Return ("dtype", "float32"), ("device", "cuda", 0) and the like, for either library; None for another
    kind of object.
    """
    class_name = type(x).__name__
    if class_name == "device":
        return class_name, x.type, x.index or 0
    return (class_name, short(x)) if class_name in ("dtype", "layout", "memory_format") else None


def compare_plain(r: Any, c: Any, what: str, options: Options, names: Names, check_values: bool) -> None:
    """Compare numbers, strings and None."""
    if (
        isinstance(r, bool) != isinstance(c, bool)
        or (r is None) != (c is None)
        or isinstance(r, str) != isinstance(c, str)
    ):
        raise Mismatch(
            "number and type of outputs",
            f"{what} is {type_text(r)} in {names[0]} and {type_text(c)} in {names[1]}",
        )
    if not check_values or r is None:
        return
    if isinstance(r, (float, complex)) or isinstance(c, (float, complex)):
        rtol, atol = of_plain_numbers(options.rtol, options.atol)
        same = r == c or (r != r and c != c) or abs(r - c) <= atol + rtol * abs(r)
    else:
        same = r == c
    if not same:
        raise Mismatch("values", f"{what} is {r!r} in {names[0]} and {c!r} in {names[1]}")


def compare_tensors(
    pair: Pair,
    r: torch.Tensor,
    c: CandidateTensor,
    what: str,
    options: Options,
    names: Names,
    check_values: bool = True,
) -> None:
    """Compare shape, dtype, device and values."""
    if tuple(r.shape) != tuple(c.shape):
        raise Mismatch(
            "shape", f"{what} has shape {tuple(r.shape)} in {names[0]} and {tuple(c.shape)} in {names[1]}"
        )
    a, b = pair.as_torch(r), pair.as_torch(c)
    if a.dtype != b.dtype and (options.check_dtype or is_exact(a.dtype) or is_exact(b.dtype)):
        raise Mismatch(
            "dtype", f"{what} has dtype {short(a.dtype)} in {names[0]} and {short(b.dtype)} in {names[1]}"
        )
    # the device of a global tensor is that of its placement
    if pair.shares_devices and not getattr(c, "is_global", False):
        compare_devices(a, b, what, names)
    if check_values:
        compare_numbers(a, b, what, options, names, "values")


def compare_devices(a: torch.Tensor, b: torch.Tensor, what: str, names: Names) -> None:
    """Compare the device types of two torch tensors."""
    if a.device.type != b.device.type:
        raise Mismatch("device", f"{what} is on {a.device} in {names[0]} and on {b.device} in {names[1]}")


def compare_numbers(
    a: torch.Tensor, b: torch.Tensor, what: str, options: Options, names: Names, check: str
) -> None:
    """Compare the values of two torch tensors of one shape."""
    import torch

    if a.is_meta or b.is_meta:  # without values
        return compare_devices(a, b, what, names)
    if a.device != b.device:
        a, b = a.cpu(), b.cpu()
    if a.is_sparse or a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.dtype == b.dtype and torch.equal(a, b):
        return
    rtol, atol = tolerance(a.dtype, options.rtol, options.atol)
    dtype = torch.promote_types(a.dtype, b.dtype)
    a, b = a.to(dtype), b.to(dtype)
    if dtype.is_floating_point and dtype.itemsize < 4:
        a, b = a.float(), b.float()
    if (
        torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if a.dtype != torch.bool
        else torch.equal(a, b)
    ):
        return
    raise Mismatch(
        check, f"{what} differs (rtol={rtol:g}, atol={atol:g})\n{difference_table(a, b, names, rtol, atol)}"
    )


def difference_table(a: torch.Tensor, b: torch.Tensor, names: Names, rtol: float, atol: float) -> str:
    """Return the number of different elements, the largest distance, and the first few elements as text."""
    import torch

    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    gap = (x - y).abs()
    off = ~((gap <= atol + rtol * y.abs()) | (x == y) | (torch.isnan(x) & torch.isnan(y)))
    where = off.nonzero().tolist()
    finite_gap = torch.nan_to_num(gap.real if gap.is_complex() else gap, nan=-1.0, posinf=float("inf"))
    head = (
        f"  {len(where)} of {a.numel()} elements differ, largest distance {finite_gap[off].max().item():.6g},"
        f" shape {tuple(a.shape)}, {short(a.dtype)}"
    )
    lines = [head, f"  {'index':<18} {names[0]:>18} {names[1]:>18} {'distance':>12}"]
    for index in where[:SHOWN]:
        at = tuple(index)
        lines.append(f"  {at!s:<18} {show(a[at]):>18} {show(b[at]):>18} {gap[at].item():>12.4g}")
    if len(where) > SHOWN:
        lines.append(f"  ... and {len(where) - SHOWN} more")
    return "\n".join(lines)


def show(scalar: torch.Tensor) -> str:
    v = scalar.item()
    return f"{v:.8g}" if isinstance(v, (float, complex)) else str(v)


def is_exact(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def short(dtype: object) -> str:
    return str(dtype).rpartition(".")[2]


def type_text(x: object) -> str:
    if x is None:
        return "None"
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}"
    return f"a {type(x).__name__}"


def compare_gradients(
    pair: Pair,
    r: torch.Tensor,
    c: CandidateTensor,
    what: str,
    options: Options,
    names: Names | None = None,
    check_values: bool = True,
) -> None:
    """Compare the accumulated `.grad`; no gradient and a gradient of zeros are equal."""
    names = names or pair.names
    gr, gc = r.grad, getattr(c, "grad", None)
    if not pair.has_gradients and not hasattr(c, "grad") or gr is None and gc is None:
        return
    if gr is None or gc is None:
        there, missing = (gc, names[0]) if gr is None else (gr, names[1])
        if pair.as_torch(there).count_nonzero().item():
            raise Mismatch(
                "gradient",
                f"{what} has no gradient in {missing}, and one that is not zero in"
                f" {names[1] if gr is None else names[0]}",
            )
        return
    if tuple(gr.shape) != tuple(gc.shape):
        raise Mismatch(
            "gradient",
            f"the gradient of {what} has shape {tuple(gr.shape)} in {names[0]} and {tuple(gc.shape)} in"
            f" {names[1]}",
        )
    a, b = pair.as_torch(gr), pair.as_torch(gc)
    if options.check_dtype and a.dtype != b.dtype:
        raise Mismatch(
            "gradient",
            f"the gradient of {what} has dtype {short(a.dtype)} in {names[0]} and {short(b.dtype)} in"
            f" {names[1]}",
        )
    if check_values:
        compare_numbers(a, b, f"the gradient of {what}", options, names, "gradient")


# ------------------------------- How far two results may be apart, by dtype: |a - b| <= atol + rtol * |b|
# Both sides usually run the same kernel and agree to the last bit; the numbers leave room for another order
# of summation or another formula of the same function, a few hundred units in the last place.

DEFAULT_RTOL, DEFAULT_ATOL = 1e-4, 1e-5

TABLE = {  # dtype name: (rtol, atol)
    "float64": (1e-6, 1e-8),
    "float32": (DEFAULT_RTOL, DEFAULT_ATOL),
    "float16": (2e-3, 1e-3),
    "bfloat16": (1.6e-2, 1e-2),
    "complex64": (DEFAULT_RTOL, DEFAULT_ATOL),
    "complex128": (1e-6, 1e-8),
}
LOW = (1.3e-1, 1e-1)  # eight-bit floats


def tolerance(
    dtype: torch.dtype, rtol: float | None = None, atol: float | None = None
) -> tuple[float, float]:
    """(rtol, atol) for a torch dtype; what the test asks for wins where it is wider, or where it is asked for
    at all in full precision.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return (0.0, 0.0) if rtol is None and atol is None else (rtol or 0.0, atol or 0.0)
    base_r, base_a = TABLE.get(str(dtype).rpartition(".")[2], LOW)
    half = str(dtype).rpartition(".")[2] not in ("float32", "float64", "complex64", "complex128")
    if half:
        return max(base_r, rtol or 0.0), max(base_a, atol or 0.0)
    return base_r if rtol is None else rtol, base_a if atol is None else atol


def of_plain_numbers(rtol: float | None = None, atol: float | None = None) -> tuple[float, float]:
    """(rtol, atol) for Python's floats, NumPy's arrays and the printed script: what the test asks for, else
    the default.
    """
    return DEFAULT_RTOL if rtol is None else float(rtol), DEFAULT_ATOL if atol is None else float(atol)
