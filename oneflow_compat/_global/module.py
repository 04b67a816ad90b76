"""nn.Module's methods for global tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from .. import _processes
from ..sbp import broadcast
from .collectives import checking, nested
from .failures import transfer
from .marks import OfSeveralRanks, checked_sbp, is_global
from .placement import placement as Placement
from .process_group import several
from .tensor import (
    make_global,
    of_several_ranks,
)
from .tensor import (
    to_global as _tensor_to_global,
)
from .tensor import (
    to_local as _tensor_to_local,
)


def to_global(self: torch.nn.Module, placement: Placement | None = None, sbp: Any = None) -> torch.nn.Module:
    """Make every parameter and buffer global on `placement` with `sbp`, and return the module.

    On a module that is global already, `placement` or `sbp` alone moves it. A tensor without dimensions, such
    as the counter of BatchNorm, cannot be split and is replicated instead. The ranks agree on all tensors
    before the first one moves. If one rank raises, all ranks raise and the module is unchanged.
    """
    tensors = dict(_named_tensors(self))
    with checking("Module.to_global", sends=True) as request:
        for tensor in tensors.values():
            _check_target(tensor, placement, sbp)
        request.must_match(placement=placement, sbp=sbp)
        request.send_message([(name, is_global(t), _numbers_of(t)) for name, t in tensors.items()])
    shapes = _agreed_shapes(request.messages, tensors, placement, sbp)

    def change(name: str, t: torch.Tensor) -> torch.Tensor:
        nd_sbp = _fitting(sbp, t)
        return (
            _tensor_to_global(t, placement, nd_sbp)
            if is_global(t)
            else make_global(t, cast(Placement, placement), nd_sbp, shape=shapes.get(name))
        )

    with nested(), transfer("Module.to_global"):
        _each(self, change)
    for m in self.modules():
        begin_global(m)
    return self


def _check_target(tensor: Any, placement: Placement | None, sbp: Any) -> None:
    if not is_global(tensor) and (placement is None or sbp is None):
        raise RuntimeError("Module.to_global() of local parameters needs both a placement and an sbp")
    target = tensor._of_placement if placement is None else placement
    if not isinstance(target, Placement):
        raise TypeError(
            f"Module.to_global: placement must be an oneflow.placement, found {type(target).__name__}"
        )
    if several():
        of_several_ranks().check_world(target)
    if sbp is not None:
        checked_sbp(_fitting(sbp, tensor), target, tensor.dim())


def _fitting(sbp: Any, tensor: torch.Tensor) -> Any:
    """Return the sbp, with broadcast instead of split for a tensor without dimensions."""
    if tensor.dim() or sbp is None:
        return sbp
    nd_sbp = sbp if isinstance(sbp, (list, tuple)) else (sbp,)
    return tuple(broadcast if getattr(r, "_kind", None) == "split" else r for r in nd_sbp)


def _numbers_of(tensor: torch.Tensor) -> list[int]:
    description: list[int] = of_several_ranks().describe_shard(tensor)
    return description


def _agreed_shapes(
    messages: list[Any], tensors: dict[str, torch.Tensor], placement: Any, sbp: Any
) -> dict[Any, Any]:
    """Return {name: full shape} of the local tensors, from the shards that the ranks described.

    Every rank checks the shards of all ranks, so that all ranks raise.
    """
    if not messages:
        return {}
    for rank, message in enumerate(messages):
        if [entry[:2] for entry in message] != [entry[:2] for entry in messages[0]]:
            names = sorted({entry[:2] for entry in message} ^ {entry[:2] for entry in messages[0]})[:3]
            raise RuntimeError(
                f"Module.to_global: the modules of rank 0 and rank {rank} have different tensors:"
                f" {', '.join(name for name, _ in names) or 'their order differs'}"
            )
    shapes = {}
    for i, (name, tensor) in enumerate(tensors.items()):
        descriptions = [message[i][2] for message in messages]
        if not is_global(tensor):
            nd_sbp = checked_sbp(_fitting(sbp, tensor), placement, tensor.dim())
            _, shapes[name] = of_several_ranks().agreed_shape(
                descriptions, placement, nd_sbp, f"Module.to_global of {name}"
            )
        elif any(description != descriptions[0] for description in descriptions):
            raise RuntimeError(f"Module.to_global of {name}: the ranks have different shapes or dtypes")
    return shapes


def begin_global(m: torch.nn.Module) -> None:
    """Make a recurrent layer begin with global zeros from here on."""
    if (
        _processes.get_world_size() > 1
        and isinstance(m, (torch.nn.RNNBase, torch.nn.RNNCellBase))
        and _first_state not in m._forward_pre_hooks.values()
    ):
        m.register_forward_pre_hook(_first_state, with_kwargs=True)


def _first_state(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[Any, Any]] | None:
    """Add the initial state of a recurrent layer as global zeros; torch's modules make ordinary ones."""
    x = args[0] if args else kwargs.get("input")
    if len(args) > 1 or kwargs.get("hx") is not None or not isinstance(x, OfSeveralRanks):
        return None
    sizes = [module.hidden_size]
    lead: tuple[int, ...]
    new_zeros: Callable[..., torch.Tensor] = x.new_zeros
    if isinstance(module, torch.nn.RNNBase):
        layers = module.num_layers * (2 if module.bidirectional else 1)
        lead = (layers, x.shape[0 if module.batch_first else 1]) if x.ndim == 3 else (layers,)
        sizes.insert(0, module.proj_size or module.hidden_size)
    else:
        lead = x.shape[:-1]
        sizes *= 2
    h, c = (new_zeros((*lead, n), sbp=[broadcast] * len(x.sbp)) for n in sizes)
    return (x,), {**kwargs, "hx": (h, c) if isinstance(module, (torch.nn.LSTM, torch.nn.LSTMCell)) else h}


def to_local(self: torch.nn.Module) -> torch.nn.Module:
    """Make every parameter and buffer an ordinary tensor, and return the module."""
    return _each(self, lambda _, t: _tensor_to_local(t) if is_global(t) else t)


def to_consistent(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Call to_global, of which this was the name in OneFlow 0.5 and 0.6, and warn (DeprecationWarning)."""
    warnings.warn(
        "to_consistent is the name of to_global in OneFlow 0.5 and 0.6", DeprecationWarning, stacklevel=2
    )
    return to_global(self, *args, **kwargs)


# not copied to the new parameter; its other attributes are
_OF_CLASS = (
    "_of_placement",
    "_of_sbp",
    "_is_param",
    "_own",
    "_origin",
    "_gathering",
)


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) of every parameter and buffer, a shared one under its first name."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def _each(module: torch.nn.Module, change: Callable[[str, torch.Tensor], torch.Tensor]) -> torch.nn.Module:
    """Replace every parameter and buffer by the result of `change(name, tensor)`.

    The replacement begins when all results have been computed.
    """
    changed: dict[Any, Any] = {}
    for name, tensor in _named_tensors(module):
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        new = change(name, tensor.detach() if is_parameter else tensor)
        if is_parameter:
            new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
            new.__dict__.update({k: v for k, v in vars(tensor).items() if k not in _OF_CLASS})
        changed[id(tensor)] = new
    for m in module.modules():
        for tensors in (m._parameters, m._buffers):
            tensors.update({name: changed[id(t)] for name, t in tensors.items() if t is not None})
    return module
