"""The results of torch's own kernels in a region, in the layout that the compiled code around them assumes.

Inductor takes the layout of a result from torch's fake kernel, and its loops read memory by that layout. Some
fake kernels give other strides than the kernel: replication_pad2d_backward of a channels-last image (2.13).
torch.compile raises an error then. Here the generated code compares both after each call of a kernel. It
copies a result of other strides, and raises an error for another shape or dtype.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from ...program.operators import facts_of, has_new_results

if TYPE_CHECKING:
    from torch._inductor.ir import ExternKernel

_OTHER_RESULT = "has another shape or dtype than the program was compiled for, or is a view of other strides"
_IN_CPP = f"""
static void oneflow_lay_out(RAIIAtenTensorHandle& result, const char* name, bool may_copy,
    int32_t dtype, int32_t device_type, int32_t device_index,
    std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides) {{
  int64_t dims, *actual_sizes, *actual_strides;
  int32_t actual_dtype;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(result, &dims));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(result, &actual_sizes));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(result, &actual_strides));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(result, &actual_dtype));
  bool is_right = dims == (int64_t)sizes.size() && dtype == actual_dtype, is_laid_out = true;
  for (int64_t i = 0; is_right && i < dims; ++i) {{
    is_right = sizes.begin()[i] == actual_sizes[i];
    is_laid_out = is_laid_out && (actual_sizes[i] < 2 || strides.begin()[i] == actual_strides[i]);
  }}
  if (!is_right || !is_laid_out && !may_copy)
    throw std::runtime_error(std::string("a result of ") + name + " {_OTHER_RESULT}");
  if (is_laid_out) return;
  AtenTensorHandle handle;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      dims, sizes.begin(), strides.begin(), dtype, device_type, device_index, &handle));
  RAIIAtenTensorHandle copy(handle);
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(copy, result, 0));
  result = std::move(copy);
}}
"""


@contextlib.contextmanager
def results_laid_out() -> Iterator[None]:
    """Compare the results of kernels with the assumed layouts, in place of inductor's own assertions."""
    from torch._inductor.ir import ExternKernel

    with mock.patch.object(ExternKernel, "codegen_size_asserts", _write_comparison):
        yield


def _write_comparison(self: ExternKernel, wrapper: Any) -> None:
    from torch._inductor.virtualized import V

    if any(size == 0 for size in self.get_size()) or _is_opaque(self):
        return  # nothing is read, or by another kernel only
    layout: Any = [wrapper.codegen_shape_tuple(n) for n in (self.get_size(), self.get_stride())]
    name, (operator, may_copy) = self.get_name(), _operator_of(self)
    if not V.graph.cpp_wrapper:
        wrapper.add_import_once(f"from {__name__} import laid_out")
        wrapper.writeline(
            f"{name} = laid_out({name}, {operator!r}, {may_copy}, {self.get_dtype()}, {', '.join(layout)})"
        )
        return
    if "oneflow_lay_out" not in wrapper.header.getvalue():
        wrapper.header.splice(_IN_CPP)
    dtype, device = wrapper.codegen_dtype(self.get_dtype()), wrapper.codegen_device(self.get_device())
    flag = "true" if may_copy else "false"
    wrapper.writeline(
        f'oneflow_lay_out({name}, "{operator}", {flag}, {dtype}, {device}, {", ".join(layout)});'
    )


def _is_opaque(kernel: Any) -> bool:
    """Whether only the operator of the gradient reads this result of an operator."""
    indices: Any = getattr(kernel, "indices", ())  # those of one of several results: [(type, index)]
    operator = getattr(kernel.inputs[0], "op_overload", None) if indices else None
    return operator is not None and indices[0][1] in facts_of(operator).opaque_results


def _operator_of(kernel: Any) -> tuple[str, bool]:
    """Return the name of the operator whose result this is, and whether the result is a fresh buffer."""
    if kernel.op_overload is None and kernel.inputs and hasattr(kernel.inputs[0], "op_overload"):
        kernel = kernel.inputs[0]  # a node that takes one of several results
    operator = kernel.op_overload
    return str(operator or kernel.get_name()), operator is None or has_new_results(operator)


def laid_out(
    result: torch.Tensor,
    operator: str,
    may_copy: bool,
    dtype: torch.dtype,
    sizes: Sequence[int],
    strides: Sequence[int],
) -> torch.Tensor:
    """Return a result of a kernel in the layout that the compiled code assumes."""
    is_laid_out = all(n < 2 or a == b for n, a, b in zip(result.shape, result.stride(), strides))
    if tuple(result.shape) != tuple(sizes) or result.dtype != dtype or not (is_laid_out or may_copy):
        raise RuntimeError(f"a result of {operator} {_OTHER_RESULT}")
    if is_laid_out:
        return result
    return torch.empty_strided(sizes, strides, dtype=dtype, device=result.device).copy_(result)
