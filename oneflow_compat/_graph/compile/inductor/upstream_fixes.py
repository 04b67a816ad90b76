"""Fixes for memory reads and writes that torch's inductor overlooks (2.13, torch.compile too)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from .bounds_checks import scalar_masks_spread, tests_noted
from .in_place_fixes import in_place_fixes


@contextlib.contextmanager
def inductor_fixes() -> Iterator[None]:
    """Apply all fixes of this file, of in_place_fixes.py and of bounds_checks.py."""
    with (
        dependencies_kept(),
        views_kept(),
        ends_kept(),
        lists_of_one_read(),
        unread_buffers_kept(),
        stores_apart(),
        positions_rounded(),
        windows_of_the_kernel(),
        single_elements_in_memory(),
        in_place_fixes(),
        scalar_masks_spread(),
        tests_noted(),
    ):
        yield


@contextlib.contextmanager
def dependencies_kept() -> Iterator[None]:
    """Keep the dependencies of a CPU node whose loops are adapted to another node's loops before fusion.

    Its reads are listed anew, under the names that memory had before it was written in place (scatter_add).
    Without the fix, the node ran before the write.
    """
    from torch._inductor.dependencies import StarDep, WeakDep
    from torch._inductor.scheduler import SchedulerNode

    before = SchedulerNode.recompute_size_and_body

    def recompute(self: SchedulerNode, *args: Any, **kwargs: Any) -> None:
        only_order = type(self.read_writes.reads)(
            d for d in self.read_writes.reads if isinstance(d, (WeakDep, StarDep))
        )
        before(self, *args, **kwargs)
        self.set_read_writes(self.read_writes.with_read(only_order).rename(self.mutation_renames))

    with mock.patch.object(SchedulerNode, "recompute_size_and_body", recompute):
        yield


@contextlib.contextmanager
def views_kept() -> Iterator[None]:
    """Treat a write through a view that an operator creates (views of complex tensors) as a write to its
    base, too.

    Without the fix, reads of the base ran before the write: the gradient of irfft(), which is doubled in
    part, in a product.
    """
    from torch._inductor.ir import FallbackKernel, MultiOutputLayout, MutationOutput, NoneLayout
    from torch._inductor.virtualized import V

    before = FallbackKernel.__init__

    def viewed(name: str) -> Iterator[Any]:
        """Return the buffers that the buffer of this name is a view of."""
        buffer = V.graph.try_get_buffer(name)
        if not hasattr(buffer, "get_inputs_that_alias_output"):
            return
        for base in buffer.get_inputs_that_alias_output():
            yield base
            yield from viewed(base)

    def init(self: FallbackKernel, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        written = [name for out in (self, *self.mutation_outputs) for name in out.get_mutation_names()]
        bases: list[Any] = [V.graph.try_get_buffer(name) for view in written for name in viewed(view)]
        for base in bases:
            # a MultiOutputLayout is that of all results of an operator
            if not isinstance(getattr(base, "layout", None), MultiOutputLayout):
                self.mutation_outputs.append(MutationOutput(NoneLayout(device=base.get_device()), base, self))

    with mock.patch.object(FallbackKernel, "__init__", init):
        yield


@contextlib.contextmanager
def ends_kept() -> Iterator[None]:
    """Limit the stores of sums in C++ kernels to the end of the range, also if loops lie between the
    vectorized loop and the summing loop.

    Without the fix, kernels of transposed tiles stored a full vector past the end of the memory: t / t.std(1)
    of a permuted t.
    """
    from torch._inductor.codegen.cpp import CppKernelProxy

    before = CppKernelProxy.aggregate_reduction_buffers

    def aggregate(self: CppKernelProxy, sums_inside: bool, outer_loop: Any) -> None:
        if outer_loop is not None and not outer_loop.is_reduction:
            loops = self.loop_nest.loops
            level = [loop.var for loop in loops].index(outer_loop.var)
            sums_inside = sums_inside or any(loop.is_reduction for loop in loops[level + 1 :])
        before(self, sums_inside, outer_loop)

    with mock.patch.object(CppKernelProxy, "aggregate_reduction_buffers", aggregate):
        yield


@contextlib.contextmanager
def lists_of_one_read() -> Iterator[None]:
    """Read the element of a list of one tensor that an operator called from C++ through Python returns.

    Without the fix, the code took the list for the tensor, and the process ended: torch._foreach_log([x]).
    """
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    wrapper: Any = CppWrapperCpu
    before = wrapper.generate_fallback_kernel_with_runtime_lookup_python

    def generate(
        self: CppWrapperCpu, name: str, kernel: str, func: Any, args: Any, outputs: Any, raw_outputs: Any
    ) -> None:
        if len(outputs) == 1 and isinstance(func._schema.returns[0].type, torch.ListType):
            outputs, raw_outputs = [*outputs, None], raw_outputs and [*raw_outputs, None]
        before(self, name, kernel, func, args, outputs, raw_outputs)

    with mock.patch.object(wrapper, "generate_fallback_kernel_with_runtime_lookup_python", generate):
        yield


@contextlib.contextmanager
def unread_buffers_kept() -> Iterator[None]:
    """Keep a buffer in memory if a loop that is fused with its writer uses it under another name, after a
    write in place.

    Without the fix, compiling ended with a KeyError: `bank[rows] *= 0.5` in some programs.
    """
    from torch._inductor.loop_body import LoopBody

    before: Any = LoopBody.get_read_expr

    def read_expression(self: LoopBody, name: str) -> Any:
        try:
            return before(self, name)
        except KeyError:  # not equal to the expression of the write
            return None

    with mock.patch.object(LoopBody, "get_read_expr", read_expression):
        yield


@contextlib.contextmanager
def stores_apart() -> Iterator[None]:
    """Store a sum of half type into each of several buffers in a block of its own.

    The store converts the sum to a variable. Without the fix, the C++ code declared it once for each buffer
    and did not compile: the gradients of two biases that an LSTM cell adds.
    """
    from torch._inductor.codegen.common import DeferredLine
    from torch._inductor.codegen.cpp import CppVecKernel

    before: Any = CppVecKernel.store_reduction

    def store(self: CppVecKernel, name: str, index: Any, value: Any) -> None:
        self.reduction_suffix.writeline(DeferredLine(name, "{"))
        before(self, name, index, value)
        self.reduction_suffix.writeline(DeferredLine(name, "}"))

    with mock.patch.object(CppVecKernel, "store_reduction", store):
        yield


@contextlib.contextmanager
def positions_rounded() -> Iterator[None]:
    """Read values of half type that are computed from positions alone from memory, as all others.

    Inductor computes them again for each reader, without rounding. In the gradient of scatter_reduce with
    amax, no element of `arange(17.0) * 1.12` in bfloat16 equalled the largest one.
    """
    from torch._inductor.ir import Buffer, ComputedBuffer

    before: Any = ComputedBuffer.make_loader

    def make_loader(self: ComputedBuffer) -> Any:
        is_half = self.get_dtype() in (torch.bfloat16, torch.float16)
        if is_half and self.num_reads() == 0 and self.get_read_writes().index_exprs:
            return Buffer.make_loader(self)
        return before(self)

    with mock.patch.object(ComputedBuffer, "make_loader", make_loader):
        yield


@contextlib.contextmanager
def windows_of_the_kernel() -> Iterator[None]:
    """Let fractional pooling choose its windows in the kernel, which computes them in the dtype of the input.

    Inductor computes them in the dtype of the samples: other windows in half types.
    """
    from torch._inductor import lowering

    names = "fractional_max_pool2d", "fractional_max_pool3d"
    kernels: list[Any] = [getattr(torch.ops.aten, name).default for name in names]
    forms: Any = {kernel: lowering.fallback_handler(kernel, add_to_fallback_set=False) for kernel in kernels}
    with mock.patch.dict(lowering.lowerings, forms):
        yield


@contextlib.contextmanager
def single_elements_in_memory() -> Iterator[None]:
    """Compute a tensor of one element in memory, too, where the graph asks for memory of some strides.

    Inductor leaves it to the loops that read it: see rewrites.compare_results_in_memory.
    """
    from torch._inductor import lowering

    target = torch.ops.prims.inductor_force_stride_order.default
    before: Any = lowering.lowerings[target]

    def in_memory(*args: Any, **kwargs: Any) -> Any:
        result = before(*args, **kwargs)
        result.realize()
        return result

    with mock.patch.dict(lowering.lowerings, {target: in_memory}):
        yield
