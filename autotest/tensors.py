"""Sampled tensors: each size is a choice, all values come from one seed, so that cases are cheap to sample
and to shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import case as cases
from . import config, source
from .generators import constant, generator, pack, py_tuple, random
from .verdict import SAME_KERNELS

if TYPE_CHECKING:
    import torch


Size = int | generator | None  # None: sampled
Bound = float | generator | None
# OneFlow's default for dim0 is 1. Without like="oneflow", one size is sampled for all tensors of a case.
DEFAULT_DIM0 = constant(1)
LONG = 33  # longer by one than a vector register of 4 x 8 floats


def fill(shape: tuple[int, ...], low: float, high: float, seed: int, dtype: type = float) -> np.ndarray:
    """Return the array of this shape for a seed: simple fillings for small seeds, otherwise uniform in [low,
    high).

    Seed 0 gives zeros, 1 ones (or the nearest value within the bounds), 2 and 3 other constants, 4 to 7
    counting values. Hypothesis shrinks to these.
    """
    if seed >= source.SIMPLE:
        rng = np.random.default_rng(seed)
        if dtype is int:
            return rng.integers(int(low), int(high), size=shape, dtype=np.int64)
        return rng.uniform(low, high, size=shape)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype is int:
        low, span = int(low), max(int(high) - int(low), 1)
        start = (0, 1, 2, span - 1, 0, 1, 0, 1)[seed] - (low if seed < 3 else 0)
        start = min(max(start, 0), span - 1)
        step = (0, 0, 0, 0, 1, 1, 2, 3)[seed]
        return (low + (start + step * np.arange(count, dtype=np.int64)) % span).reshape(shape)
    if high <= low:
        return np.full(shape, float(low))
    if seed < 4:
        value = (0.0, 1.0, low + 0.9 * (high - low), low + 0.1 * (high - low))[seed]
        return np.full(shape, value if low <= value < high else low + 0.5 * seed * (high - low))
    parts, start = (4, 4, 8, 8)[seed - 4], (0, 3, 1, 7)[seed - 4]
    return (low + (high - low) * ((start + np.arange(count)) % parts + 0.5) / parts).reshape(shape)


def torch_dtype_of(dtype: object) -> tuple[type, torch.dtype]:
    """Return (Python type, torch dtype) of float, int, bool, complex, a NumPy or a torch dtype."""
    import torch

    simple = {
        float: (float, torch.float32),
        int: (int, torch.int64),
        bool: (bool, torch.bool),
        complex: (complex, torch.complex64),
    }
    if dtype in simple:
        return simple[dtype]
    if not isinstance(dtype, torch.dtype):
        try:
            dtype = torch.from_numpy(np.empty(0, dtype=dtype)).dtype
        except TypeError:
            raise NotImplementedError(
                f"random_tensor(dtype={dtype!r}): give float, int, bool, complex or a dtype"
            ) from None
    if dtype == torch.bool:
        return bool, dtype
    return (complex if dtype.is_complex else float if dtype.is_floating_point else int), dtype


class random_pytorch_tensor(generator):
    """A torch tensor whose missing sizes, values and dtype are sampled.

    In a case of like="oneflow", and outside a case, missing sizes are 1 to 7, dim0 is 1, values are [0, 1)
    and float32. Otherwise sizes may be 0 and 33, a missing ndim may be 0, and values without bounds are of
    any sign and size, with ties, ones and both zeros. Float tensors have the dtype of the case. A candidate
    that is another implementation gets no size of 0 and no dtype but float32 unless the test asks for it.
    special: some elements are inf, nan, denormal or the largest number of the dtype.
    """

    def __init__(
        self,
        ndim: Size = None,
        dim0: Size = DEFAULT_DIM0,
        dim1: Size = None,
        dim2: Size = None,
        dim3: Size = None,
        dim4: Size = None,
        low: Bound = None,
        high: Bound = None,
        dtype: Any = float,
        pin_memory: bool | generator = False,
        special: bool | generator = False,
    ) -> None:
        self.has_free_form = ndim is None and all(d is None for d in (dim1, dim2, dim3, dim4))
        self.has_default_dim0 = dim0 is DEFAULT_DIM0
        self.ndim = pack(random(1, 6) if ndim is None else ndim).to(int)
        self.dims = [None if d is None else pack(d).to(int) for d in (dim0, dim1, dim2, dim3, dim4)]
        self.dtype, self.pin_memory, self.special = pack(dtype), pack(pin_memory), pack(special).to(bool)
        self.low, self.high = pack(low).to(float), pack(high).to(float)
        super().__init__(
            [self.ndim, *self.dims, self.low, self.high, self.dtype, self.pin_memory, self.special]
        )

    def shape(self) -> py_tuple:
        """Sample the sizes."""
        case = cases.breaking()
        if case is None:
            ndim = int(self.ndim.value())
            drawn = self._named_sizes(self.dims, ndim)
            return py_tuple(self.choose.integer(1, 8) if d is None else int(d) for d in drawn)
        if self.has_free_form and self.has_default_dim0 and self.choose.integer(0, 8) == 7:
            return ()
        ndim = int(self.ndim.value())
        drawn = self._named_sizes([None, *self.dims[1:]] if self.has_default_dim0 else self.dims, ndim)
        if drawn and drawn[0] is None and self.has_default_dim0:
            case.batch = self._size(ndim) if case.batch is None else case.batch
            drawn[0] = case.batch
        return py_tuple(self._size(ndim) if d is None else int(d) for d in drawn)

    @staticmethod
    def _named_sizes(dims: list[Any], ndim: int) -> list[Any]:
        """Sample the sizes that the caller of random_tensor() named; None for the others."""
        drawn = [None if d is None else d.value() for d in dims[:ndim]]
        return drawn + [None] * (ndim - len(drawn))

    def _size(self, ndim: int) -> int:
        """Sample one size: 0 and, of few dimensions, more than a vector among them."""
        unusual = self.choose.integer(0, 24)
        case = cases.current()
        if unusual == 22 and case is not None and case.pair.level == SAME_KERNELS:
            return 0
        if unusual == 23 and ndim <= 2:
            return LONG
        return self.choose.integer(1, 8)

    def _content(self, case: cases.Case | None) -> tuple[int, int]:
        """Sample (seed, spread) of the values; one tensor of twelve has the values of the one before it."""
        if case is None:
            return self.choose.content_seed(), 0
        kind = self.choose.integer(0, 12)
        if kind != 11 or case.content is None:
            spread = self.choose.integer(0, SPREADS)
            is_simple = kind < 2
            seed = self.choose.integer(0, source.SIMPLE) if is_simple else self.choose.content_seed()
            case.content = seed, spread
        return case.content

    def _calc_value(self) -> torch.Tensor:
        import torch

        shape = self.shape()
        case = cases.breaking()
        python_type, dtype = torch_dtype_of(self.dtype.value())
        if case is not None and case.dtype is not None and self.dtype.value() is float:
            dtype = case.dtype
        array, seed = self._array(shape, python_type, case)
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(dtype)
        if tensor.dim() != len(shape):
            tensor = tensor.reshape(shape)
        if self.special.value():
            put_special_values(tensor, seed)
        return tensor.pin_memory() if self.pin_memory.value() and torch.cuda.is_available() else tensor

    def _array(
        self, shape: py_tuple, python_type: type, case: cases.Case | None
    ) -> py_tuple[np.ndarray, int]:
        """Sample the values, and return them with their seed."""
        low, high = self.low.value(), self.high.value()
        is_free = case is not None and low is None and high is None and python_type is not bool
        low = 0 if low is None else low
        high = (2 if python_type is bool else low + 1 if low >= 1 else 1) if high is None else high
        seed, spread = self._content(case)
        if python_type in (float, complex) and high < low:
            raise ValueError(f"random_tensor: values are low <= x < high, found low={low} and high={high}")
        if python_type is complex:
            return fill(shape, low, high, seed) + 1j * fill(shape, low, high, seed ^ 1), seed
        if python_type is float:
            return varied(shape, low, high, seed, spread, is_free), seed
        if is_free:
            low, high = (0, 1, -4, -4)[spread % 4], (5, 2, 5, 5)[spread % 4]
        return fill(shape, int(low), max(int(high), int(low) + 1), seed, int), seed


SPREADS = 8  # how the values of a tensor are spread, see `varied`


def varied(
    shape: tuple[int, ...], low: float, high: float, seed: int, spread: int, is_free: bool
) -> np.ndarray:
    """Return float values for a seed: within the bounds, or without bounds spread in one of several ways.

    Without bounds: 0 is [0, 1), then [-2, 2) and [-8, 8), halves between -3 and 3 with both zeros, and
    magnitudes from 1e-4 to 1e3. With bounds, one spread in eight gives ties.
    """
    if not is_free:
        array = fill(shape, low, high, seed)
        if spread < SPREADS - 1 or high <= low or seed < source.SIMPLE:
            return array
        return low + np.floor((array - low) / (high - low) * 4) * (high - low) / 4
    if seed < source.SIMPLE:
        return fill(shape, 0 if spread < 4 else -1.5, 1.5, seed)
    rng = np.random.default_rng(seed)
    if spread < 4:
        low, high = ((0, 1), (-2, 2), (-2, 2), (-8, 8))[spread]
        return rng.uniform(low, high, size=shape)
    signs = rng.choice([-1.0, 1.0], size=shape)
    if spread < 6:
        return signs * rng.integers(0, 7, size=shape) / 2
    return signs * 10 ** rng.uniform(-4, 3, size=shape) * (rng.uniform(size=shape) > 0.1)


def put_special_values(tensor: torch.Tensor, seed: int) -> None:
    """Write inf, nan, zeros, denormals and the extremes of the dtype into about half of the elements."""
    import torch

    if tensor.numel() == 0 or tensor.dtype == torch.bool or tensor.is_complex():
        return
    if tensor.is_floating_point():
        info = torch.finfo(tensor.dtype)
        tiny = info.smallest_normal
        values = [float("inf"), -float("inf"), float("nan"), -0.0, tiny, -tiny / 4, info.max, info.min]
    else:
        limits = torch.iinfo(tensor.dtype)
        values = [limits.max, limits.min, 0]
    rng = np.random.default_rng((seed, 1))
    flat = tensor.view(-1)
    for i in np.flatnonzero(rng.uniform(size=tensor.numel()) < 0.5):
        flat[int(i)] = values[int(rng.integers(0, len(values)))]


# ---------------------------------------------------------------------- strides
LAYOUTS = ("transposed", "sliced", "offset", "expanded", "channels last")


def sampled_strides(shape: tuple[int, ...], choose: source.Source) -> tuple[py_tuple, int] | None:
    """Sample (strides, offset) of a tensor; None is contiguous, three times of eight."""
    choice = choose.integer(0, len(LAYOUTS) + 3) - 3
    if choice < 0 or not shape or 0 in shape:
        return None
    return strides_of(LAYOUTS[choice], shape)


def strides_of(layout: str, shape: tuple[int, ...]) -> tuple[py_tuple, int] | None:
    """Return (strides, offset) of a layout, or None if this shape has no such layout."""
    dense = contiguous_strides(shape)
    if layout == "offset":
        return dense, 3
    if layout == "sliced":
        return py_tuple(2 * s for s in contiguous_strides([2 * n for n in shape])), 1
    if layout == "expanded":
        return (0, *dense[1:]), 0
    if layout == "channels last" and len(shape) in (4, 5):
        order = [0, *range(2, len(shape)), 1]
    elif len(shape) >= 2:
        order = [*reversed(range(len(shape)))]
    else:
        return None
    strides = [0] * len(shape)
    for dim, stride in zip(order, contiguous_strides([shape[d] for d in order])):
        strides[dim] = stride
    return py_tuple(strides), 0


def contiguous_strides(shape: Sequence[int]) -> py_tuple:
    strides, size = [1] * len(shape), 1
    for dim in reversed(range(len(shape))):
        strides[dim], size = size, size * shape[dim]
    return py_tuple(strides)


def with_strides(tensor: torch.Tensor, strides: py_tuple, offset: int) -> torch.Tensor:
    """Return a copy with these strides; along a stride of 0 it repeats the first element."""
    size = 1 + offset + sum((n - 1) * s for n, s in zip(tensor.shape, strides))
    repeated = [dim for dim, stride in enumerate(strides) if stride == 0]
    first = tensor.detach()
    for dim in repeated:
        first = first.narrow(dim, 0, 1)
    copy = tensor.detach().new_zeros(size)
    copy.as_strided(first.shape, strides, offset).copy_(first)
    return copy.as_strided(tensor.shape, strides, offset)


class choice_pytorch_tensor(generator):
    """A torch tensor of elements of `a`, drawn as numpy.random.choice draws them."""

    def __init__(
        self, a: Any, size: Any = None, replace: Any = True, p: Any = None, dtype: Any = int
    ) -> None:
        self.a, self.size_, self.replace, self.p, self.dtype = (pack(x) for x in (a, size, replace, p, dtype))
        super().__init__([self.a, self.size_, self.replace, self.p, self.dtype])

    def _calc_value(self) -> torch.Tensor:
        import torch

        rng = np.random.RandomState(self.choose.content_seed())
        size = self.size_.value()
        if isinstance(size, (list, py_tuple)):
            size = py_tuple(pack(s).value() for s in size)
        array = np.asarray(rng.choice(self.a.value(), size, self.replace.value(), self.p.value()))
        dtype = self.dtype.value()
        if isinstance(dtype, torch.dtype):
            return torch.from_numpy(array).to(dtype)
        return torch.tensor(array.astype(dtype))


class random_device(generator):
    """ "cuda" or "cpu"; only "cpu" without a CUDA device or with ONEFLOW_TEST_CPU_ONLY set."""

    def __init__(self) -> None:
        super().__init__([])

    def _calc_value(self) -> str:
        choices = devices()
        return choices[self.choose.integer(0, len(choices))]


def devices() -> list[str]:
    """Return the device types that a test may use."""
    import torch

    return (
        ["cpu"]
        if config.is_set("ONEFLOW_TEST_CPU_ONLY") or not torch.cuda.is_available()
        else ["cpu", "cuda"]
    )


class cpu_device(generator):
    def __init__(self) -> None:
        super().__init__([])

    def _calc_value(self) -> str:
        return "cpu"


class gpu_device(generator):
    """ "cuda"; the test is skipped without a CUDA device."""

    def __init__(self) -> None:
        super().__init__([])

    def _calc_value(self) -> str:
        if "cuda" not in devices():
            import unittest

            raise unittest.SkipTest("gpu_device(): no CUDA device here, or ONEFLOW_TEST_CPU_ONLY is set")
        return "cuda"


def _dtype_families() -> dict[str, list[torch.dtype | None]]:
    import torch as t

    signed: list[t.dtype | None] = [t.int8, t.int32, t.int64]
    unsigned: list[t.dtype | None] = [t.uint8]
    floating: list[t.dtype | None] = [t.float32, t.float64]
    return {
        "None": [None],
        "bool": [t.bool],
        "floating": floating,
        "half": [t.float16],
        "bfloat16": [t.bfloat16],
        "complex": [t.complex64, t.complex128],
        "int": signed,
        "signed": signed,
        "signed_int": signed,
        "unsigned": unsigned,
        "unsigned_int": unsigned,
        "image": [t.uint8, t.float32],
        "index": [t.int32, t.int64],
        "arithmetic": floating + signed,
        "pod": floating + signed + unsigned + [t.bool],
        "all": floating + signed + unsigned + [t.bool, t.float16, t.bfloat16],
    }


class _family:
    """random_pytorch_dtype.<name>_dtype_seq: the torch dtypes of a family, looked up at use."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def __get__(
        self, instance: object, owner: type
    ) -> list[torch.dtype | None] | dict[str, list[torch.dtype | None]]:
        families = _dtype_families()
        return families if self.name is None else families[self.name]


class random_pytorch_dtype(generator):
    """A torch dtype out of the named families: "arithmetic", "half", "index", "None" ...

    ValueError for an unknown family.
    """

    none_dtype_seq, bool_dtype_seq, floating_dtype_seq = _family("None"), _family("bool"), _family("floating")
    half_dtype_seq, bfloat16_dtype_seq, complex_dtype_seq = (
        _family("half"),
        _family("bfloat16"),
        _family("complex"),
    )
    int_dtype_seq, signed_int_dtype_seq, unsigned_int_dtype_seq = (
        _family("int"),
        _family("signed_int"),
        _family("unsigned_int"),
    )
    image_dtype_seq, index_dtype_seq, arithmetic_dtype_seq = (
        _family("image"),
        _family("index"),
        _family("arithmetic"),
    )
    pod_dtype_seq, all_dtype_seq, seq_name_to_seq = _family("pod"), _family("all"), _family()

    def __init__(self, seq_names: Sequence[str]) -> None:
        super().__init__([])
        names = [seq_names] if isinstance(seq_names, str) else list(seq_names)
        families = _dtype_families()
        unknown = [n for n in names if n not in families]
        if unknown:
            raise ValueError(f"random_dtype: unknown families {unknown}; known are {sorted(families)}")
        self.choices = list(dict.fromkeys(d for n in names for d in families[n]))

    def _calc_value(self) -> torch.dtype | None:
        return self.choices[self.choose.integer(0, len(self.choices))]


__all__ = [
    "random_pytorch_tensor",
    "choice_pytorch_tensor",
    "random_pytorch_dtype",
    "random_device",
    "cpu_device",
    "gpu_device",
]
