// Argument checks of all operators, for CPU and CUDA, on torch's stable ABI. An error names the operator, the
// argument, the requirement and the value found:
//   oneflow::bias_gelu: bias must have shape (4), found (3)
#pragma once
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#ifndef STABLE_TORCH_ERROR_CODE_CHECK  // torch 2.11 does not define it
#define STABLE_TORCH_ERROR_CODE_CHECK(call) TORCH_ERROR_CODE_CHECK(call)
#endif

namespace oneflow_ext {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t kAny = -1;  // a size that may have any value
constexpr int64_t kMaxSize =
    std::numeric_limits<int32_t>::max();  // bounds sizes and steps, so that a product of two cannot overflow
constexpr int64_t kMaxOffset =
    std::numeric_limits<int64_t>::max() / 2;  // bounds values that a position is added to

// An argument's name; `index` is its position in an argument that is a list.
struct ArgumentName {
  const char* name;
  int64_t index;
  ArgumentName(const char* name, int64_t index = -1) : name(name), index(index) {}
};

// Convert the parts of a message to text. Do not use streams: writing a number to a std::ostringstream ended
// the process if torch's CUDA libraries were loaded (torch 2.11 for CUDA 13).
inline std::string text(const char* part) { return part; }
inline std::string text(const std::string& part) { return part; }
inline std::string text(const ArgumentName& argument) {
  const std::string name = argument.name;
  return argument.index < 0 ? name : name + "[" + std::to_string(argument.index) + "]";
}
template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
std::string text(Number value) {
  if constexpr (std::is_integral_v<Number>) return std::to_string(value);
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", static_cast<double>(value));
  return digits;
}

inline std::string shape_text(const int64_t* sizes, size_t count) {
  std::string text = "(";
  for (size_t d = 0; d < count; ++d)
    text += (d ? ", " : "") + (sizes[d] == kAny ? std::string("any") : std::to_string(sizes[d]));
  return text + ")";
}
inline std::string shape_text(const Tensor& x) { return shape_text(x.sizes().data(), x.sizes().size()); }

// A dtype as Python writes it.
inline const char* dtype_text(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return "uint8";
    case ScalarType::Char: return "int8";
    case ScalarType::Short: return "int16";
    case ScalarType::Int: return "int32";
    case ScalarType::Long: return "int64";
    case ScalarType::Half: return "float16";
    case ScalarType::Float: return "float32";
    case ScalarType::Double: return "float64";
    case ScalarType::ComplexFloat: return "complex64";
    case ScalarType::ComplexDouble: return "complex128";
    case ScalarType::Bool: return "bool";
    case ScalarType::BFloat16: return "bfloat16";
    default: return toString(type);
  }
}

// The properties of a tensor that other tensors are compared with. They are read once, because each call of
// the shim costs time. Borrows the tensor's sizes.
struct TensorFacts {
  int32_t device_type, device_index = -1;
  ScalarType dtype;
  torch::headeronly::IntHeaderOnlyArrayRef sizes;
  TensorFacts(const Tensor& x) : dtype(x.scalar_type()), sizes(x.sizes()) {
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(x.get(), &device_type));
    if (device_type != aoti_torch_device_type_cpu())
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(x.get(), &device_index));
  }
};

// The checks of one operator. Errors name it as oneflow::`op`.
class Checks {
 public:
  explicit Checks(const char* op) : op_(op) {}

  // The error of an argument: "<argument> must <parts>".
  template <class... Parts>
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(ArgumentName argument, const Parts&... must) const {
    std::string message = std::string("oneflow::") + op_ + ": " + text(argument) + " must ";
    ((message += text(must)), ...);
    throw std::runtime_error(message);
  }

  // --- tensors
  // Device indices are not compared on the CPU, because there is only one.
  void same_device(ArgumentName name, const Tensor& x, const char* like_name, const TensorFacts& like) const {
    int32_t type, index = like.device_index;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(x.get(), &type));
    if (type != like.device_type || type != aoti_torch_device_type_cpu())
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(x.get(), &index));
    if (type != like.device_type || index != like.device_index)
      refuse(name, "be on the device of ", like_name, ", ", device_text(like.device_type, like.device_index),
             ", found ", device_text(type, index));
  }
  void dtype(ArgumentName name, const Tensor& x, std::initializer_list<ScalarType> allowed) const {
    const ScalarType found = x.scalar_type();
    for (const ScalarType type : allowed)
      if (type == found) return;
    std::string names;
    for (const ScalarType type : allowed)
      names += (names.empty() ? "" : ", ") + std::string(dtype_text(type));
    refuse(name, "have dtype ", names, ", found ", dtype_text(found));
  }
  // x has a floating dtype that the kernels of its device support.
  void floating(ArgumentName name, const Tensor& x) const {
    if (x.is_cpu())
      dtype(name, x, {ScalarType::Float, ScalarType::Double, ScalarType::BFloat16});
    else
      dtype(name, x, {ScalarType::Float, ScalarType::Double, ScalarType::BFloat16, ScalarType::Half});
  }
  // x has a dtype supported by operators that compute in the dtype of their input.
  void wide(ArgumentName name, const Tensor& x) const {
    dtype(name, x, {ScalarType::Float, ScalarType::Double});
  }
  void same_dtype(ArgumentName name, const Tensor& x, const char* like_name, const TensorFacts& like) const {
    const ScalarType found = x.scalar_type();
    if (found != like.dtype)
      refuse(name, "have the dtype of ", like_name, ", ", dtype_text(like.dtype), ", found ",
             dtype_text(found));
  }
  // x has the device and dtype of `like`.
  void same_options(ArgumentName name, const Tensor& x, const char* like_name,
                    const TensorFacts& like) const {
    same_device(name, x, like_name, like), same_dtype(name, x, like_name, like);
  }
  void dims(ArgumentName name, const Tensor& x, int64_t low, int64_t high) const {
    const int64_t found = x.dim();
    if (found >= low && found <= high) return;
    if (low == high) refuse(name, "have ", low, " dimensions, found ", found, ": shape ", shape_text(x));
    refuse(name, "have ", low, " to ", high, " dimensions, found ", found, ": shape ", shape_text(x));
  }
  void dims(ArgumentName name, const Tensor& x, int64_t count) const { dims(name, x, count, count); }
  // x has these sizes; kAny matches any size.
  void shape(ArgumentName name, const Tensor& x, std::initializer_list<int64_t> sizes) const {
    const auto found = x.sizes();
    bool fits = found.size() == sizes.size();
    for (size_t d = 0; fits && d < sizes.size(); ++d)
      fits = sizes.begin()[d] == kAny || sizes.begin()[d] == found[d];
    if (!fits)
      refuse(name, "have shape ", shape_text(sizes.begin(), sizes.size()), ", found ", shape_text(x));
  }
  void same_shape(ArgumentName name, const Tensor& x, const char* like_name, const TensorFacts& like) const {
    if (!x.sizes().equals(like.sizes))  // torch 2.11 has no operator== for sizes
      refuse(name, "have the shape of ", like_name, ", ", shape_text(like.sizes.data(), like.sizes.size()),
             ", found ", shape_text(x));
  }
  // x has the device, dtype and shape of `like`.
  void alike(ArgumentName name, const Tensor& x, const char* like_name, const TensorFacts& like) const {
    same_options(name, x, like_name, like), same_shape(name, x, like_name, like);
  }
  void elements(ArgumentName name, const Tensor& x, int64_t count) const {
    if (x.numel() != count)
      refuse(name, "have ", count, count == 1 ? " element" : " elements", ", found ", x.numel(), ": shape ",
             shape_text(x));
  }
  void contiguous(ArgumentName name, const Tensor& x) const {
    if (!x.is_contiguous())
      refuse(name, "be contiguous, as it is written in place, found shape ", shape_text(x), " and strides ",
             shape_text(x.strides().data(), x.strides().size()));
  }

  // --- numbers and lists
  template <class Number>
  void range(ArgumentName name, Number value, Number low, Number high) const {
    if (!(value >= low && value <= high))
      refuse(name, "be ", low, " to ", high, ", found ", value);  // refuses NaN
  }
  void at_least(ArgumentName name, int64_t value, int64_t low) const {
    if (value < low) refuse(name, "be at least ", low, ", found ", value);
  }
  void length(ArgumentName name, size_t found, size_t low, size_t high) const {
    if (found >= low && found <= high) return;
    if (low == high) refuse(name, "have ", low, low == 1 ? " entry" : " entries", ", found ", found);
    refuse(name, "have ", low, " to ", high, " entries, found ", found);
  }
  void length(ArgumentName name, size_t found, size_t count) const { length(name, found, count, count); }
  void axis(ArgumentName name, int64_t value, const char* tensor_name, const Tensor& x) const {
    dims(tensor_name, x, 1, std::numeric_limits<int64_t>::max());
    if (value < 0 || value >= x.dim())
      refuse(name, "be a dimension of ", tensor_name, ", 0 to ", x.dim() - 1, ", found ", value);
  }
  // A dropout probability and the int64 seed of its random numbers. Without dropout no seed is needed.
  void dropout(double p, const std::optional<Tensor>& seed, const char* like_name, const Tensor& like) const {
    range("p", p, 0.0, 1.0);
    if (!seed.has_value()) {
      if (p > 0) refuse("seed", "be given where p is above 0, found None and p = ", p);
      return;
    }
    same_device("seed", *seed, like_name, like), dtype("seed", *seed, {ScalarType::Long}),
        elements("seed", *seed, 1);
  }

 private:
  static std::string device_text(int32_t type, int32_t index) {
    const std::string name = type == aoti_torch_device_type_cpu()    ? "cpu"
                             : type == aoti_torch_device_type_cuda() ? "cuda"
                                                                     : "device type " + std::to_string(type);
    return index < 0 || name == "cpu" ? name : name + ":" + std::to_string(index);
  }

  const char* op_;
};

}  // namespace oneflow_ext
