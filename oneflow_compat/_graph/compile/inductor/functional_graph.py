"""A region as a graph without writes, in inductor's operators."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...._signals import run_waiting_handlers
from ...program.operators import has_collectives, has_new_results
from ...program.program import is_view, node_argument
from .decompositions import table
from .samplers import equal_samplings_apart
from .symbols import has_fixed_results

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx import Graph, GraphModule, Node
    from torch.fx.node import Target

    from ...program.tensor_info import TensorInfo
    from .regions import Region


def functional_graph(module: Region, examples: Sequence[Any], sizes: int) -> GraphModule:
    """Trace a region without writes, in inductor's operators. The first `sizes` examples are symbols."""
    from torch._functorch.compile_utils import fx_graph_cse
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    def flat(*values: Any) -> list[Any]:
        return list(_Functional(module, graph=module.graph).run(*values[sizes:]))

    gm = make_fx(
        torch.func.functionalize(flat, remove="mutations"),
        decomposition_table={**select_decomp_table(), **table()},
        tracing_mode="real",
        _allow_non_fake_inputs=True,
    )(*examples)
    # equal nodes must stay apart: a recomputation and what it saves, two collectives of a single rank
    if not _recomputes(module.graph) and not has_collectives(module.graph):
        with equal_samplings_apart(gm.graph):
            gm.graph = fx_graph_cse(gm.graph)
    return gm


def _is_new(node: Node) -> bool:
    """Return True if the result of the node is a fresh buffer."""
    while node.target is operator.getitem:
        node = node_argument(node, 0)
    return has_new_results(node.target)


def _have_equal_strides(shape: Sequence[int], stride: Sequence[int], captured_stride: Sequence[int]) -> bool:
    return 0 in shape or all(a == b for n, a, b in zip(shape, stride, captured_stride) if n > 1)


class _Functional(torch.fx.Interpreter):
    """An interpreter whose constants take part in functionalize() like inputs, because values computed from
    them may be written.

    Results keep the layout of the capture.
    """

    def run_node(self, node: Node) -> Any:
        run_waiting_handlers()
        if node.target in _BATCH_NORMS and _writes_statistics(node):
            return _batch_norm(node.target, *self.fetch_args_kwargs_from_env(node)[0])
        if (without_write := _form_without_write(node)) is not None:
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            return args[0].copy_(without_write(*args, **kwargs))
        result, info = super().run_node(node), node.meta.get("tensor")
        if (
            info is None
            or info.stride is None
            or not has_fixed_results(node)
            or not _is_new(node)
            or _have_equal_strides(info.shape, result.stride(), info.stride)
        ):
            return result
        order = sorted(range(result.ndim), key=info.stride.__getitem__, reverse=True)
        copied = result.permute(order).contiguous().permute([order.index(i) for i in range(result.ndim)])
        return copied if _have_equal_strides(info.shape, copied.stride(), info.stride) else result

    def get_attr(self, target: Target, args: Any, kwargs: Any) -> torch.Tensor:
        level: Any = torch._C._functorch.maybe_current_level()
        return torch._C._functorch._wrap_functional_tensor(super().get_attr(target, args, kwargs), level)


def _form_without_write(node: Node) -> OpOverload | None:
    """Return the operator that computes what a node writes into a tensor that is not dense in its own order.

    The result of `put` is dense, and functionalize() would give the tensor that is viewed other strides.
    """
    schema = getattr(node.target, "_schema", None)
    keep_strides = {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded}
    if schema is None or not schema.is_mutable or node.target is torch.ops.aten.copy_.default:
        return None
    if not keep_strides.isdisjoint(node.target.tags):
        return None
    info = node_argument(node, 0).meta.get("tensor") if isinstance(node.args[0], torch.fx.Node) else None
    if info is None or info.stride is None or not is_view(node_argument(node, 0)) or _is_dense(info):
        return None
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
    form: OpOverload | None = getattr(packet, schema.overload_name or "default", None)
    return form if form is not None and not form._schema.is_mutable and has_new_results(form) else None


def _is_dense(info: TensorInfo) -> bool:
    expected: Any = 1
    for size, step in zip(reversed(info.shape), reversed(info.stride or ())):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


_BATCH_NORMS = (torch.ops.aten.native_batch_norm.default, torch.ops.aten.cudnn_batch_norm.default)


def _writes_statistics(node: Node) -> bool:
    statistics, training = node.args[3], node.args[5]
    return bool(training) and statistics is not None


def _batch_norm(target: OpOverload, *args: Any) -> tuple[torch.Tensor, ...]:
    """Use the batch norm operator whose schema declares the write of the running statistics, because
    functionalize() relies on schemas.
    """
    out = torch.ops.aten._native_batch_norm_legit.default(*args)
    return out if target is _BATCH_NORMS[0] else (*out, args[0].new_empty(0, dtype=torch.uint8))


def _recomputes(graph: Graph) -> bool:
    return any(n.meta.get("recomputed") for n in graph.nodes)
