"""What OneFlow's nn.Module has beyond torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._method import named_method

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


__all__ = ["make_contiguous_params_group", "to_memory_format", "load_state_dict"]


def make_contiguous_params_group(self: torch.nn.Module) -> torch.nn.Module:
    """Pack the parameters into shared buffers, one per dtype and device, kept as `cpg`; returns
    the module.
    """
    from ..optim.parameters_grouping import ContiguousParamsGroup  # not loaded by `import oneflow`

    group = ContiguousParamsGroup([list(self.parameters())], group_on_current_buffer=False)
    self.cpg = group  # type: ignore[assignment]
    return self


def to_memory_format(self: torch.nn.Module, memory_format: torch.memory_format) -> torch.nn.Module:
    """Lay out the 4-d (or, for channels_last_3d, 5-d) parameters and buffers in `memory_format`; returns the
    module.
    """
    return self.to(memory_format=memory_format)


def load_state_dict(original: Callable[..., Any]) -> Any:
    """torch's load_state_dict that takes numpy arrays as values too (torch reports an error for them)."""
    return named_method(original, _load, always=True)


def _load(
    original: Callable[..., Any],
    error: None,
    self: torch.nn.Module,
    state_dict: Mapping[str, Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    values = getattr(state_dict, "values", None)
    if values is not None and any(type(v).__module__ == "numpy" for v in values()):
        state_dict = _with_tensors(state_dict)
    return original(self, state_dict, *args, **kwargs)


def _with_tensors(state_dict: Any) -> Any:
    import numpy

    out = state_dict.copy() if hasattr(state_dict, "copy") else dict(state_dict)
    for name, value in out.items():
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            out[name] = torch.from_numpy(numpy.array(value))
    if hasattr(state_dict, "_metadata"):
        out._metadata = state_dict._metadata  # type: ignore[union-attr]
    return out
