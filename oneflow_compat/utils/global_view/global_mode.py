"""global_mode: creation functions in the block make global tensors.

Modules make global parameters and buffers there.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import torch

import oneflow

from ..._global import creation
from ..._global import global_mode as _mode
from ..._global.marks import checked_sbp, is_global
from ..._global.module import begin_global
from ..._global.placement import placement as Placement
from ..._global.tensor import make_global
from ..._ops.creation import make
from ..._public_module import own_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...sbp import sbp as Sbp


_module = torch.nn.modules.module


def _from_full(full: torch.Tensor, placement: Placement, sbp: Any) -> torch.Tensor:
    return make_global(full, placement, sbp, is_full=True)


class global_mode:
    """Give creation functions and modules a default placement and sbp.

    In `with global_mode(True, placement, sbp):`, creation functions without `placement=` and modules use
    these. `global_mode(False)` turns the mode off in its block.

    TypeError unless `enabled` is a bool. ValueError unless both are given with True, and neither with
    False.
    """

    def __init__(
        self, enabled: bool, placement: Placement | None = None, sbp: Sbp | Sequence[Sbp] | None = None
    ) -> None:
        if not isinstance(enabled, bool):
            raise TypeError(
                "global_mode(enabled, placement, sbp): enabled must be a bool, found"
                f" {type(enabled).__name__}"
            )
        if enabled:
            if not isinstance(placement, Placement) or sbp is None:
                raise ValueError(
                    f"global_mode(True, placement, sbp) needs both, found placement={placement!r},"
                    f" sbp={sbp!r}"
                )
            sbp = checked_sbp(sbp, placement, 6)
        elif placement is not None or sbp is not None:
            raise ValueError("global_mode(False) takes no placement and no sbp")
        self._mode = _mode.Mode(enabled, placement, sbp)

    def __enter__(self) -> global_mode:
        if not _mode.stack:
            creation.begin(_from_full)
        _mode.stack.append(self._mode)
        self._in_torchs_dialect = [name for name in _makers if getattr(oneflow, name) is getattr(torch, name)]
        for name in self._in_torchs_dialect:
            own_names(oneflow)[name] = _makers[name]
        self._hooks = [
            register(_made_global)
            for register in (
                _module.register_module_parameter_registration_hook,
                _module.register_module_buffer_registration_hook,
            )
        ]
        return self

    def __exit__(self, *error: object) -> Literal[False]:
        _mode.stack.pop()
        if not _mode.stack:
            creation.end()
        for hook in self._hooks:
            hook.remove()
        for name in self._in_torchs_dialect:
            if getattr(oneflow, name) is _makers[name]:
                own_names(oneflow)[name] = getattr(torch, name)
        return False


def _maker(name: str) -> Callable[..., torch.Tensor]:
    @functools.wraps(getattr(torch, name))
    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        return make(name, getattr(torch, name), args, kwargs)

    return call


# torch's functions, which are oneflow.tensor, oneflow.zeros, ... in torch's dialect
_makers = {
    name: _maker(name)
    for name in (
        "tensor as_tensor zeros ones empty full eye arange linspace logspace zeros_like ones_like full_like"
        " empty_like hann_window rand randn randint randint_like rand_like randn_like randperm normal"
    ).split()
}


def _made_global(module: torch.nn.Module, name: str, tensor: torch.Tensor | None) -> Any:
    """Make a registered parameter or buffer global; torch's modules make ordinary tensors."""
    mode: Any = _mode.current()
    if not mode.enabled or tensor is None or is_global(tensor):
        return None
    begin_global(module)
    global_tensor = make_global(tensor.detach(), mode.placement, mode.sbp)
    return (
        torch.nn.Parameter(global_tensor, requires_grad=tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter)
        else global_tensor
    )


class current_global_mode:
    """The current mode: `is_enabled`, and `placement` and `sbp` (None when off)."""

    def __init__(self) -> None:
        self._mode = _mode.current()

    is_enabled = property(lambda self: self._mode.enabled)
    placement = property(lambda self: self._mode.placement)
    sbp = property(lambda self: self._mode.sbp)
