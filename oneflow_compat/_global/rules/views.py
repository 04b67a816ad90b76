"""Views of global tensors that have other memory than what they view: DTensor moves what is split where the
view needs it whole.

Such a view knows what it was made of. What is written into it is written there, and what is written there is
read from it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..dtensor import GlobalDTensor, _mine, _part


class Origin(NamedTuple):
    """`view` of a plain tensor of all of `base`, as it was when autograd counted `version` writes."""

    base: GlobalDTensor
    view: object
    version: int


def remember(func, args, kwargs, out):
    """Note in the results of a view function what they are copies of."""
    base = args[0]
    if not isinstance(base, GlobalDTensor) or not _mine(base.device_mesh) or base.is_inference():
        return
    several = isinstance(out, (list, tuple))
    for i, copy in enumerate(out if several else [out]):
        if copy is not base and (base._origin is not None or not _share_memory(copy, base)):
            view = (
                (lambda full, i=i: func(full, *args[1:], **kwargs)[i])
                if several
                else lambda full: func(full, *args[1:], **kwargs)
            )
            copy._origin = Origin(base, view, base._version)


def _share_memory(a, b) -> bool:
    return a._local_tensor.untyped_storage()._cdata == b._local_tensor.untyped_storage()._cdata


def write_through(copy):
    """What the copy holds, in what it views."""
    origin = copy._origin
    if origin is not None:
        full = _all_of(origin.base)
        origin.view(full).copy_(copy._own.full_tensor())
        _fill(origin.base, full)
        write_through(origin.base)


def refresh(copy):
    """What the copy views was written since: take it from there."""
    origin = copy._origin
    if copy._version != origin.version:
        copy._origin = origin._replace(version=copy._version)
        with torch.no_grad():
            _fill(copy, origin.view(_all_of(origin.base)))


def _all_of(base):
    full = base._held.full_tensor()
    return full.contiguous() if base.is_contiguous() else full


def _fill(tensor, full):
    own = tensor._own
    own._local_tensor.copy_(_part(full, own.device_mesh, own.placements))
