// Softmax of scaled and masked rows, with dropout, in one pass over memory; scaling of the lower triangle.
#pragma once
#include <vector>

#include "bias.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

inline int64_t mask_offset(const SoftmaxRows& r, int64_t row) {
  int64_t offset = 0;
  for (int d = r.mask_dims - 1; d >= 0; --d) {
    offset += row % r.sizes[d] * r.strides[d];
    row /= r.sizes[d];
  }
  return offset;
}

// The columns of the lower triangle that row `row` keeps.
inline int64_t kept_columns(int64_t row, int64_t m, int64_t n, int64_t diagonal) {
  return std::clamp<int64_t>(row % m + diagonal + 1, 0, n);
}

template <class A>
inline A reduce(const A* x, int64_t n, A start,
                bool maximum) {  // start: -infinity for the maximum, 0 for the sum
  using V = Vec<A>;
  constexpr int64_t width = V::size();
  V v(start);
  int64_t i = 0;
  for (; i + width <= n; i += width) v = maximum ? at::vec::maximum(v, V::loadu(x + i)) : v + V::loadu(x + i);
  A out = maximum ? largest(v) : total(v);
  for (; i < n; ++i) out = maximum ? (x[i] > out || x[i] != x[i] ? x[i] : out) : out + x[i];
  return out;
}

template <class T>
void softmax_of(const SoftmaxRows& r, const T* x, T* y, T* dropped, int64_t begin, int64_t end) {
  using A = Acc<T>;
  using V = Vec<A>;
  constexpr int64_t width = V::size();
  const int64_t n = r.n;
  std::vector<A> buffer(n + width), factors(r.p > 0 ? n + 64 : 0), wide(std::is_same_v<T, A> ? 0 : n);
  const A scale = static_cast<A>(r.scale), fill = static_cast<A>(r.fill);
  A* t = buffer.data();
  for (int64_t row = begin; row < end; ++row) {
    const A* from = widen<T>(x + row * n, wide.data(), n);
    if (r.mask) {
      const uint8_t* mask = r.mask + mask_offset(r, row);
      if (r.mask_column) {
        for (int64_t i = 0; i < n; ++i) {
          const A value = from[i] * scale;  // computed for all elements, to avoid a branch
          t[i] = mask[i] ? value : fill;
        }
      } else if (*mask) {
        for (int64_t i = 0; i < n; ++i) t[i] = from[i] * scale;
      } else {
        std::fill(t, t + n, fill);
      }
    } else {
      const int64_t kept = r.tril ? kept_columns(row, r.m, n, r.diagonal) : n;
      for (int64_t i = 0; i < kept; ++i) t[i] = from[i] * scale;
      for (int64_t i = kept; i < n; ++i) t[i] = fill;
    }
    const A top = reduce(t, n, -std::numeric_limits<A>::infinity(), true);
    const V top_v(top);
    V sum_v(A(0));
    int64_t i = 0;
    for (; i + width <= n; i += width) {
      const V e = exponential(V::loadu(t + i) - top_v);
      e.store(t + i);
      sum_v = sum_v + e;
    }
    A sum = total(sum_v);
    if (i < n) {
      const V e = exponential(V::loadu(t + i, n - i) - top_v);
      e.store(t + i, n - i);
      for (; i < n; ++i) sum += t[i];
    }
    const A inverse = A(1) / sum;
    T* to = y + row * n;
    for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(t[j] * inverse);
    if (r.p > 0) {
      dropout_factors(factors.data(), row * n, n, r.p, r.seed);
      T* other = dropped + row * n;
      for (int64_t j = 0; j < n; ++j) other[j] = static_cast<T>(t[j] * inverse * factors[j]);
    }
  }
}

template <class T>
void softmax_backward_of(const SoftmaxRows& r, const T* y, const T* dy, const T* ddropped, T* dx,
                         int64_t begin, int64_t end) {
  using A = Acc<T>;
  const int64_t n = r.n;
  std::vector<A> grads(n), factors(r.p > 0 ? n + 64 : 0), wide(n), product(n);
  A *g = grads.data(), *w = wide.data(), *gy = product.data();
  const A scale = static_cast<A>(r.scale);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t base = row * n;
    if (ddropped && r.p > 0) {
      dropout_factors(factors.data(), base, n, r.p, r.seed);
      if (dy)
        for (int64_t i = 0; i < n; ++i)
          g[i] = static_cast<A>(dy[base + i]) + static_cast<A>(ddropped[base + i]) * factors[i];
      else
        for (int64_t i = 0; i < n; ++i) g[i] = static_cast<A>(ddropped[base + i]) * factors[i];
    } else if (dy) {
      for (int64_t i = 0; i < n; ++i) g[i] = static_cast<A>(dy[base + i]);
    } else {
      std::fill(g, g + n, A(0));
    }
    for (int64_t i = 0; i < n; ++i) w[i] = static_cast<A>(y[base + i]);
    for (int64_t i = 0; i < n; ++i) gy[i] = g[i] * w[i];
    const A sum = reduce(gy, n, A(0), false);
    T* to = dx + base;
    if (r.mask) {
      const uint8_t* mask = r.mask + mask_offset(r, row);
      if (r.mask_column) {
        for (int64_t i = 0; i < n; ++i) {
          const A value = (gy[i] - w[i] * sum) * scale;
          g[i] = mask[i] ? value : A(0);
        }
      } else {
        for (int64_t i = 0; i < n; ++i) g[i] = *mask ? (gy[i] - w[i] * sum) * scale : A(0);
      }
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(g[i]);
    } else {
      const int64_t kept = r.tril ? kept_columns(row, r.m, n, r.diagonal) : n;
      for (int64_t i = 0; i < kept; ++i) to[i] = static_cast<T>((gy[i] - w[i] * sum) * scale);
      for (int64_t i = kept; i < n; ++i) to[i] = static_cast<T>(A(0));
    }
  }
}

inline void softmax(Dtype dtype, const SoftmaxRows& r, const void* x, void* y, void* dropped, int64_t begin,
                    int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    softmax_of<T>(r, static_cast<const T*>(x), static_cast<T*>(y), static_cast<T*>(dropped), begin, end);
  });
}
inline void softmax_backward(Dtype dtype, const SoftmaxRows& r, const void* y, const void* dy,
                             const void* ddropped, void* dx, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    softmax_backward_of<T>(r, static_cast<const T*>(y), static_cast<const T*>(dy),
                           static_cast<const T*>(ddropped), static_cast<T*>(dx), begin, end);
  });
}

inline void scale_tril(Dtype dtype, const void* x, void* y, int64_t m, int64_t n, int64_t diagonal,
                       double scale, double fill, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    const A s = static_cast<A>(scale);
    const T f = static_cast<T>(static_cast<A>(fill));
    for (int64_t row = begin; row < end; ++row) {
      const T* from = static_cast<const T*>(x) + row * n;
      T* to = static_cast<T*>(y) + row * n;
      const int64_t kept = kept_columns(row, m, n, diagonal);
      for (int64_t i = 0; i < kept; ++i) to[i] = static_cast<T>(static_cast<A>(from[i]) * s);
      std::fill(to + kept, to + n, f);
    }
  });
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
