"""Sampled tensors: each size is a choice, all values come from one seed, so that cases are cheap to sample
and to shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import config, source
from .generators import generator, pack, py_tuple, random

if TYPE_CHECKING:
    import torch


Size = int | generator | None  # None: sampled
Bound = float | generator | None


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
    """A torch tensor; missing sizes are sampled from 1 to 7, `ndim` from 1 to 5, values from [low, high) =
    [0, 1).
    """

    def __init__(
        self,
        ndim: Size = None,
        dim0: Size = 1,
        dim1: Size = None,
        dim2: Size = None,
        dim3: Size = None,
        dim4: Size = None,
        low: Bound = None,
        high: Bound = None,
        dtype: Any = float,
        pin_memory: bool | generator = False,
    ) -> None:
        self.ndim = pack(random(1, 6) if ndim is None else ndim).to(int)
        self.dims = [None if d is None else pack(d).to(int) for d in (dim0, dim1, dim2, dim3, dim4)]
        self.dtype, self.pin_memory = pack(dtype), pack(pin_memory)
        self.low, self.high = pack(low).to(float), pack(high).to(float)
        super().__init__([self.ndim, *self.dims, self.low, self.high, self.dtype, self.pin_memory])

    def shape(self) -> py_tuple:
        """Sample the sizes."""
        ndim = int(self.ndim.value())
        drawn = [None if d is None else d.value() for d in self.dims[:ndim]]
        drawn += [None] * (ndim - len(drawn))
        return py_tuple(self.choose.integer(1, 8) if d is None else int(d) for d in drawn)

    def _calc_value(self) -> torch.Tensor:
        import torch

        shape = self.shape()
        python_type, dtype = torch_dtype_of(self.dtype.value())
        low, high = self.low.value(), self.high.value()
        low = 0 if low is None else low
        high = (2 if python_type is bool else low + 1 if low >= 1 else 1) if high is None else high
        seed = self.choose.content_seed()
        if python_type in (float, complex) and high < low:
            raise ValueError(f"random_tensor: values are low <= x < high, found low={low} and high={high}")
        if python_type is complex:
            array = fill(shape, low, high, seed) + 1j * fill(shape, low, high, seed ^ 1)
        elif python_type is float:
            array = fill(shape, low, high, seed)
        else:
            array = fill(shape, int(low), max(int(high), int(low) + 1), seed, int)
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(dtype)
        if tensor.dim() != len(shape):
            tensor = tensor.reshape(shape)
        return tensor.pin_memory() if self.pin_memory.value() and torch.cuda.is_available() else tensor


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
