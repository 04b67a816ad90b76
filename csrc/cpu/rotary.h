// Rotary embedding of one row of k, and the dot products of one sample's feature vectors.
#pragma once
#include <vector>

#include "vec.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// Rotate pairs (a, b), the first of them at indices `first` and `second`: a' = a cos_a - b sin_a, b' = b
// cos_b + a sin_b. The backward pass applies the transpose.
template <class T>
inline void turn(const T* __restrict x, const Acc<T>* __restrict cos, const Acc<T>* __restrict sin,
                 T* __restrict y, int64_t first, int64_t second, int64_t count, int64_t step, bool backward) {
  using A = Acc<T>;
  const int64_t d = second - first;
  x += first, cos += first, sin += first, y += first;
  if (backward) {
    for (int64_t i = 0; i < count * step; i += step) {
      const A a = static_cast<A>(x[i]), b = static_cast<A>(x[i + d]);
      y[i] = static_cast<T>(a * cos[i] + b * sin[i + d]);
      y[i + d] = static_cast<T>(b * cos[i + d] - a * sin[i]);
    }
  } else {
    for (int64_t i = 0; i < count * step; i += step) {
      const A a = static_cast<A>(x[i]), b = static_cast<A>(x[i + d]);
      y[i] = static_cast<T>(a * cos[i] - b * sin[i]);
      y[i + d] = static_cast<T>(b * cos[i + d] + a * sin[i + d]);
    }
  }
}

// x and y have k elements; cos and sin have `size` elements in the compute dtype. Each chunk of `part`
// elements is rotated separately; elements from `size` on are copied.
inline void rotary(Dtype dtype, const void* x, const void* cos, const void* sin, void* y, int64_t k,
                   int64_t size, int64_t part, bool interval, bool backward) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    const auto *c = static_cast<const Acc<T>*>(cos), *s = static_cast<const Acc<T>*>(sin);
    for (int64_t at = 0; at < size; at += part) {
      if (interval)
        turn<T>(from, c, s, to, at, at + 1, part / 2, 2, backward);
      else
        turn<T>(from, c, s, to, at, at + part / 2, part / 2, 1, backward);
    }
    std::copy(from + size, from + k, to + size);
  });
}

// out[r * step + c] = a_r . b_c for R rows of a and C rows of b, each of length n. The R * C sums stay in
// registers.
template <int R, int C, class A>
inline void dot_block(const A* a, const A* b, int64_t n, A* out, int64_t step) {
  using V = Vec<A>;
  constexpr int64_t width = V::size();
  V sums[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) sums[r][c] = V(A(0));
  for (int64_t i = 0; i < n; i += width) {
    const int64_t w = std::min(width, n - i);
    V x[R];
    for (int r = 0; r < R; ++r) x[r] = w == width ? V::loadu(a + r * n + i) : V::loadu(a + r * n + i, w);
    for (int c = 0; c < C; ++c) {
      const V y = w == width ? V::loadu(b + c * n + i) : V::loadu(b + c * n + i, w);
      for (int r = 0; r < R; ++r) sums[r][c] = at::vec::fmadd(x[r], y, sums[r][c]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) out[r * step + c] = total(sums[r][c]);
}

// Compute two rows by four columns at a time into a buffer, and copy the lower triangle to `out`.
inline void dots(Dtype dtype, const void* x, void* out, int64_t f, int64_t e, bool self) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    std::vector<A> copy(std::is_same_v<T, A> ? 0 : f * e), square(2 * (f + 4));
    const A* rows = widen<T>(static_cast<const T*>(x), copy.data(), f * e);
    T* to = static_cast<T*>(out);
    const int64_t step = f + 4;
    for (int64_t i = 0; i < f; i += 2) {
      const int64_t count = std::min<int64_t>(2, f - i), columns = i + count - !self;
      const A* a = rows + i * e;
      int64_t j = 0;
      for (; j + 4 <= columns; j += 4)
        count == 2 ? dot_block<2, 4>(a, rows + j * e, e, &square[j], step)
                   : dot_block<1, 4>(a, rows + j * e, e, &square[j], step);
      for (; j < columns; ++j)
        count == 2 ? dot_block<2, 1>(a, rows + j * e, e, &square[j], step)
                   : dot_block<1, 1>(a, rows + j * e, e, &square[j], step);
      for (int64_t r = 0; r < count; ++r)
        for (j = 0; j < i + r + self; ++j) *to++ = static_cast<T>(square[r * step + j]);
    }
  });
}

template <class A>
inline void add_scaled(A* to, const A* from, A factor, int64_t n) {
  using V = Vec<A>;
  constexpr int64_t width = V::size();
  const V c(factor);
  int64_t i = 0;
  for (; i + width <= n; i += width) at::vec::fmadd(V::loadu(from + i), c, V::loadu(to + i)).store(to + i);
  for (; i < n; ++i) to[i] += from[i] * factor;
}

inline void dots_backward(Dtype dtype, const void* x, const void* dout, void* dx, int64_t f, int64_t e,
                          bool self) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    std::vector<A> copy(std::is_same_v<T, A> ? 0 : f * e), sums(f * e, A(0));
    const A* rows = widen<T>(static_cast<const T*>(x), copy.data(), f * e);
    const T* g = static_cast<const T*>(dout);
    for (int64_t i = 0; i < f; ++i)
      for (int64_t j = 0; j < i + self; ++j) {
        const A d = static_cast<A>(*g++);
        add_scaled(sums.data() + i * e, rows + j * e, d, e);
        add_scaled(sums.data() + j * e, rows + i * e, d, e);
      }
    for (int64_t i = 0; i < f * e; ++i) static_cast<T*>(dx)[i] = static_cast<T>(sums[i]);
  });
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
