"""Blobs that exist on the host only: records, undecoded images.

They turn into tensors when a job needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import context as _context
from . import devices as _devices
from .feeds import feed
from .update import outside_capture


class HostBlob:
    """A value computed on the host in each call, once per call however often it is used."""

    def __init__(self, trace: Any, compute: Callable[..., Any]) -> None:
        self.trace, self.compute = trace, compute
        self._tick, self._value = None, None
        self._dense: torch.Tensor | None = None

    def value(self) -> Any:
        if self._tick != self.trace.tick:
            self._value, self._tick = self.compute(), self.trace.tick
        return self._value

    def map(self, function: Any) -> HostBlob:
        return HostBlob(self.trace, lambda: function(self.value()))

    def dense(self) -> torch.Tensor:
        """Return the tensor of this call. Raise an error if the value is not a tensor (images of different
        sizes).
        """
        if self._dense is None:
            self._dense = feed(self.trace, lambda: as_tensor(self.value()), _device(self.trace))
        return self._dense

    shape = property(lambda self: self.dense().shape)
    dtype = property(lambda self: self.dense().dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.dense(), name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(
            *densify(args), **dict(zip(kwargs, densify(tuple(kwargs.values())))) if kwargs else {}
        )


for (
    _name
) in "add radd sub rsub mul rmul truediv rtruediv pow neg getitem eq ne lt le gt ge matmul mod".split():
    setattr(
        HostBlob,
        f"__{_name}__",
        (lambda op: lambda self, *a: getattr(self.dense(), op)(*densify(a)))(f"__{_name}__"),
    )


def densify(value: Any) -> Any:
    """Nested value with every HostBlob replaced by its tensor."""
    if isinstance(value, HostBlob):
        return value.dense()
    if type(value) in (tuple, list):
        return type(value)(densify(v) for v in value)
    return value


def as_tensor(value: torch.Tensor) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    items = list(value)
    shapes = {tuple(i.shape) for i in items}
    if len(shapes) != 1:
        raise ValueError(
            f"images of different sizes {sorted(shapes)} cannot be one blob: resize or align them first"
        )
    return torch.stack([torch.as_tensor(i) for i in items])


def _device(trace: Any) -> torch.device:
    return _devices.current(trace.job)


def source(what: str, factory: Callable[..., Any]) -> HostBlob:
    """Return a HostBlob fed by `factory()()`.

    The reader is created once per job and call site. It continues from call to call.
    """
    trace = _context.require_trace(what)
    key = ("source", trace.sources)
    trace.sources += 1
    pipeline = trace.job.pipeline
    if key not in pipeline:
        with outside_capture(trace):
            pipeline[key] = factory()
    reader, pending = pipeline[key], trace.job.pending

    def compute() -> Any:
        return pending.pop(key) if key in pending else reader()

    blob = HostBlob(trace, compute)
    trace.readers[key] = blob
    return blob


def module(what: str, factory: Callable[..., Any]) -> Any:
    """Return an operator object, created once per job and call site; it may hold a random state."""
    trace = _context.require_trace(what)
    key = ("module", trace.sources)
    trace.sources += 1
    if key not in trace.job.pipeline:
        trace.job.pipeline[key] = factory()
    return trace.job.pipeline[key]


def today(name: str) -> Any:
    """Return a class of today's oneflow.nn, by dotted name ("OFRecordReader", "image.Resize")."""
    import importlib

    module_or_class = importlib.import_module(__package__.split(".")[0] + ".nn")
    for part in name.split("."):
        module_or_class = getattr(module_or_class, part)
    return module_or_class


def need_host(blob: HostBlob | torch.Tensor, what: str) -> HostBlob:
    if not isinstance(blob, HostBlob):
        raise TypeError(
            f"{what} takes the records of a reader (flow.data.ofrecord_reader), found {type(blob).__name__}"
        )
    return blob
