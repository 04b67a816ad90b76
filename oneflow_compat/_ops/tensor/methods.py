"""Methods and properties that OneFlow's Tensor has and torch's lacks: the functions behind
`_tables/tensor.py`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy
import torch

from ..._active import is_captured_state
from ..._errors import NoSuchState
from ..._global.tensor import make_global
from ..._method import named_method
from .replacing import replacing
from .row_major import row_major_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.utils.hooks import RemovableHandle

    from ..._global.placement import placement as Placement
    from ...sbp import sbp as Sbp


__all__ = []
_PACKAGE = __package__.partition(".")[0]


def is_lazy(self: torch.Tensor) -> bool:
    """True for a tensor that is a placeholder while nn.Graph captures a program. Parameters and buffers of
    the graph are placeholders, too.
    """
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if fake is not None and isinstance(self, fake.FakeTensor):
        return True
    return is_captured_state(self)


def is_eager(self: torch.Tensor) -> bool:
    """True for a tensor with values; the opposite of is_lazy."""
    return not is_lazy(self)


def is_view(self: torch.Tensor) -> bool:
    """True when this tensor was made as a view of another."""
    return self._is_view()


def cast(self: torch.Tensor, dtype: torch.dtype, pin_memory: bool = False) -> torch.Tensor:
    """Return self.to(dtype). TypeError unless `dtype` is a dtype."""
    if isinstance(dtype, (torch.Tensor, str)):
        raise TypeError(f"cast(): argument 'dtype' must be a dtype, found {type(dtype).__name__}")
    out = self.to(dtype)
    return out.pin_memory() if pin_memory else out


def contiguous_(self: torch.Tensor) -> torch.Tensor:
    """Make the tensor contiguous in place; returns it. Other views keep the old memory."""
    if not self.is_contiguous():
        self.data = self.data.contiguous()
    return self


def to_numpy(self: torch.Tensor, dtype: torch.dtype | type | str | None = None) -> numpy.ndarray:
    """The values as a NumPy array, see `numpy`."""
    return self.numpy() if dtype is None else self.numpy(dtype)


def zeros_(self: torch.Tensor) -> torch.Tensor:
    """Older name of zero_."""
    return self.zero_()


def init(original: Callable[..., Any]) -> Any:
    """Give Tensor(ndarray) a fresh buffer, so that changing the tensor does not change the array."""
    return named_method(original, _init, always=True)


def _init(original: Callable[..., Any], error: None, self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    if args and type(self) is torch.Tensor and isinstance(args[0], numpy.ndarray) and not self.requires_grad:
        self.set_(self.clone())


def owned(original: Callable[..., Any], cls: type, *args: Any, **kwargs: Any) -> Any:
    """Call original(cls, ...) and copy the result if torch's shares the memory of its source tensor. During
    capture by nn.Graph, a subclass constructed from sizes (CausalBias) has values.
    """
    try:
        result = original(cls, *args, **kwargs)
    except RuntimeError:
        if cls is torch.Tensor or any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
            raise
        with torch.utils._python_dispatch._disable_current_modes():
            result = original(cls, *args, **kwargs)
    return (
        result.clone()
        if cls is torch.Tensor and len(args) == 1 and isinstance(args[0], torch.Tensor)
        else result
    )


def new(original: Callable[..., Any]) -> staticmethod[..., Any]:
    """Wrap the constructor: Tensor(tensor) gets a fresh buffer, and Tensor() takes what torch refuses. That
    is a scalar, an array with negative strides, a list of tensors, a tensor and a device, a device other than
    the CPU, a dtype, requires_grad, and placement with SBP.
    """

    def __new__(*args: Any, **kwargs: Any) -> Any:  # torch.compile expects this signature of the constructor
        try:
            return owned(original, *args, **kwargs)
        except (TypeError, RuntimeError, ValueError):
            cls, *values = args
            accepted = _accepted(values, kwargs) if cls is torch.Tensor else None
            if accepted is None:
                raise
        return _constructed(original, accepted, **kwargs)

    __new__.__oneflow_original__ = original
    return staticmethod(__new__)


_CONSTRUCTOR_KEYWORDS = frozenset(("device", "placement", "sbp", "dtype", "requires_grad"))


def _accepted(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the arguments of Tensor() that torch refuses in a form that it accepts, or None."""
    from ..from_data import holds_tensors, stacked_tensors  # not loaded by `import oneflow`

    if not kwargs.keys() <= _CONSTRUCTOR_KEYWORDS:
        return None
    data = args[0] if args else None
    if isinstance(data, numpy.ndarray):
        return [data.copy(), *args[1:]]  # torch takes no negative strides
    if type(data) in (list, tuple) and holds_tensors(data):
        return [stacked_tensors(data).to(kwargs.get("dtype") or torch.get_default_dtype()), *args[1:]]
    return args if kwargs or _is_scalar(args) else None


def _is_scalar(args: Sequence[Any]) -> bool:
    return len(args) == 1 and isinstance(args[0], (float, numpy.floating))


def _constructed(
    original: Callable[..., Any],
    args: Sequence[Any],
    device: torch.device | str | int | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Return Tensor(*args) with the keywords of OneFlow; dtype and requires_grad are those of OneFlow 0.5."""
    if _is_scalar(args) or dtype is not None and args and isinstance(args[0], (numpy.ndarray, list)):
        result = torch.tensor(args[0], dtype=dtype or torch.get_default_dtype())
    else:
        result = owned(original, torch.Tensor, *args)
    if placement is not None or sbp is not None:
        return make_global(result, placement, sbp, is_full=True)
    result = result.to(device=device, dtype=dtype)
    return result.requires_grad_() if requires_grad else result


@replacing
def view(
    original: Callable[..., Any], error: Exception, self: torch.Tensor, *shape: Any, **kwargs: Any
) -> Any:
    """view() and view_as() of a result computed from a transposed tensor. torch lays it out as its operands,
    OneFlow row by row, where a view exists. So the tensor is laid out row by row, and the view is its view.
    """
    layout = row_major_layout(self) if type(self) is torch.Tensor else None
    if layout is None:
        return NotImplemented
    probe = torch.empty_strided(self.shape, layout.stride, dtype=self.dtype, device="meta")
    original(probe, *shape, **kwargs)  # an error: this layout has no such view either
    owner = layout.owner
    with torch.no_grad():
        rows = owner.clone(memory_format=torch.contiguous_format)
        if owner is not self:
            self.data = rows.as_strided(self.shape, layout.stride, layout.offset)
        owner.data = rows
    return original(self, *shape, **kwargs)


# --------------------------------------------------------------------------- private names of OneFlow's tests
def post_grad_accumulation_hook(
    self: torch.Tensor, hook: Callable[[torch.Tensor], torch.Tensor | None]
) -> RemovableHandle:
    """After backward() summed into this leaf's grad, grad = hook(grad); None keeps it.

    Returns a handle with remove().
    """

    def after(leaf: torch.Tensor) -> None:
        new = hook(leaf.grad)
        if new is not None:
            leaf.grad = new

    return self.register_post_accumulate_grad_hook(after)


def zero_grad(self: torch.Tensor, set_to_none: bool = False) -> None:
    """Fill the gradient with zeros, where there is one, or drop it."""
    if set_to_none:
        self.grad = None
    elif self.grad is not None:
        self.grad.detach_().zero_()


def copy_from_numpy(self: torch.Tensor, array: numpy.ndarray) -> None:
    """Copy the values of an array of the same shape into this tensor."""
    with torch.no_grad():
        self.copy_(torch.as_tensor(array))


def copy_to_numpy(self: torch.Tensor, array: numpy.ndarray) -> None:
    """Copy the values into an array of the same shape."""
    array[...] = self.numpy()


def tensor_buffer_shapes_and_dtypes(self: torch.Tensor) -> tuple[list[torch.Size], list[torch.dtype]]:
    """Refused: a tensor is no batch of arrays, as `tensor_to_tensor_buffer` returns."""
    raise NoSuchState(
        f"_tensor_buffer_shapes_and_dtypes is of a TensorBuffer; this tensor has the shape {list(self.shape)}"
        f" and the dtype {self.dtype}"
    )


def meta_repr(self: torch.Tensor) -> str:
    """Shape, dtype and requires_grad as text: tensor(..., size=(2,), dtype=oneflow.float32)."""
    from .texts import tensor_text  # not loaded by `import oneflow`

    return tensor_text(tuple(self.shape), self.dtype, lazy=is_lazy(self), requires_grad=self.requires_grad)


# --------------------------------------------------------------------------- activations
def gelu(self: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """torch.nn.functional.gelu."""
    return torch.nn.functional.gelu(self, approximate=approximate)


def mish(self: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional.mish."""
    return torch.nn.functional.mish(self)


def selu(self: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional.selu."""
    return torch.nn.functional.selu(self)


def silu(self: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional.silu."""
    return torch.nn.functional.silu(self)


def softplus(self: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> torch.Tensor:
    """torch.nn.functional.softplus."""
    return torch.nn.functional.softplus(self, beta, threshold)


def softsign(self: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional.softsign."""
    return torch.nn.functional.softsign(self)


def in_top_k(self: torch.Tensor, predictions: torch.Tensor, k: int) -> torch.Tensor:
    """`oneflow.in_top_k` with these targets."""
    from ..reduce import in_top_k  # not loaded by `import oneflow`

    return in_top_k(self, predictions, k)


def nms(self: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """`oneflow.nms` of these boxes."""
    from ..._kernels.detection import nms  # not loaded by `import oneflow`

    return nms(self, scores, iou_threshold)


# --------------------------------------------------------------------------- initialisation
def trunc_normal_(
    self: torch.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> torch.Tensor:
    """torch.nn.init.trunc_normal_; also on a leaf that requires grad."""
    return torch.nn.init.trunc_normal_(self, mean, std, a, b)


def xavier_normal_(self: torch.Tensor, gain: float = 1.0, *, data_format: str = "NCHW") -> torch.Tensor:
    """torch.nn.init.xavier_normal_; data_format "NHWC" reads the fans of (out, ..., in)."""
    torch.nn.init.xavier_normal_(_channels_first(self, data_format), gain)
    return self


def xavier_uniform_(self: torch.Tensor, gain: float = 1.0, *, data_format: str = "NCHW") -> torch.Tensor:
    """torch.nn.init.xavier_uniform_; data_format "NHWC" reads the fans of (out, ..., in)."""
    torch.nn.init.xavier_uniform_(_channels_first(self, data_format), gain)
    return self


def kaiming_normal_(
    self: torch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """torch.nn.init.kaiming_normal_; data_format "NHWC" reads the fans of (out, ..., in)."""
    torch.nn.init.kaiming_normal_(_channels_first(self, data_format), a, mode, nonlinearity)
    return self


def kaiming_uniform_(
    self: torch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """torch.nn.init.kaiming_uniform_; data_format "NHWC" reads the fans of (out, ..., in)."""
    torch.nn.init.kaiming_uniform_(_channels_first(self, data_format), a, mode, nonlinearity)
    return self


def orthogonal_(self: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    """torch.nn.init.orthogonal_, in place (OneFlow 0.9 leaves the tensor unchanged)."""
    return torch.nn.init.orthogonal_(self, gain)


def _channels_first(tensor: torch.Tensor, data_format: str) -> torch.Tensor:
    return tensor.detach().movedim(-1, 1) if data_format == "NHWC" and tensor.dim() > 2 else tensor


# --------------------------------------------------------------------------- memory
def offload(self: torch.Tensor) -> torch.Tensor:
    """Move the values to host memory until `load`; the tensor stays the same object.

    Nothing to do for a CPU tensor.
    """
    if self.device.type not in ("cpu", "meta"):
        self._of_offloaded_from = self.device
        self.data = self.data.cpu()
    return self


def load(self: torch.Tensor) -> torch.Tensor:
    """Bring the values that `offload` moved back to their device."""
    device = getattr(self, "_of_offloaded_from", None)
    if device is not None:
        self._of_offloaded_from = None
        self.data = self.data.to(device)
    return self


def is_offloaded(self: torch.Tensor) -> bool:
    """True between `offload` and `load`."""
    return getattr(self, "_of_offloaded_from", None) is not None
