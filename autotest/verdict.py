"""Whether two results agree: by a tolerance, or by their distances from the float64 value.

A distance from the float64 value is counted in ULP, units in the last place of that value in the narrowest
dtype on the way to the result. The candidate may be `FLOOR` ULP away, or `FACTOR` times as far as the
reference, or `FACTOR` times as far as the program carries half a unit of its inputs and of the terms of its
sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .config import Options

Names = tuple[str, str]  # names of the two sides
SAME_KERNELS, OTHER_IMPLEMENTATION = "same kernels", "other implementation"
LEVELS = (SAME_KERNELS, OTHER_IMPLEMENTATION)
# Elements whose inputs carry more than QUIET ULP say nothing of the reference's own accuracy.
QUIET = 8
# {bytes of a number: units}. A kernel for half types computes in float32 and rounds once. Another order of
# summation moves that rounding.
FLOOR = {SAME_KERNELS: {2: 1, 4: 2, 8: 8}, OTHER_IMPLEMENTATION: {2: 16, 4: 16, 8: 32}}
# An intermediate result may be FLOOR units away. The perturbed runs carry half a unit.
FACTOR = {
    SAME_KERNELS: {size: 2 * units for size, units in FLOOR[SAME_KERNELS].items()},
    OTHER_IMPLEMENTATION: {2: 16, 4: 16, 8: 16},
}


# (the float64 value, then the perturbed ones), or None if the program cannot run again
Truth = Callable[[], "tuple[Any, ...] | None"]


def narrowest(dtypes: list[torch.dtype]) -> torch.dtype | None:
    import torch

    inexact = [d for d in dtypes if d.is_floating_point or d.is_complex]
    return max(inexact, key=lambda d: torch.finfo(d).eps, default=None)


def bytes_of_number(dtype: torch.dtype) -> int:
    """Return the bytes of a real number, or of the real part of a complex one."""
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize


def no_dtype() -> torch.dtype | None:
    return None


@dataclass(frozen=True)
class Standard:
    """How one comparison is judged.

    level: see the docs. truth: the float64 value. on_the_way: the narrowest dtype before the result.
    bits: every bit must agree. signs: the sign of zero must agree.
    """

    level: str = OTHER_IMPLEMENTATION
    truth: Truth | None = None
    on_the_way: Callable[[], torch.dtype | None] = no_dtype
    bits: bool = False
    signs: bool = False

    def at(self, key: Any) -> Standard:
        """Return the standard of one element of a container."""
        truth = self.truth
        if truth is None:
            return self

        def element() -> tuple[Any, ...] | None:
            values = truth()
            return None if values is None else tuple(v[key] for v in values)

        return Standard(self.level, element, self.on_the_way, self.bits, self.signs)


PLAIN = Standard()


@dataclass
class Verdict:
    """`differs`: which elements differ. The ULP distances are None without a float64 value."""

    differs: torch.Tensor
    rtol: float
    atol: float
    ulp_reference: torch.Tensor | None = None
    ulp_candidate: torch.Tensor | None = None
    allowed: torch.Tensor | None = None
    unit: torch.dtype | None = None
    is_inside: bool = False  # each element is inside the tolerance

    @property
    def head(self) -> str:
        tolerances = f"rtol={self.rtol:g}, atol={self.atol:g}"
        return (
            f"(inside {tolerances}, but far from the float64 value)" if self.is_inside else f"({tolerances})"
        )

    @property
    def farthest(self) -> int:
        """Return the flat index of the element that differs most."""
        assert self.ulp_candidate is not None
        return int(self.ulp_candidate.where(self.differs, -1.0).flatten().argmax())

    def distances(self, names: Names) -> str:
        """Return the largest ULP distance of the candidate among the elements that differ, as text."""
        if self.ulp_candidate is None or self.ulp_reference is None or self.allowed is None:
            return ""
        far, unit = self.farthest, str(self.unit).rpartition(".")[2]
        c, r, most = (t.flatten()[far].item() for t in (self.ulp_candidate, self.ulp_reference, self.allowed))
        index = _index(far, tuple(self.differs.shape))
        return (
            f"{names[1]} is {c:.3g} ULP of {unit} from the float64 value, {names[0]} {r:.2g} ULP, at {index};"
            f" {most:.3g} ULP are allowed"
        )


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, i = divmod(flat, size)
        index.insert(0, i)
    return tuple(index)


def judge(a: torch.Tensor, b: torch.Tensor, options: Options, standard: Standard) -> Verdict:
    """Compare two dense tensors of one shape on one device that are not equal."""
    import torch

    unit = narrowest([d for d in (a.dtype, b.dtype, standard.on_the_way()) if d is not None])
    rtol, atol = tolerance(unit or a.dtype, options.rtol, options.atol)
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    if unit is None:
        wide = torch.promote_types(a.dtype, b.dtype)
        wide = torch.int64 if wide == torch.bool else wide
    x, y = a.to(wide), b.to(wide)
    outside = ~close(x, y, rtol, atol)
    own_tolerance = options.rtol is not None or options.atol is not None
    truth = standard.truth() if standard.truth and unit is not None and not own_tolerance else None
    if truth is None or not _usable(truth, a):
        return Verdict(outside, rtol, atol)
    assert unit is not None
    return _verdict_by_ulp(x, y, [w.detach().to(wide) for w in truth], outside, unit, standard.level)


def _usable(truth: tuple[Any, ...], a: torch.Tensor) -> bool:
    return all(
        hasattr(w, "detach") and w.shape == a.shape and w.dtype.itemsize >= 8 and w.layout == a.layout
        for w in truth
    )


def _verdict_by_ulp(
    x: torch.Tensor,
    y: torch.Tensor,
    truth: list[torch.Tensor],
    outside: torch.Tensor,
    unit: torch.dtype,
    level: str,
) -> Verdict:
    import torch

    exact, *moved = truth
    number_bytes = bytes_of_number(unit)
    if number_bytes == 8:
        exact = x  # no wider dtype exists
    ulp = ulp_of(exact, unit)
    if number_bytes == 8:
        # Vectorized kernels flush denormal numbers to zero. Units of them would overflow, too.
        ulp = ulp.clamp(min=torch.finfo(unit).tiny)
    # Overflow is a matter of the dtype: the float64 value says nothing of it.
    is_in_range = torch.isfinite(y) & torch.isfinite(exact) & (exact.abs() < torch.finfo(unit).max)
    judged = is_in_range & torch.isfinite(x)
    of_reference, of_candidate = ((t - exact).abs() / ulp for t in (x, y))
    carried = torch.stack([torch.nan_to_num((w - exact).abs() / ulp, posinf=0.0) for w in moved]).amax(0)
    # A value of the reference without one right digit is noise, whose size is absolute.
    errors = (x - exact).abs()
    is_noise = errors > exact.abs()
    floor = errors.where(judged & is_noise, 0.0).max() / ulp
    worst = of_reference.where(judged & ~is_noise & (carried <= QUIET), 0.0).max()
    # Elements that cancel have noise of about one size beside what their inputs carry.
    cancels = judged & ~is_noise & (carried > QUIET)
    noise = carried.where(cancels, 0.0) * (of_reference / carried).where(cancels, 0.0).max()
    allowed = torch.stack([worst.expand_as(carried), carried - 0.5, of_reference, noise, floor]).amax(0)
    always = always_allowed(exact.abs() * torch.finfo(unit).eps / ulp, FLOOR[level][number_bytes])
    allowed = torch.maximum(allowed * FACTOR[level][number_bytes], always)
    beyond = of_candidate > allowed
    if level == OTHER_IMPLEMENTATION:
        beyond &= outside
        # the reference overflowed on the way to a value that the candidate has
        outside &= ~is_in_range | (of_candidate > FLOOR[level][number_bytes])
        outside &= y != exact.to(unit).to(y.dtype)  # the value overflows, and the reference is nan
    differs = torch.where(judged, beyond, outside)
    is_inside = not bool((differs & outside).any())
    return Verdict(differs, *tolerance(unit), of_reference, of_candidate, allowed, unit, is_inside)


def always_allowed(size: torch.Tensor, floor: float) -> torch.Tensor:
    """Return the ULP that each element of the candidate may be away from the float64 value.

    size: the value as a multiple of a power of two, 1 to 2. The last rounding makes half a unit. The rest of
    the floor is the error of an intermediate result, relative to its size.
    """
    return 0.5 + (floor - 0.5) * size.clamp(min=1.0)


def ulp_of(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the distance of neighbors of `dtype` at each value: 2**-23 for 1.5 in float32."""
    import torch

    info = torch.finfo(dtype)
    exponent = torch.frexp(x.abs().clamp(min=info.tiny).to(torch.float64))[1]
    return torch.exp2((exponent - 1).to(torch.float64)) * info.eps


def close(x: torch.Tensor, y: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    """Return which elements are equal, both NaN, or finite with |x - y| <= atol + rtol * |y|."""
    import torch

    equal = x == y
    if not (x.is_floating_point() or x.is_complex()):
        return equal if rtol == atol == 0 else (x - y).abs() <= atol + rtol * y.abs()
    near = ((x - y).abs() <= atol + rtol * y.abs()) & torch.isfinite(x) & torch.isfinite(y)
    return equal | near | (torch.isnan(x) & torch.isnan(y))


# ------------------------------- How far two results may be apart, by dtype: |a - b| <= atol + rtol * |b|
# The tolerance judges where no float64 value is known. It leaves room for another order of summation or
# another formula of the same function, a few hundred units in the last place.

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
