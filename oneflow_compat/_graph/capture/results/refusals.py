"""What eager's kernels refuse, and the dtypes that they give, where torch's fake kernels do neither.

The error of a kernel is raised during capture, so that the fallback in this package (`a @ b` of different
dtypes, `&` of floating tensors) is what gets recorded.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from ...errors import CaptureError, UnsupportedInGraph
from ...program.operators import Operator, Refusal


def refuse_unrecordable(func: OpOverload, facts: Operator, args: tuple[Any, ...], is_update: bool) -> None:
    """Raise if no program holds a call of an operator: the kernel refuses it, or it has no symbolic form."""
    if is_update and facts.counts_sparse_rows:
        _refuse_sparse_count(args[0])
    if facts.refusal is not None:
        _refuse(func, facts.refusal, args)
    if facts.quantizes:
        _refuse_quantized(func)


def _refuse(func: OpOverload, refusal: Refusal, args: tuple[Any, ...]) -> None:
    """Raise eager's error if the kernel takes no tensors of these dtypes."""
    dtypes = [a.dtype if isinstance(a, torch.Tensor) else type(a) for a in args]
    if refusal.applies(dtypes):
        raise refusal.error(f"{func} takes {refusal.needs}, but got {', '.join(map(str, dtypes))}")


def _refuse_sparse_count(tensor: torch.Tensor) -> None:
    """Raise UnsupportedInGraph if the count of a sparse tensor's rows is asked for."""
    if type(tensor) is FakeTensor and tensor.layout is not torch.strided:
        raise UnsupportedInGraph(
            "the number of distinct rows of a sparse gradient is needed (coalesce), and it depends on values",
            "graph-optimizers",
            "Use an optimizer that adds sparse gradients as they are (SGD), or an embedding with"
            " sparse=False.",
        )


def _refuse_quantized(func: OpOverload) -> None:
    """Raise CaptureError for an operator that gives a quantized tensor."""
    raise CaptureError(
        f"{func} gives a quantized tensor, and torch has no symbolic ones",
        "Quantize outside of build(), or use the operators of torch.ops.quantized_decomposed.",
    )


_MARKED_ELEMENTS = 64  # a larger constant is no number of an optimizer


def refuse_marker(constant: torch.Tensor, markers: Collection[float]) -> None:
    """Raise if a number that the program computes became an element of a constant of the program."""
    if not markers or not constant.is_floating_point() or constant.numel() > _MARKED_ELEMENTS:
        return
    if torch.isin(constant, torch.tensor([*markers]).to(constant)).any():
        raise CaptureError(
            "the optimizer puts a number that changes from call to call (an option or a step counter) into a"
            " constant tensor",
            "Make the tensor with torch.tensor(number) or torch.full().",
        )


# ------------------------------------- Operators that follow a default dtype which build() itself has set
# A program runs under the default dtype of its caller, so it has to name the dtype of such a result.


def name_dtype(node: Node, operator: torch._ops.OpOverload, tensors: tuple[Any, ...], result: Any) -> None:
    """Give a recorded call of an operator the dtype of its result, or raise if the operator takes no dtype.

    `tensors` are the symbolic arguments of the call.
    """
    if not isinstance(result, torch.Tensor) or not (result.is_floating_point() or result.is_complex()):
        return
    if any(isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()) for t in tensors):
        return  # these arguments decide the dtype
    positions = [i for i, a in enumerate(operator._schema.arguments) if a.name == "dtype"]
    if not positions:
        raise CaptureError(
            f"{node.target} makes {result.dtype} of integers, because build() has set the default dtype",
            "Convert the integers first, as in x.to(torch.float64), or set the default dtype outside"
            " build().",
        )
    if positions[0] >= len(node.args) and node.kwargs.get("dtype") is None:
        node.kwargs = {**node.kwargs, "dtype": result.dtype}


def refuse_collective(func: OpOverload) -> None:
    """Raise CaptureError for a collective that the program would drop."""
    name = func._opname.strip("_")
    raise CaptureError(
        f"build() calls the collective {name} of torch.distributed on local tensors",
        "Call it outside of build(), or use global tensors.",
    )
