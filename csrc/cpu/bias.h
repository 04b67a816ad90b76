// gelu and dropout of x + bias. Random numbers: Philox 4x32-7 counted by the element's index, so that the backward pass
// draws the same ones again and no mask is kept.
#pragma once
#include "vec.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// Four random words for each of W consecutive counters, the loops written for the compiler to vectorise.
constexpr int kPhiloxLanes = 16;
inline void philox(uint64_t seed, uint64_t counter, uint32_t* out) {
  constexpr uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint32_t a[kPhiloxLanes], b[kPhiloxLanes], c[kPhiloxLanes], d[kPhiloxLanes];
  for (int i = 0; i < kPhiloxLanes; ++i) {
    a[i] = static_cast<uint32_t>(counter + i), b[i] = static_cast<uint32_t>((counter + i) >> 32), c[i] = 0, d[i] = 0;
  }
  for (int round = 0; round < 7; ++round) {
    for (int i = 0; i < kPhiloxLanes; ++i) {
      const uint64_t p0 = static_cast<uint64_t>(m0) * a[i], p1 = static_cast<uint64_t>(m1) * c[i];
      const uint32_t x = static_cast<uint32_t>(p1 >> 32) ^ b[i] ^ k0, z = static_cast<uint32_t>(p0 >> 32) ^ d[i] ^ k1;
      b[i] = static_cast<uint32_t>(p1), d[i] = static_cast<uint32_t>(p0);
      a[i] = x, c[i] = z;
    }
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  std::copy(a, a + kPhiloxLanes, out);
  std::copy(b, b + kPhiloxLanes, out + kPhiloxLanes);
  std::copy(c, c + kPhiloxLanes, out + 2 * kPhiloxLanes);
  std::copy(d, d + kPhiloxLanes, out + 3 * kPhiloxLanes);
}

// keep / (1 - p) of `count` elements from `index` on. Element e uses word (e / 16) % 4 of counter block e / 64, lane e % 16.
template <class A>
inline void dropout_factors(A* out, int64_t index, int64_t count, double p, uint64_t seed) {
  constexpr int64_t block = 4 * kPhiloxLanes;
  const A kept = p < 1 ? static_cast<A>(1 / (1 - p)) : A(0);
  const uint32_t threshold = static_cast<uint32_t>(std::min(p * 4294967296.0, 4294967295.0));
  uint32_t words[block];
  for (int64_t i = 0; i < count;) {
    const int64_t at = index + i, within = at % block, n = std::min(block - within, count - i);
    philox(seed, static_cast<uint64_t>(at / block) * kPhiloxLanes, words);
    if (n == block) {
      for (int64_t j = 0; j < block; ++j) out[i + j] = words[j] >= threshold ? kept : A(0);
    } else {
      for (int64_t j = 0; j < n; ++j) out[i + j] = words[within + j] >= threshold ? kept : A(0);
    }
    i += n;
  }
}

// f(x + bias) for rows [begin, end) of length n; NI tensors of x's shape, the first gets the bias; f(v, index) -> Vec.
template <class T, int NI, class F>
inline void bias_rows(const std::array<const T*, NI>& in, const T* bias, T* y, int64_t n, int64_t per_row, int64_t begin, int64_t end, F&& f) {
  using A = Acc<T>;
  using V = Vec<A>;
  constexpr int64_t width = V::size();
  constexpr bool direct = std::is_same_v<T, A>;
  A in_buffer[direct ? 1 : NI][direct ? 1 : kChunk], bias_buffer[direct ? 1 : kChunk], out_buffer[direct ? 1 : kChunk];
  for (int64_t row = begin; row < end; ++row) {
    const V one_bias(bias && per_row ? static_cast<A>(bias[row % per_row]) : A(0));
    for (int64_t chunk = 0; chunk < n; chunk += kChunk) {
      const int64_t count = std::min(kChunk, n - chunk), base = row * n + chunk;
      const A* x[NI];
      for (int k = 0; k < NI; ++k) x[k] = widen<T>(in[k] + base, in_buffer[direct ? 0 : k], count);
      const A* b = bias && !per_row ? widen<T>(bias + chunk, bias_buffer, count) : nullptr;
      A* out = target<T>(y + base, out_buffer);
      f.start(base, count);
      for (int64_t i = 0; i < count; i += width) {
        const int64_t w = std::min(width, count - i);
        V v[NI];
        if (w == width) {
          for (int k = 0; k < NI; ++k) v[k] = V::loadu(x[k] + i);
          v[0] = v[0] + (b ? V::loadu(b + i) : one_bias);
          f(v, i).store(out + i);
        } else {
          for (int k = 0; k < NI; ++k) v[k] = V::loadu(x[k] + i, w);
          v[0] = v[0] + (b ? V::loadu(b + i, w) : one_bias);
          f(v, i).store(out + i, w);
        }
      }
      narrow<T>(y + base, out, count);
    }
  }
}

template <class A>
struct Gelu {
  void start(int64_t, int64_t) {}
  Vec<A> operator()(const Vec<A>* v, int64_t) { return gelu(v[0]); }
};
template <class A>
struct GeluBackward {
  void start(int64_t, int64_t) {}
  Vec<A> operator()(const Vec<A>* v, int64_t) { return v[1] * gelu_slope(v[0]); }
};
template <class A>
struct Dropout {
  double p;
  uint64_t seed;
  A factors[kChunk + 64];
  void start(int64_t index, int64_t count) { dropout_factors(factors, index, count, p, seed); }
  Vec<A> operator()(const Vec<A>* v, int64_t i) { return v[0] * Vec<A>::loadu(factors + i); }
};

inline void bias_gelu(Dtype dtype, const void* x, const void* bias, void* y, int64_t n, int64_t per_row, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    bias_rows<T, 1>({static_cast<const T*>(x)}, static_cast<const T*>(bias), static_cast<T*>(y), n, per_row, begin, end, Gelu<Acc<T>>{});
  });
}
inline void bias_gelu_backward(Dtype dtype, const void* x, const void* bias, const void* dy, void* dx, int64_t n, int64_t per_row, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    bias_rows<T, 2>({static_cast<const T*>(x), static_cast<const T*>(dy)}, static_cast<const T*>(bias), static_cast<T*>(dx), n, per_row, begin, end, GeluBackward<Acc<T>>{});
  });
}
inline void bias_dropout(Dtype dtype, const void* x, const void* bias, void* y, int64_t n, int64_t per_row, double p, uint64_t seed, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    bias_rows<T, 1>({static_cast<const T*>(x)}, static_cast<const T*>(bias), static_cast<T*>(y), n, per_row, begin, end, Dropout<Acc<T>>{p, seed, {}});
  });
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
