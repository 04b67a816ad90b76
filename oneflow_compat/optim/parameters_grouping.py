"""Parameters packed side by side in one buffer per dtype and device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


__all__ = ["ContiguousParamsGroup", "numel_in_bucket"]

ALIGN_BYTES = 16  # each parameter starts at a multiple of this, so that vector loads stay aligned


def numel_in_bucket(tensor: torch.Tensor) -> int:
    """Return the number of elements of a packed buffer that `tensor` takes, padding included."""
    unit = max(1, ALIGN_BYTES // tensor.element_size())
    return (tensor.numel() + unit - 1) // unit * unit


class ContiguousParamsGroup:
    """Move the parameters of each list in `params_group_list` into one flat buffer per dtype and device.

    The parameters keep identity, shape and values; their storage (and that of their gradients) becomes a view
    of `grouped_parameters[i]` (of `grouped_parameters_grad[i]`). A parameter without a gradient gets a zero
    one. With `group_on_current_buffer=True`, parameters that already lie in one buffer stay where they are.
    Needs dense parameters; only those that require grad are packed.

    TypeError for anything but a list of lists of tensors.
    """

    def __init__(
        self, params_group_list: Iterable[Iterable[torch.Tensor]], group_on_current_buffer: bool = True
    ) -> None:
        groups = [list(group) for group in params_group_list]
        for group in groups:
            for p in group:
                if not isinstance(p, torch.Tensor):
                    raise TypeError(
                        "ContiguousParamsGroup: params_group_list is a list of lists of tensors, found a"
                        f" {type(p).__name__}"
                    )
        self._data, self._grad = [], []
        for group in groups:
            for bucket in _buckets(group).values():
                present = _present_buffers(bucket) if group_on_current_buffer else None
                data, grad = present or _pack(bucket)
                self._data.append(data)
                self._grad.append(grad)

    @property
    def grouped_parameters(self) -> list[torch.Tensor]:
        """The flat buffers that hold the parameters."""
        return self._data

    @property
    def grouped_parameters_grad(self) -> list[torch.Tensor]:
        """The flat buffers that hold their gradients."""
        return self._grad


def _buckets(group: Iterable[torch.Tensor]) -> dict[Any, list[torch.Tensor]]:
    buckets: dict[Any, list[torch.Tensor]] = {}
    seen = set()
    for p in group:
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            buckets.setdefault((p.dtype, p.device), []).append(p)
    return buckets


def _pack(bucket: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    total = sum(numel_in_bucket(p) for p in bucket)
    data, grad = (
        bucket[0].new_zeros(total, requires_grad=False),
        bucket[0].new_zeros(total, requires_grad=False),
    )
    start = 0
    for p in bucket:
        for buffer, source in ((data, p.detach()), (grad, p.grad)):
            view = buffer[start : start + p.numel()].view(p.shape)
            if source is not None:
                view.copy_(source)
            if buffer is data:
                p.data = view
            else:
                p.grad = view
        start += numel_in_bucket(p)
    return data, grad


def _present_buffers(bucket: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(data, grad) if the bucket's parameters, in order, already are packed views of one storage each."""
    if any(p.grad is None for p in bucket):
        return None
    data, grad = _flat([p.detach() for p in bucket]), _flat([p.grad for p in bucket if p.grad is not None])
    return None if data is None or grad is None else (data, grad)


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The one buffer in which the tensors lie packed in this order, or None."""
    storage, begin = tensors[0].untyped_storage(), tensors[0].storage_offset()
    start = begin
    for t in tensors:
        if (
            not t.is_contiguous()
            or t.untyped_storage().data_ptr() != storage.data_ptr()
            or t.storage_offset() != start
        ):
            return None
        start += numel_in_bucket(t)
    if storage.nbytes() < start * tensors[0].element_size():
        return None
    return tensors[0].as_strided((start - begin,), (1,), begin)


def packed_data(params: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The flat buffers of parameters that a ContiguousParamsGroup has packed; an error if they
    lie apart now.
    """
    buffers = [_flat([p.detach() for p in bucket]) for bucket in _buckets(params).values()]
    packed = [buffer for buffer in buffers if buffer is not None]
    if len(packed) < len(buffers):
        raise RuntimeError(
            "the parameters no longer lie in one buffer (were they moved or cast since?); make a new"
            " ContiguousParamsGroup of them"
        )
    return packed
