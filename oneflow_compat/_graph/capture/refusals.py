"""What eager refuses and symbolic tensors would take: build() is refused it too, so that what this package
makes of a refusal (`a @ b` of
different dtypes, `&` of floating tensors) is what is recorded.
"""

from __future__ import annotations

import torch

aten = torch.ops.aten


def refuse(func, args):
    """Raise eager's error where its kernel takes no tensors of these dtypes."""
    row = _REFUSED.get(func)
    if row is not None:
        refused, needed, error = row
        dtypes = [a.dtype if isinstance(a, torch.Tensor) else type(a) for a in args]
        if refused(dtypes):
            raise error(f"{func} takes {needed}, but got {', '.join(map(str, dtypes))}")


def _overloads(*names):
    return [
        getattr(packet, o)
        for packet in (getattr(aten, name) for name in names)
        for o in packet.overloads()
        if "out" not in o and "dtype" not in o
    ]


def _some_bool(dtypes):
    return torch.bool in dtypes


def _several(dtypes):
    return len(set(dtypes)) > 1


def _some_floating(dtypes):
    return any(d is float or isinstance(d, torch.dtype) and d.is_floating_point for d in dtypes)


_REFUSED = {
    **dict.fromkeys(
        _overloads("sub", "sub_", "rsub"),
        (_some_bool, "no bool tensors (use ^ or logical_xor)", RuntimeError),
    ),
    **dict.fromkeys(_overloads("argmax", "argmin", "topk"), (_some_bool, "no bool tensors", RuntimeError)),
    **dict.fromkeys(
        _overloads("mm", "mv", "bmm", "addmm", "addmv", "addbmm", "baddbmm"),
        (_several, "tensors of one dtype", RuntimeError),
    ),
    **dict.fromkeys(
        _overloads(*(f"bitwise_{name}{end}" for name in ("and", "or", "xor") for end in ("", "_"))),
        (_some_floating, "integers or bools", NotImplementedError),
    ),
    aten.masked_select.default: (lambda dtypes: dtypes[1] is not torch.bool, "a mask of bools", RuntimeError),
}
