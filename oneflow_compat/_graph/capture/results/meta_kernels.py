"""Fake tensors, and results of operators from their meta kernels, without torch's fake mode.

For most operators torch's fake mode only checks the arguments, hashes them for a cache of its own, runs the
meta kernel, and wraps the results. The checks take ten times as long as the kernel. Here the kernel runs at
once if the arguments are ordinary tensors of the CPU.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
    torch_decomp_decompositions,
)

_COMPOSITE = "CompositeImplicitAutograd"
_CAN_COPY = hasattr(torch.Tensor, "_make_subclass") and all(
    hasattr(torch._C, name)
    for name in ("_set_warn_deprecated_on_mutable_data_ptr", "_set_throw_on_mutable_data_ptr")
)
_runs_on_meta: dict[Any, bool] = {}


def new_fake(
    mode: FakeTensorMode, device: torch.device, factory: Callable[..., Any], *args: Any, **options: Any
) -> FakeTensor:
    """Return a fake tensor with memory of its own, of the layout that a factory of torch gives.

    No size may be a symbol.
    """
    with torch._C._DisableTorchDispatch():
        meta = factory(*args, device="meta", **options)
    return _faked(meta, mode, device)


def _faked(meta: torch.Tensor, mode: FakeTensorMode, device: torch.device) -> FakeTensor:
    """Return the fake tensor of a tensor on the meta device, as `FakeTensor(mode, meta, device)` does.

    The constructor (torch 2.13) takes most of the time of a recorded operator. It gives all fake tensors of a
    mode and a device equal attributes.
    """
    if meta.requires_grad or not _CAN_COPY:
        return FakeTensor(mode, meta, device)
    devices = vars(mode).setdefault("_of_devices", {})
    if device not in devices:
        fake = FakeTensor(mode, meta, device)
        devices[device] = fake.fake_device, {k: v for k, v in vars(fake).items() if v is not mode}
        return fake
    exact_device, attributes = devices[device]  # the attributes lack the mode: a cycle
    fake = torch.Tensor._make_subclass(
        FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=exact_device
    )
    if mode._allow_unsafe_data_ptr_access:
        torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
    else:
        torch._C._set_throw_on_mutable_data_ptr(fake)
    vars(fake).update(attributes)
    fake.fake_mode = mode
    return fake


def is_static_fake(tensor: Any) -> TypeGuard[FakeTensor]:
    """Whether a value is a strided fake tensor without symbols in its layout and without a value."""
    return (
        type(tensor) is FakeTensor
        and tensor.layout is torch.strided
        and tensor.constant is None
        and not tensor._has_symbolic_sizes_strides
    )


def on_meta(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], mode: FakeTensorMode
) -> Any:
    """Run the meta kernel of an operator on fake tensors and return fake results."""
    with in_kernel_invocation_manager(mode):
        out = func(*args, **kwargs)
    device = next(a for a in (*args, *kwargs.values()) if type(a) is FakeTensor).fake_device
    return _wrapped(out, mode, device)


def _wrapped(out: Any, mode: FakeTensorMode, device: torch.device) -> Any:
    if type(out) is torch.Tensor:
        return _faked(out, mode, device)
    if isinstance(out, (tuple, list)):
        return type(out)(_wrapped(o, mode, device) for o in out)
    return out  # no tensor, or the argument that was written


def meta_results(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: FakeTensorMode) -> Any:
    """Return the fake results of an operator, or None if torch's fake mode has to compute them."""
    can_run = _runs_on_meta.get(func)
    if can_run is None:
        can_run = _runs_on_meta[func] = _has_only_meta_kernel(func)
    if not can_run or not _are_plain_on_cpu((*args, *kwargs.values())):
        return None
    try:
        return on_meta(func, args, kwargs, mode)
    except (NotImplementedError, RuntimeError, ValueError, IndexError, TypeError):
        return None  # torch's fake mode raises the error, or has another form of the operator


def _has_only_meta_kernel(func: Any) -> bool:
    """Whether torch's fake mode runs the meta kernel of an operator, and has no other form of it."""
    name = func.name()
    return (
        func.namespace == "aten"
        and not any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        and not any(is_special(func) for is_special, _ in fake_impls.op_implementations_checks)
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE)
        and fake_impls.has_meta(func)
        and (func in torch._decomp.meta_table or not _is_decomposed(func))
    )


def _is_decomposed(func: Any) -> bool:
    return func in torch._decomp.decomposition_table and bool(torch_decomp_decompositions(func))


def _are_plain_on_cpu(values: Iterable[Any]) -> bool:
    """Whether all tensors, of which there is at least one, are plain ones on the CPU."""
    count = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            if not is_static_fake(value) or value.fake_device.type != "cpu":
                return False
            count += 1
        elif (
            isinstance(value, (list, tuple))
            and any(isinstance(v, torch.Tensor) for v in value)
            or isinstance(value, torch.device)
        ):
            return False
    return count > 0
