// Access to the values of tensors in scalar loops.
#pragma once

#include "../common.h"

namespace oneflow_ext {

template <class F>
void floating(const char* name, const Tensor& x, F&& f) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return f(float{});
    case ScalarType::Double: return f(double{});
    default: Checks(name).wide("x", x);
  }
}
template <class T>
const T* data(const Tensor& x) {
  return static_cast<const T*>(x.data_ptr());
}
template <class T>
T* mutable_data(const Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

}  // namespace oneflow_ext
