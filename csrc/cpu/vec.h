// Loops over at::vec for float, double and bfloat16 (which is computed in float). Included once an instruction set.
#pragma once
#include <ATen/cpu/vec/vec.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

template <class T>
using Vec = at::vec::Vectorized<T>;
template <class T>
using Acc = std::conditional_t<std::is_same_v<T, c10::BFloat16>, float, T>;

template <class F>
inline void dispatch(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f32: return f(float{});
    case Dtype::f64: return f(double{});
    case Dtype::bf16: return f(c10::BFloat16{});
  }
}

constexpr int64_t kChunk = 512;  // elements of a bfloat16 tensor converted at a time

// `count` elements of a row of T as the type they are computed in: the row itself, or a copy in `buffer`.
template <class T>
inline const Acc<T>* widen(const T* from, Acc<T>* buffer, int64_t count) {
  if constexpr (std::is_same_v<T, Acc<T>>) {
    return from;
  } else {
    for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<float>(from[i]);
    return buffer;
  }
}
template <class T>
inline Acc<T>* target(T* to, Acc<T>* buffer) {
  if constexpr (std::is_same_v<T, Acc<T>>) return to;
  else return buffer;
}
template <class T>
inline void narrow(T* to, const Acc<T>* buffer, int64_t count) {
  if constexpr (!std::is_same_v<T, Acc<T>>)
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(buffer[i]);
}

// f(Vec x[NI], Vec y[NO]) over [begin, end).
template <class T, int NI, int NO, class F>
inline void loop(const std::array<const T*, NI>& in, const std::array<T*, NO>& out, int64_t begin, int64_t end, F&& f) {
  using A = Acc<T>;
  constexpr bool direct = std::is_same_v<T, A>;
  constexpr int64_t width = Vec<A>::size();
  A in_buffer[direct ? 1 : NI][direct ? 1 : kChunk], out_buffer[direct ? 1 : NO][direct ? 1 : kChunk];
  for (int64_t chunk = begin; chunk < end; chunk += direct ? end - begin : kChunk) {
    const int64_t count = direct ? end - begin : std::min(kChunk, end - chunk);
    const A* x[NI];
    A* y[NO];
    for (int k = 0; k < NI; ++k) x[k] = widen<T>(in[k] + chunk, in_buffer[direct ? 0 : k], count);
    for (int k = 0; k < NO; ++k) y[k] = target<T>(out[k] + chunk, out_buffer[direct ? 0 : k]);
    Vec<A> a[NI], b[NO];
    int64_t i = 0;
    for (; i + width <= count; i += width) {
      for (int k = 0; k < NI; ++k) a[k] = Vec<A>::loadu(x[k] + i);
      f(a, b);
      for (int k = 0; k < NO; ++k) b[k].store(y[k] + i);
    }
    if (i < count) {
      for (int k = 0; k < NI; ++k) a[k] = Vec<A>::loadu(x[k] + i, count - i);
      f(a, b);
      for (int k = 0; k < NO; ++k) b[k].store(y[k] + i, count - i);
    }
    for (int k = 0; k < NO; ++k) narrow<T>(out[k] + chunk, y[k], count);
  }
}

template <class A>
inline Vec<A> gelu(const Vec<A>& x) {
  return Vec<A>(A(0.5)) * x * (Vec<A>(A(1)) + (x * Vec<A>(A(M_SQRT1_2))).erf());
}
template <class A>
inline Vec<A> gelu_slope(const Vec<A>& x) {
  const Vec<A> half(A(0.5)), one(A(1)), density(A(M_2_SQRTPI * M_SQRT1_2 * 0.5));
  return half * (one + (x * Vec<A>(A(M_SQRT1_2))).erf()) + x * density * (x * x * Vec<A>(A(-0.5))).exp();
}
// The argument of tanh in the tanh gelu.
template <class A>
inline Vec<A> tanh_inner(const Vec<A>& x) {
  return Vec<A>(A(M_SQRT2 * M_2_SQRTPI * 0.5)) * (x + Vec<A>(A(0.044715)) * x * x * x);
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
