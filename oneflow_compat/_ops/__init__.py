"""Functions that differ from torch's, by subject. Programs that look for torch._ops here find its names."""

from .._bind import fall_through as _ft

__getattr__, __dir__ = _ft(__name__, "torch._ops")
