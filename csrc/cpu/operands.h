// Helpers shared by the CPU operators.
#pragma once
#include "../common.h"
#include "kernels.h"

namespace oneflow_ext {

inline oneflow_cpu::Dtype dtype_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return oneflow_cpu::Dtype::f32;
    case ScalarType::Double: return oneflow_cpu::Dtype::f64;
    case ScalarType::BFloat16: return oneflow_cpu::Dtype::bf16;
    default:
      throw std::logic_error(
          "oneflow: a CPU kernel for a dtype that the operator's checks should have refused, found " +
          std::string(dtype_text(x.scalar_type())));
  }
}

// The minimal number of rows for a thread, so that it gets about 16k elements.
inline int64_t grain(int64_t n) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)); }

}  // namespace oneflow_ext
