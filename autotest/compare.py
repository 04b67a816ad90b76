"""Comparison of one result or gradient of the two sides; each check has its own message."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

from .errors import Mismatch
from .verdict import PLAIN, Names, Standard, Verdict, close, judge, of_plain_numbers, ulp_of

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .config import Options
    from .pair import CandidateTensor, Pair

SHOWN = 8  # rows of the difference table


def compare_values(
    pair: Pair,
    r: Any,
    c: Any,
    what: str,
    options: Options,
    names: Names | None = None,
    check_values: bool = True,
    standard: Standard = PLAIN,
) -> None:
    """Compare one result of the two sides: number and type, shape, dtype, values."""
    names = names or pair.names
    if pair.is_reference_tensor(r) and pair.is_candidate_tensor(c):
        compare_tensors(pair, r, c, what, options, names, check_values, standard)
    elif pair.is_reference_tensor(r) or pair.is_candidate_tensor(c) and not pair.is_reference_tensor(c):
        raise _different_types(pair, r, c, what, names)
    elif isinstance(r, (tuple, list, dict)):
        compare_containers(pair, r, c, what, options, names, check_values, standard)
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
    pair: Pair,
    r: Any,
    c: Any,
    what: str,
    options: Options,
    names: Names,
    check_values: bool,
    standard: Standard,
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
        element = f"{what}[{key!r}]"
        compare_values(pair, r[key], c[key], element, options, names, check_values, standard.at(key))


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


def compare_plain(
    r: Any, c: Any, what: str, options: Options, names: Names, check_values: bool = True
) -> None:
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
    standard: Standard = PLAIN,
) -> None:
    """Compare shape, dtype, device and values."""
    if tuple(r.shape) != tuple(c.shape):
        raise Mismatch(
            "shape", f"{what} has shape {tuple(r.shape)} in {names[0]} and {tuple(c.shape)} in {names[1]}"
        )
    a, b = pair.as_torch(r), pair.as_torch(c)
    if pair.dtypes.get(a.dtype) == b.dtype:
        b = b.to(a.dtype)
    if a.dtype != b.dtype and (options.check_dtype or is_exact(a.dtype) or is_exact(b.dtype)):
        raise Mismatch(
            "dtype", f"{what} has dtype {short(a.dtype)} in {names[0]} and {short(b.dtype)} in {names[1]}"
        )
    # the device of a global tensor is that of its placement
    if pair.shares_devices and not getattr(c, "is_global", False):
        compare_devices(a, b, what, names)
    if check_values:
        compare_numbers(a, b, what, options, names, "values", standard)


def compare_devices(a: torch.Tensor, b: torch.Tensor, what: str, names: Names) -> None:
    """Compare the device types of two torch tensors."""
    if a.device.type != b.device.type:
        raise Mismatch("device", f"{what} is on {a.device} in {names[0]} and on {b.device} in {names[1]}")


def compare_numbers(
    a: torch.Tensor,
    b: torch.Tensor,
    what: str,
    options: Options,
    names: Names,
    check: str,
    standard: Standard = PLAIN,
) -> None:
    """Compare the values of two torch tensors of one shape."""
    import torch

    if a.is_meta or b.is_meta:  # tensors without values
        return compare_devices(a, b, what, names)
    if a.device != b.device:
        a, b = a.cpu(), b.cpu()
    if a.is_sparse or a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.dtype == b.dtype and torch.equal(a, b):
        if standard.signs and a.is_floating_point():
            compare_signs(a, b, what, names)
        return
    verdict = judge(a, b, options, standard)
    if standard.bits:
        verdict.differs = ~close(a, b, 0.0, 0.0)
    if not verdict.differs.any():
        return
    error = Mismatch(check, f"{what} differs {verdict.head}\n{difference_table(a, b, names, verdict)}")
    error.distance, error.tolerance = (
        distance_of(a, b, verdict),
        {str(a.dtype): script_tolerance(a, b, verdict)},
    )
    raise error


def compare_signs(a: torch.Tensor, b: torch.Tensor, what: str, names: Names) -> None:
    """Compare the signs of the zeros of two equal float tensors."""
    import torch

    other = torch.signbit(a) != torch.signbit(b)
    if other.any():
        index = tuple(other.nonzero()[0].tolist())
        signs = ["-0.0" if torch.signbit(t[index]) else "0.0" for t in (a, b)]
        raise Mismatch(
            "sign of zero", f"{what} is {signs[0]} in {names[0]} and {signs[1]} in {names[1]} at {index}"
        )


def distance_of(a: torch.Tensor, b: torch.Tensor, verdict: Verdict) -> float:
    """Return how far the candidate is, in ULP: from the float64 value, or else from the reference."""
    import torch

    if verdict.ulp_candidate is not None:
        return float(verdict.ulp_candidate.flatten()[verdict.farthest].item())
    if is_exact(a.dtype):
        return float("inf")
    gap = (a.to(torch.complex128) - b.to(torch.complex128)).abs() / ulp_of(a.abs(), a.dtype)
    return float(torch.nan_to_num(gap, nan=float("inf"))[verdict.differs].max().item())


def script_tolerance(a: torch.Tensor, b: torch.Tensor, verdict: Verdict) -> tuple[float, float]:
    """Return (rtol, atol) by which the printed script, which has no float64 value, sees this difference."""
    import torch

    rtol, atol = verdict.rtol, verdict.atol
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    x, y = a.to(wide)[verdict.differs], b.to(wide)[verdict.differs]
    if (~close(x, y, rtol, atol)).any():
        return rtol, atol
    gap, size = (x - y).abs(), y.abs()
    relative = float((gap / size).max().item())
    return (0.0, 0.5 * float(gap.max().item())) if relative == float("inf") else (0.5 * relative, 0.0)


def difference_table(a: torch.Tensor, b: torch.Tensor, names: Names, verdict: Verdict) -> str:
    """Return the number of different elements, the largest distances, and the first few elements as text."""
    import torch

    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    gap = (x - y).abs()
    relative = gap / torch.maximum(x.abs(), y.abs())
    where = verdict.differs.nonzero().tolist()
    lines = [
        f"  {len(where)} of {a.numel()} elements differ, largest distance {largest(gap[verdict.differs])},"
        f" shape {tuple(a.shape)}, {short(a.dtype)}"
    ]
    lines += [f"  {line}" for line in (verdict.distances(names),) if line]
    inexact = not is_exact(a.dtype)
    ulps = gap / ulp_of(x.abs(), a.dtype) if inexact else gap
    lines.append(
        f"  {'index':<18} {names[0]:>18} {names[1]:>18} {'distance':>12}"
        + (f" {'relative':>10} {'ULP':>8}" if inexact else "")
    )
    for index in where[:SHOWN]:
        at = tuple(index)
        row = f"  {at!s:<18} {show(a[at]):>18} {show(b[at]):>18} {gap[at].item():>12.4g}"
        lines.append(row + (f" {relative[at].item():>10.2g} {ulps[at].item():>8.3g}" if inexact else ""))
    if len(where) > SHOWN:
        lines.append(f"  ... and {len(where) - SHOWN} more")
    return "\n".join(lines)


def largest(gap: torch.Tensor) -> str:
    """Return the largest distance as text: "nan" only if no distance is a number."""
    numbers_only = gap[gap == gap]
    return f"{numbers_only.max().item():.6g}" if numbers_only.numel() else "nan"


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
    r: torch.Tensor | None,
    c: CandidateTensor | None,
    what: str,
    options: Options,
    check_values: bool = True,
    standard: Standard = PLAIN,
) -> None:
    """Compare two gradients; no gradient and a gradient of zeros are equal."""
    names = pair.names
    if c is None and not pair.computes_gradients or r is None and c is None:
        return
    if r is None or c is None:
        there, missing = (c, names[0]) if r is None else (r, names[1])
        if pair.as_torch(there).count_nonzero().item():
            raise Mismatch(
                "gradient",
                f"{what} has no gradient in {missing}, and one that is not zero in"
                f" {names[1] if r is None else names[0]}",
            )
        return
    if tuple(r.shape) != tuple(c.shape):
        raise Mismatch(
            "gradient",
            f"the gradient of {what} has shape {tuple(r.shape)} in {names[0]} and {tuple(c.shape)} in"
            f" {names[1]}",
        )
    a, b = pair.as_torch(r), pair.as_torch(c)
    if options.check_dtype and not pair.have_same_dtype(a.dtype, b.dtype):
        raise Mismatch(
            "gradient",
            f"the gradient of {what} has dtype {short(a.dtype)} in {names[0]} and {short(b.dtype)} in"
            f" {names[1]}",
        )
    if check_values:
        compare_numbers(a, b, f"the gradient of {what}", options, names, "gradient", standard)
