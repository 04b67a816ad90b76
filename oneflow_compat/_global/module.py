"""nn.Module's methods for global tensors."""
from __future__ import annotations

import torch

from .. import env
from ..sbp import broadcast
from .tensor import OfSeveralRanks, is_global, make_global, to_global as _tensor_to_global, to_local as _tensor_to_local


def to_global(self, placement=None, sbp=None):
    """Make every parameter and buffer global on `placement` with the rules `sbp`; returns the module.

    On a module that is global already, `placement` or `sbp` alone moves it.
    """
    def change(t):
        if is_global(t):
            return _tensor_to_global(t, placement, sbp)
        if placement is None or sbp is None:
            raise RuntimeError("Module.to_global() of local parameters needs both a placement and an sbp")
        return make_global(t, placement, sbp)

    for m in self.modules():
        begin_global(m)
    return _each(self, change)


def begin_global(m):
    """A recurrent layer begins with global zeros from here on."""
    if env.get_world_size() > 1 and isinstance(m, (torch.nn.RNNBase, torch.nn.RNNCellBase)) and _first_state not in m._forward_pre_hooks.values():
        m.register_forward_pre_hook(_first_state, with_kwargs=True)


def _first_state(module, args, kwargs):
    """The zeros a recurrent layer begins with, global: torch's modules make ordinary ones."""
    x = args[0] if args else kwargs.get("input")
    if len(args) > 1 or kwargs.get("hx") is not None or not isinstance(x, OfSeveralRanks):
        return None
    sizes = [module.hidden_size]
    if isinstance(module, torch.nn.RNNBase):
        layers = module.num_layers * (2 if module.bidirectional else 1)
        lead = (layers, x.shape[0 if module.batch_first else 1]) if x.ndim == 3 else (layers,)
        sizes.insert(0, module.proj_size or module.hidden_size)
    else:
        lead = x.shape[:-1]
        sizes *= 2
    h, c = (x.new_zeros((*lead, n), sbp=[broadcast] * len(x.sbp)) for n in sizes)
    return (x,), {**kwargs, "hx": (h, c) if isinstance(module, (torch.nn.LSTM, torch.nn.LSTMCell)) else h}


def to_local(self):
    """Make every parameter and buffer an ordinary tensor; returns the module."""
    return _each(self, lambda t: _tensor_to_local(t) if is_global(t) else t)


def to_consistent(self, *args, **kwargs):
    """Removed from OneFlow; use to_global."""
    raise RuntimeError("Module.to_consistent was removed from OneFlow; use Module.to_global")


_OF_CLASS = ("_of_placement", "_of_sbp", "_is_param", "_own", "_origin")  # the other attributes of a parameter go with it


def _each(module, change):
    done = {}
    for m in module.modules():
        for name, p in m._parameters.items():
            if p is not None:
                if id(p) not in done:
                    done[id(p)] = torch.nn.Parameter(change(p.detach()), requires_grad=p.requires_grad)
                    done[id(p)].__dict__.update({k: v for k, v in vars(p).items() if k not in _OF_CLASS})
                m._parameters[name] = done[id(p)]
        for name, b in m._buffers.items():
            if b is not None:
                m._buffers[name] = change(b)
    return module
