"""How far two results may be apart, by dtype: |a - b| <= atol + rtol * |b|.

Both sides usually run the same kernel and agree to the last bit; the numbers leave room for another
order of summation or another formula of the same function, a few hundred units in the last place.
"""

from __future__ import annotations

from typing import Any

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


def tolerance(dtype: Any, rtol: float | None = None, atol: float | None = None) -> tuple[float, float]:
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
