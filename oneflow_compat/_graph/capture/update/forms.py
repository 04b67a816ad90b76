"""Which of torch's forms of an optimizer is traced: plain, multi-tensor or fused."""

from typing import Any

import torch

from ...._global.marks import several
from ...config import Config
from ...program.memory import storage_of
from ...program.nested_state import leaves

# On the CPU torch's multi-tensor form of these is a loop, bitwise equal to the plain form.
_SAME_VALUES = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.RMSprop,
    torch.optim.Rprop,
)
_SAME_DTYPES = (torch.float32, torch.float64)  # half precision is rounded at other points
_MULTI_TENSOR_BYTES = 1 << 25  # a form for many tensors has temporaries as large as the parameters


def form_options(optimizer: torch.optim.Optimizer, config: Config) -> dict[str, bool]:
    """Return the options that select torch's form of the optimizer to trace.

    The result is empty if the user chose a form.
    """
    group = optimizer.param_groups[0]
    if _has_chosen_form(group):
        return {}
    if config.zero is not None and several():  # one parameter at a time, each with its shards
        return dict.fromkeys({"foreach", "fused"} & group.keys(), False)
    params = [p for g in optimizer.param_groups for p in g["params"]]
    if _needs_plain_form(optimizer, params):
        return {}
    if config.fuse_update and "fused" in group and _has_fused_kernel(optimizer, params):
        # eager steps on a GPU create counters on the CPU; the fused operator counts on the GPU
        return {"fused": True, "foreach": False} if _counts_beside_parameters(optimizer, params) else {}
    is_multi_tensor = "foreach" in group and _takes_multi_tensor(optimizer, params, config)
    return {"foreach": True, "fused": False} if is_multi_tensor else {}


def _takes_multi_tensor(optimizer: torch.optim.Optimizer, params: list[torch.Tensor], config: Config) -> bool:
    if config.multi_tensor is None:
        return _equals_multi_tensor(optimizer, params)
    return config.multi_tensor


def _has_chosen_form(group: dict[Any, Any]) -> bool:
    is_set = any(group.get(option) is not None for option in ("foreach", "fused"))
    return is_set or bool(group.get("differentiable"))


def _needs_plain_form(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> bool:
    return (
        _has_sparse_gradients(params)
        or _writes_gradients(optimizer)
        or _has_tensor_options(optimizer)
        or _shares_state(optimizer)
        or _has_integer_state(optimizer)
    )


def _has_sparse_gradients(params: list[torch.Tensor]) -> bool:
    return any(p.grad is not None and p.grad.is_sparse for p in params)


def _writes_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the multi-tensor form writes into the gradients, which build() may return (torch 2.13)."""
    return isinstance(optimizer, torch.optim.SGD) and any(g.get("nesterov") for g in optimizer.param_groups)


def _has_tensor_options(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a rate or a beta is a tensor, which the multi-tensor forms reject."""
    options = (v for g in optimizer.param_groups for v in (g.get("lr"), *(g.get("betas") or ())))
    return any(isinstance(v, torch.Tensor) for v in options)


def _shares_state(optimizer: torch.optim.Optimizer) -> bool:
    """Whether two values of the state begin at the same address.

    The second step must then follow the first.
    """
    tensors = _state_tensors(optimizer)
    memories = [(s, t.storage_offset()) if (s := storage_of(t)) is not None else id(t) for t in tensors]
    return len({*memories}) < len(memories)


def _has_integer_state(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a counter is a tensor of integers, which the multi-tensor and the fused forms reject."""
    return any(not (t.is_floating_point() or t.is_complex()) for t in _state_tensors(optimizer))


def _state_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [v for s in optimizer.state.values() for _, v in leaves(s) if isinstance(v, torch.Tensor)]


def _has_fused_kernel(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> bool:
    on_device = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in params)
    return on_device and not _half_on_cpu(optimizer, params) and _is_dense(optimizer, params)


def _is_dense(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> bool:
    """Whether parameters are dense and their state is alike: fused kernels walk through both memories."""
    return all(
        (p.is_contiguous() or p.stride() == torch.empty_like(p, device="meta").stride())
        and all(v.dtype is p.dtype and v.stride() == p.stride() for v in _elementwise_state(optimizer, p))
        for p in params
    )


def _elementwise_state(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> list[torch.Tensor]:
    values = (value for _, value in leaves(optimizer.state.get(parameter, {})))
    return [v for v in values if isinstance(v, torch.Tensor) and v.shape == parameter.shape]


def _counts_beside_parameters(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> bool:
    """Whether every step counter that is a tensor lies on the device of its parameter."""
    steps = [(optimizer.state[p].get("step"), p) for p in params if p in optimizer.state]
    return all(not isinstance(step, torch.Tensor) or step.device == p.device for step, p in steps)


def _equals_multi_tensor(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> bool:
    """Whether torch's multi-tensor form gives the same values and replaces many small operators."""
    size = sum(p.numel() * p.element_size() for p in params)
    return (
        size < _MULTI_TENSOR_BYTES
        and isinstance(optimizer, _SAME_VALUES)
        and all(p.device.type == "cpu" and p.dtype in _SAME_DTYPES for p in params)
        # if two parameters share memory, the second must take its step after the first
        and len({p.untyped_storage()._cdata for p in params}) == len(params)
    )


def _half_on_cpu(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> bool:
    """Whether torch's fused form is wrong for these parameters.

    On the CPU, the fused SGD of torch 2.13 leaves most elements of half precision unchanged, and its fused
    Adam of float16 gives inf.
    """
    lost = (torch.float16, torch.bfloat16) if isinstance(optimizer, torch.optim.SGD) else (torch.float16,)
    return any(p.device.type == "cpu" and p.dtype in lost for p in params)
