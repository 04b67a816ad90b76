"""Functions that torch composes in C++ from shapes that it reads as integers.

With unknown sizes, the same operators are called with symbolic sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ...._global.tensor import replicated_like
from ...._upstream.versions import torch_is_before
from ...errors import CaptureError
from .product_gradients import Cumprod, Prod

if TYPE_CHECKING:
    from torch.fx import Graph


aten = torch.ops.aten


def composed(func: Any, args: Any, kwargs: Any) -> Any:
    """Return a call of the form for arguments of unknown sizes, or None if torch's own form serves."""
    kwargs = kwargs or {}
    special = _special_forms().get(func)
    if special is not None and (call := special(func, args, kwargs)) is not None:
        return call
    form = _forms().get(func)
    if form is None or not any(map(_unknown, itertools.chain(args, kwargs.values()))):
        return None
    return functools.partial(form, *args, **kwargs)


@functools.cache
def _special_forms() -> dict[Any, Any]:
    """Return {function: special}. special(func, args, kwargs) returns a call, or None for torch's form."""
    return {
        torch._C._nn.one_hot: _one_hot_call,
        torch.max_pool1d: _max_pool1d_call,
        torch.affine_grid_generator: _affine_grid_call,
        torch.Tensor._nnz: _refuse_unknown_nnz,
        **dict.fromkeys(_OF_SINGULAR_VALUES, _singular_values_call),
        **dict.fromkeys((torch.quantile, torch.Tensor.quantile), _checked_quantile_call),
        **dict.fromkeys((torch.prod, torch.Tensor.prod), _prod_call),
        **dict.fromkeys((torch.nanquantile, torch.Tensor.nanquantile), _checked_quantile_call),
        **(
            dict.fromkeys((torch.cumprod, torch.Tensor.cumprod), _cumprod_call)
            if torch_is_before("2.13")
            else {}
        ),
    }


def _is_fake_without_gradient(args: tuple[Any, ...]) -> bool:
    return (
        bool(args) and type(args[0]) is FakeTensor and not (args[0].requires_grad and torch.is_grad_enabled())
    )


def may_be_checked(value: object) -> bool:
    """Whether a value is a tensor that an assertion may look at: one of vmap() has no rule for assertions."""
    return type(value) is FakeTensor or (
        isinstance(value, torch.Tensor) and not torch._C._are_functorch_transforms_active()
    )


def _one_hot_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args and may_be_checked(args[0]) and args[0].dtype is torch.int64:
        return functools.partial(_one_hot, *args, **kwargs)
    return None


def _max_pool1d_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Return the result with the layout of eager's kernel for tensors without gradient."""
    if _is_fake_without_gradient(args) and args[0].is_cpu:
        return lambda: func(*args, **kwargs).contiguous()
    return None


def _prod_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Return a product whose gradient takes eager's formula: torch takes another one for symbolic tensors."""
    return _formula_call(Prod, ("dim", "keepdim"), args, kwargs)


def _formula_call(
    function: type[torch.autograd.Function],
    names: tuple[str, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Callable[..., Any] | None:
    """Return a call of the function with the tensor and a dict of options, or None without a gradient.

    The names are those of the options that may be given by position.
    """
    x: Any = args[0] if args else kwargs.get("input")
    if not isinstance(x, torch.Tensor) or not (x.requires_grad and torch.is_grad_enabled()):
        return None
    if kwargs.get("out") is not None or torch._C._are_functorch_transforms_active():
        return None
    options = dict(zip(names, args[1:]))
    options |= {name: value for name, value in kwargs.items() if name not in ("input", "out")}
    return functools.partial(function.apply, x, options)


def _cumprod_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Return a cumulative product whose gradient takes eager's formula."""
    return _formula_call(Cumprod, ("dim",), args, kwargs)


def _affine_grid_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if torch._C._is_any_autocast_enabled():
        return functools.partial(_AffineGrid.apply, *args, **kwargs)
    return None


def _singular_values_call(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any] | None:
    if _is_fake_without_gradient(args):
        return lambda: _without_vectors(args[0]._of_node.graph, functools.partial(func, *args, **kwargs))
    return None


def _checked_quantile_call(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any] | None:
    """Check the quantiles, as torch does for tensors that are not symbolic."""
    q: Any = args[1] if len(args) > 1 else kwargs.get("q")
    if not (may_be_checked(q) and q.is_cpu):
        return None
    torch._assert_async(((q >= 0) & (q <= 1)).all(), "quantile() q values must be in the range [0, 1]")
    return functools.partial(_without_comparisons, func, *args, **kwargs) if torch_is_before("2.13") else None


class _Equal(TorchDispatchMode):
    """Answer each torch.equal() with True."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return True if func is aten.equal.default else func(*args, **(kwargs or {}))


def _without_comparisons(func: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Call a function whose check is recorded. Before 2.13, torch compares values of symbolic tensors too."""
    with _Equal():  # type: ignore[no-untyped-call]  # torch declares no types
        return func(*args, **kwargs)


def _refuse_unknown_nnz(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if type(args[0]) is FakeTensor and hasattr(args[0], "_unknown_rows"):
        raise CaptureError(
            "the number of rows of a sparse tensor depends on values, and _nnz() returns it as a Python"
            " integer",
            "Use values().shape[0].",
        )


def _unknown(a: Any) -> Any:
    return (
        type(a) is FakeTensor
        and a._has_symbolic_sizes_strides
        or type(a) in (list, tuple)
        and any(map(_unknown, a))
    )


@functools.cache
def _forms() -> Any:
    forms: dict[Any, Callable[..., Any]] = {
        torch.take_along_dim: _take_along_dim,
        torch.kron: _kron,
        torch.masked_select: _masked_select,
        torch.unsafe_chunk: _unsafe_chunk,
        torch._C._nn.pad_sequence: _pad_sequence,
        torch._VF.broadcast_tensors: _broadcast_tensors,  # type: ignore[attr-defined]
    }
    if torch_is_before("2.13"):
        forms.update(dict.fromkeys((torch.matmul, torch.Tensor.__matmul__, torch.linalg.matmul), _matmul))
        forms[torch._C._nn.scaled_dot_product_attention] = _scaled_dot_product_attention
        if hasattr(torch._C._nn, "linear"):
            forms[torch._C._nn.linear] = _linear
    forms.update(
        {
            getattr(torch.Tensor, f.__name__): form
            for f, form in forms.items()
            if hasattr(torch.Tensor, f.__name__)
        }
    )
    for mode, dims in itertools.product(
        (
            "nearest",
            "_nearest_exact",
            "linear",
            "bilinear",
            "bicubic",
            "trilinear",
            "_bilinear_aa",
            "_bicubic_aa",
        ),
        (1, 2, 3),
    ):
        name = (
            f"_upsample{mode.removesuffix('_aa')}{dims}d_aa"
            if mode.endswith("_aa")
            else f"{'_' * mode.startswith('_')}upsample_{mode.lstrip('_')}{dims}d"
        )
        if hasattr(torch._C._nn, name) and hasattr(aten, name):
            forms[getattr(torch._C._nn, name)] = functools.partial(_upsample, getattr(aten, name).default)
    return forms


class _AffineGrid(torch.autograd.Function):
    """affine_grid_generator by its kernel's own operators, whose operands autocast casts."""

    @staticmethod
    def forward(ctx: Any, theta: Any, size: Any, align_corners: bool) -> Any:
        ctx.rest = size, align_corners
        return aten.affine_grid_generator.default._op_dk(
            torch._C.DispatchKey.CompositeExplicitAutograd, theta, size, align_corners
        )

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        return torch.ops.aten.affine_grid_generator_backward(grad, *ctx.rest), None, None


def _without_vectors(graph: Graph, call: Any) -> Any:
    """Run the call; its decompositions compute values only, unless the call reads the vectors.

    torch would compute the vectors too, because the tensor is symbolic.
    """
    last = graph._root._prev
    out = call()
    while (last := last._next) is not graph._root:
        for target, value, option in (
            (aten._linalg_svd.default, 1, "compute_uv"),
            (aten._linalg_eigh.default, 0, "compute_v"),
        ):
            if last.target is target and not any(part.users for part in last.users if part.args[1] != value):
                last.kwargs = {**last.kwargs, option: False}
    return out


_OF_SINGULAR_VALUES = {
    torch.linalg.svdvals,
    torch.linalg.eigvalsh,
    torch.linalg.cond,
    torch.linalg.norm,
    torch.linalg.matrix_norm,
    torch.linalg.matrix_rank,
    torch.norm,
    torch.Tensor.norm,
    torch.nuclear_norm,
}


def _one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> Any:
    if type(num_classes) is int and num_classes == -1:
        num_classes = tensor.max() + 1
    if isinstance(num_classes, torch.Tensor):
        num_classes = num_classes.item()
    torch._assert_async((tensor >= 0).all(), "Class values must be non-negative.")
    torch._assert_async((tensor < num_classes).all(), "Class values must be smaller than num_classes.")
    if type(num_classes) is int and not _unknown(tensor):
        return (
            tensor.unsqueeze(-1) == replicated_like(torch.arange(num_classes, device=tensor.device), tensor)
        ).long()
    return tensor.new_zeros((*tensor.shape, num_classes)).scatter_(-1, tensor.unsqueeze(-1), 1)


def _take_along_dim(input: Any, indices: Any, dim: Any = None) -> Any:
    if dim is None:
        return input.flatten().gather(0, indices.flatten())
    dim %= input.dim()
    around = torch.broadcast_shapes(
        *(tuple(1 if d == dim else n for d, n in enumerate(t.shape)) for t in (input, indices))
    )
    input, indices = (
        t.expand([t.shape[dim] if d == dim else n for d, n in enumerate(around)]) for t in (input, indices)
    )
    return input.gather(dim, indices)


def _kron(input: Any, other: Any) -> Any:
    dims = max(input.dim(), other.dim())
    input_blocks, other_blocks = (t.reshape([1] * (dims - t.dim()) + list(t.shape)) for t in (input, other))
    product = input_blocks.reshape(
        [n for size in input_blocks.shape for n in (size, 1)]
    ) * other_blocks.reshape([n for size in other_blocks.shape for n in (1, size)])
    return product.reshape([a * b for a, b in zip(input_blocks.shape, other_blocks.shape)])


def _matmul(input: Any, other: Any, *, out: Any = None) -> Any:
    from torch._decomp.decompositions import matmul

    return matmul(input, other) if out is None else torch.matmul(input, other, out=out)


def _scaled_dot_product_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Call the function. Before 2.13, its matrix products take unknown sizes in Python only."""
    with torch._C._EnablePythonDispatcher():
        return torch._C._nn.scaled_dot_product_attention(*args, **kwargs)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if bias is None or input.dim() > 2 and not is_contiguous_or_false(input):
        product = _matmul(input, weight.t())
        return product if bias is None else product + bias
    return torch._C._nn.linear(input, weight, bias)


def _broadcast_tensors(*tensors: Any) -> Any:
    operands = tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors
    shape: list[Any] = []
    for sizes in itertools.zip_longest(*(t.shape[::-1] for t in operands), fillvalue=1):
        wider = [n for n in sizes if type(n) is not int or n != 1]
        shape.insert(0, next((n for n in wider if type(n) is int), wider[0] if wider else 1))
    return [t.expand(shape) for t in operands]


def _masked_select(input: Any, mask: Any) -> Any:
    input, mask = torch.broadcast_tensors(input, mask)
    return input[mask]


def _unsafe_chunk(input: Any, chunks: Any, dim: Any = 0) -> Any:
    return torch.unsafe_split(input, -(-input.shape[dim] // chunks), dim)


def _pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: Any = 0.0, padding_side: str = "right"
) -> Any:
    longest = functools.reduce(torch.sym_max, (s.shape[0] for s in sequences))
    rest = sequences[0].shape[1:]
    out = sequences[0].new_full(
        (len(sequences), longest, *rest) if batch_first else (longest, len(sequences), *rest), padding_value
    )
    for i, sequence in enumerate(sequences):
        row = out.select(0 if batch_first else 1, i)
        length = sequence.shape[0]
        row.narrow(0, 0 if padding_side == "right" else longest - length, length).copy_(sequence)
    return out


def _upsample(op: Any, input: Any, output_size: Any, *rest: Any) -> Any:
    *corners, factors = rest
    if output_size is None:
        output_size = [math.floor(n * f) for n, f in zip(input.shape[2:], factors)]
    return op(input, output_size, *corners, *(factors or ()))
