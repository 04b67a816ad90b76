"""Samplers: torch's; Sampler itself takes the data source, as subclasses written for OneFlow pass it."""

from __future__ import annotations

from typing import Any, TypeVar

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data import Sampler as _TorchSampler

from ..._bind import fall_through as _ft

_T_co = TypeVar("_T_co", covariant=True)

__all__ = ["Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "BatchSampler"]


class _SamplerType(type(_TorchSampler)):  # type: ignore[misc]
    """isinstance(sampler, oneflow...Sampler) holds for torch's samplers too."""

    def __instancecheck__(cls, obj: object) -> bool:
        return super().__instancecheck__(obj) or (cls is Sampler and isinstance(obj, _TorchSampler))

    def __subclasscheck__(cls, sub: type) -> bool:
        return super().__subclasscheck__(sub) or (cls is Sampler and issubclass(sub, _TorchSampler))


class Sampler(_TorchSampler[_T_co], metaclass=_SamplerType):
    """Base class of samplers; `super().__init__(data_source)` is accepted and the argument not kept."""

    def __init__(self, data_source: Any = None) -> None:
        pass


__getattr__, __dir__ = _ft(__name__, "torch.utils.data.sampler")
