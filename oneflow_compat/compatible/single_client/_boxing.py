"""On a machine with a GPU, blobs of a job move to the device of the placement scope they are used in."""
from __future__ import annotations

import contextlib


def boxing(trace):
    """A context for the body of a job; does nothing where there is only the CPU."""
    import torch

    if not torch.cuda.is_available():
        return contextlib.nullcontext()
    from torch.overrides import TorchFunctionMode

    from ._devices import current

    class Boxing(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if getattr(function, "__name__", "") in _FREE:
                return function(*args, **kwargs)
            tensors = [a for a in (*_flat(args), *_flat(kwargs.values())) if isinstance(a, torch.Tensor)]
            if len({t.device for t in tensors}) > 1:
                device = current(trace.job)
                args = [_move(a, device) for a in args]
                kwargs = {k: _move(v, device) for k, v in kwargs.items()}
            return function(*args, **kwargs)

    def _move(a, device):
        if isinstance(a, torch.Tensor):
            return a if a.device == device or a.dim() == 0 and a.device.type == "cpu" else a.to(device)
        if type(a) in (list, tuple):
            return type(a)(_move(x, device) for x in a)
        return a

    return Boxing()


# reading an attribute, moving and writing in place never move anything
_FREE = {"to", "cpu", "cuda", "__get__", "__set__", "copy_", "detach", "fill_", "requires_grad_", "untyped_storage", "data_ptr", "numel", "dim"}


def _flat(items):
    for item in items:
        if type(item) in (list, tuple):
            yield from _flat(item)
        else:
            yield item
