"""The symbolic results of a recorded operator, also if their shape depends on values."""

from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx import Node

from ...errors import CaptureError
from ...program.operators import facts_of
from ..interfaces import RecorderInterface
from ..values.branch_values import known_shape

aten = torch.ops.aten
_DEPENDS_ON_VALUES = (DynamicOutputShapeException, DataDependentOutputException)


def symbolic_results(
    recorder: RecorderInterface, func: OpOverload, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the results of an operator, which `node` records; without results, erase the node and raise."""
    if not facts_of(func).has_fake_kernel:
        return None
    try:
        return recorder.results(func, args, kwargs)
    except _DEPENDS_ON_VALUES:
        out = _of_values(recorder, func, node, args, kwargs)
        if out is None:
            recorder.graph.erase_node(node)
            raise CaptureError(
                f"{func} gives a tensor whose shape depends on values, and has no symbolic form for that",
                "Use a form with a fixed shape, or compute that part outside the graph.",
            ) from None
        return out
    except BaseException:
        recorder.graph.erase_node(node)
        raise


def _of_values(
    recorder: RecorderInterface, func: OpOverload, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return results whose shape depends on values, with known or with unknown sizes, or None."""
    if recorder.sizes.vary:
        out = _of_unknown_size(recorder, func, args, kwargs)
        return known_shape(recorder, func, node, args) if out is None else out
    out = known_shape(recorder, func, node, args)
    return _of_unknown_size(recorder, func, args, kwargs) if out is None else out


def _of_unknown_size(
    recorder: RecorderInterface, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    recorder.sizes.begin()
    try:
        return recorder.results(func, args, kwargs)
    except _DEPENDS_ON_VALUES:
        return None


def with_eager_dtypes(mode: FakeTensorMode, func: OpOverload, args: tuple[Any, ...], out: Any) -> Any:
    """Return the results with the dtypes of eager's kernel where torch's symbolic form gives others."""
    statistics = facts_of(func).statistics
    if statistics and args[0].device.type == "cpu":
        dtype = next((args[i].dtype for i in statistics if args[i] is not None), args[0].dtype)
        if dtype != args[0].dtype:
            with mode:
                return out[0], *(t.to(torch.float32) for t in out[1:])
    elif func is aten._pack_padded_sequence.default and type(out[1]) is FakeTensor:
        with mode:
            return out[0], out[1].long()  # torch gives the numbers of rows the dtype of the data
    return out
