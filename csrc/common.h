// What the operators' CPU and CUDA registrations share: checks, allocation.
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

#ifndef STABLE_TORCH_ERROR_CODE_CHECK  // torch 2.11 has no such name yet
#define STABLE_TORCH_ERROR_CODE_CHECK(call) TORCH_ERROR_CODE_CHECK(call)
#endif

namespace oneflow_ext {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline Tensor dense(const Tensor& x) { return x.is_contiguous() ? x : torch::stable::contiguous(x); }

// A new tensor on `like`'s device. Through the shim: a tenth of a call of aten::new_empty through the dispatcher.
inline Tensor fresh_strided(const Tensor& like, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, std::optional<ScalarType> dtype = std::nullopt) {
  int32_t type, index, code;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &type));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &index));
  if (dtype.has_value()) code = torch::stable::detail::to<int32_t>(torch::stable::detail::from(*dtype));
  else STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &code));
  AtenTensorHandle made = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), code, type, index, &made));
  return Tensor(made);
}
inline Tensor fresh(const Tensor& like, const std::vector<int64_t>& sizes, std::optional<ScalarType> dtype = std::nullopt) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) strides[d] = stride, stride *= std::max<int64_t>(sizes[d], 1);
  return fresh_strided(like, sizes, strides, dtype);
}
inline std::vector<int64_t> shape(const Tensor& x) { return {x.sizes().begin(), x.sizes().end()}; }
inline Tensor fresh_like(const Tensor& x) { return fresh(x, shape(x)); }

inline uint64_t seed_of(const Tensor& seed) { return static_cast<uint64_t>(*seed.const_data_ptr<int64_t>()); }

// Rows and their length for a bias along `axis` of x (see Kernels::bias_gelu).
struct BiasRows {
  int64_t rows, n, per_row;
};
inline BiasRows bias_rows(const Tensor& x, int64_t axis) {
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < axis; ++d) outer *= x.size(d);
  for (int64_t d = axis + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t c = x.size(axis);
  return inner == 1 ? BiasRows{outer, c, 0} : BiasRows{outer * c, inner, c};
}

// What crop_mirror_normalize needs of its arguments.
inline void check_window(const Tensor& images, const std::optional<Tensor>& mirror, int64_t top, int64_t left, const std::vector<double>& mean, const std::vector<double>& scale, const Tensor& out) {
  STD_TORCH_CHECK(images.scalar_type() == ScalarType::Byte && images.dim() == 4 && (images.size(3) == 1 || images.size(3) == 3),
                  "oneflow::crop_mirror_normalize: images must be uint8 (N, H, W, 1 or 3)");
  const int64_t channels = images.size(3);
  STD_TORCH_CHECK(out.scalar_type() == ScalarType::Float && out.dim() == 4 && out.is_contiguous() && out.size(0) == images.size(0) && out.size(1) == channels,
                  "oneflow::crop_mirror_normalize: out must be contiguous float32 (N, C, height, width)");
  STD_TORCH_CHECK(top >= 0 && left >= 0 && top + out.size(2) <= images.size(1) && left + out.size(3) <= images.size(2), "oneflow::crop_mirror_normalize: a window of ",
                  out.size(2), " x ", out.size(3), " at ", top, ", ", left, " is not in images of ", images.size(1), " x ", images.size(2));
  STD_TORCH_CHECK(static_cast<int64_t>(mean.size()) == channels && static_cast<int64_t>(scale.size()) == channels,
                  "oneflow::crop_mirror_normalize: ", channels, " channels, ", mean.size(), " means and ", scale.size(), " scales");
  STD_TORCH_CHECK(!mirror.has_value() || (mirror->scalar_type() == ScalarType::Char && mirror->is_contiguous() && mirror->numel() == images.size(0)),
                  "oneflow::crop_mirror_normalize: mirror must be int8, contiguous, one for each image");
}

}  // namespace oneflow_ext
