// Argument checks and allocation, shared by the CPU and CUDA registrations.
#pragma once
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "arguments.h"

namespace oneflow_ext {

// Out of memory. torch's own error would name a function of its ABI.
[[noreturn]] inline void refuse_allocation(const int64_t* sizes, size_t count) {
  throw std::runtime_error("oneflow: can't allocate memory for a tensor of shape " +
                           shape_text(sizes, count));
}

// x itself, or a contiguous copy.
inline Tensor dense(const Tensor& x) {
  if (x.is_contiguous()) return x;
  try {
    return torch::stable::contiguous(x);
  } catch (const std::exception&) { refuse_allocation(x.sizes().data(), x.sizes().size()); }
}

// A new tensor on the device of `like`. The shim takes a tenth of the time of aten::new_empty through the
// dispatcher.
inline Tensor fresh_strided(const Tensor& like, const std::vector<int64_t>& sizes,
                            const std::vector<int64_t>& strides,
                            std::optional<ScalarType> dtype = std::nullopt) {
  int32_t type, index, code;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &type));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &index));
  if (dtype.has_value())
    code = torch::stable::detail::to<int32_t>(torch::stable::detail::from(*dtype));
  else
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &code));
  AtenTensorHandle made = nullptr;
  if (aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), code, type,
                               index, &made) != AOTI_TORCH_SUCCESS)
    refuse_allocation(sizes.data(), sizes.size());
  return Tensor(made);
}
inline Tensor fresh(const Tensor& like, const std::vector<int64_t>& sizes,
                    std::optional<ScalarType> dtype = std::nullopt) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  bool counts = true;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    counts = !__builtin_mul_overflow(stride, std::max<int64_t>(sizes[d], 1), &stride) && counts;
  }
  if (!counts && std::find(sizes.begin(), sizes.end(), 0) == sizes.end())
    refuse_allocation(sizes.data(), sizes.size());
  return fresh_strided(like, sizes, strides, dtype);
}
inline std::vector<int64_t> shape(const Tensor& x) { return {x.sizes().begin(), x.sizes().end()}; }
inline Tensor fresh_like(const Tensor& x) { return fresh(x, shape(x)); }

inline uint64_t seed_of(const Tensor& seed) { return static_cast<uint64_t>(*seed.const_data_ptr<int64_t>()); }

// How x is split into rows for a bias along `axis` (see Kernels::bias_gelu).
struct BiasRows {
  int64_t rows, n, per_row, outer;  // outer: the product of the sizes before `axis`
  bool in_row;                      // whether a row holds the whole bias
};
inline BiasRows bias_rows(const Tensor& x, int64_t axis) {
  uint64_t outer = 1, inner = 1;  // unsigned, because the other sizes of an empty tensor may overflow
  for (int64_t d = 0; d < axis; ++d) outer *= static_cast<uint64_t>(x.size(d));
  for (int64_t d = axis + 1; d < x.dim(); ++d) inner *= static_cast<uint64_t>(x.size(d));
  const int64_t c = x.size(axis), before = static_cast<int64_t>(outer), after = static_cast<int64_t>(inner);
  if (inner == 1) return {before, c, 0, before, true};
  return {static_cast<int64_t>(outer * static_cast<uint64_t>(c)), after, c, before, false};
}

}  // namespace oneflow_ext
