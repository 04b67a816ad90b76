"""The symbolic twin of a real tensor: a fake tensor of the same layout, without memory.

Memory shared between real tensors need not be shared by their twins.
"""

from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..errors import CaptureError
from .interfaces import RecordedTensor
from .results.meta_kernels import new_fake
from .results.sparse_results import of_any_rows


def twin_of(mode: FakeTensorMode, tensor: torch.Tensor) -> RecordedTensor:
    """Return a symbolic tensor like a real one."""
    if tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg()):
        layout, options = (tensor.shape, tensor.stride()), {"dtype": tensor.dtype}
        twin = new_fake(mode, tensor.device, torch.empty_strided, *layout, **options)
        return cast(RecordedTensor, twin)
    return of_any_rows(cast(RecordedTensor, mode.from_tensor(tensor, static_shapes=True)))


def twin_of_argument(mode: FakeTensorMode, tensor: torch.Tensor, layout: Any) -> RecordedTensor:
    """Return a symbolic tensor like an argument, of this (shape, strides) if some dimensions are symbols."""
    if layout is not None:
        with mode:
            twin = torch.empty_strided(*layout, dtype=tensor.dtype, device=tensor.device)
        return cast(RecordedTensor, twin)
    if tensor.is_inference():
        return twin_of(mode, tensor)
    twin = mode.from_tensor(without_marks(tensor), static_shapes=True)
    if twin is tensor:
        raise CaptureError(
            "build() was given a tensor of another capture", "Call the graph with ordinary tensors."
        )
    return of_any_rows(cast(RecordedTensor, twin.detach() if hasattr(twin, "_of_node") else twin))


def without_marks(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a global tensor as an ordinary tensor; another tensor without its history."""
    tensor = tensor.detach()
    return tensor.as_subclass(torch.Tensor) if hasattr(tensor, "_of_placement") else tensor
