// gelu and dropout of x + bias. Random numbers come from Philox 4x32-7 with the element's index as the
// counter. The backward pass generates them again, so no mask is kept.
#pragma once
#include "vec.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// Compute four random words for each of 16 consecutive counters. The first counter is a multiple of 16. `out`
// is ordered by word, then by counter.
constexpr int kPhiloxLanes = 16;
constexpr uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u, kPhiloxW0 = 0x9E3779B9u,
                   kPhiloxW1 = 0xBB67AE85u;
#if defined(CPU_CAPABILITY_AVX512)
inline void philox_multiply(__m512i x, __m512i m, __m512i& high, __m512i& low) {
  const __m512i even = _mm512_mul_epu32(x, m),
                odd = _mm512_mul_epu32(_mm512_shuffle_epi32(x, _MM_PERM_DDBB), m);
  high = _mm512_mask_shuffle_epi32(odd, 0x5555, even,
                                   _MM_PERM_DDBB);  // runs in parallel with the products; a shift would not
  low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
}
inline void philox(uint64_t seed, uint64_t counter, uint32_t* out) {
  const __m512i m0 = _mm512_set1_epi32(kPhiloxM0), m1 = _mm512_set1_epi32(kPhiloxM1);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  __m512i a = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(counter)),
                               _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m512i b = _mm512_set1_epi32(static_cast<int>(counter >> 32)), c = _mm512_setzero_si512(), d = c;
  for (int round = 0; round < 7; ++round) {
    __m512i h0, l0, h1, l1;
    philox_multiply(a, m0, h0, l0), philox_multiply(c, m1, h1, l1);
    a = _mm512_ternarylogic_epi32(h1, b, _mm512_set1_epi32(static_cast<int>(k0)), 0x96);
    c = _mm512_ternarylogic_epi32(h0, d, _mm512_set1_epi32(static_cast<int>(k1)), 0x96);
    b = l1, d = l0;
    k0 += kPhiloxW0, k1 += kPhiloxW1;
  }
  _mm512_storeu_si512(out, a), _mm512_storeu_si512(out + 16, b), _mm512_storeu_si512(out + 32, c),
      _mm512_storeu_si512(out + 48, d);
}
#elif defined(CPU_CAPABILITY_AVX2)
inline void philox_multiply(__m256i x, __m256i m, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(x, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), m);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
inline void philox(uint64_t seed, uint64_t counter, uint32_t* out) {
  const __m256i m0 = _mm256_set1_epi32(kPhiloxM0), m1 = _mm256_set1_epi32(kPhiloxM1);
  for (int half = 0; half < kPhiloxLanes; half += 8, out += 8) {
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    __m256i a = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(counter) + half),
                                 _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i b = _mm256_set1_epi32(static_cast<int>(counter >> 32)), c = _mm256_setzero_si256(), d = c;
    for (int round = 0; round < 7; ++round) {
      __m256i h0, l0, h1, l1;
      philox_multiply(a, m0, h0, l0), philox_multiply(c, m1, h1, l1);
      a = _mm256_xor_si256(_mm256_xor_si256(h1, b), _mm256_set1_epi32(static_cast<int>(k0)));
      c = _mm256_xor_si256(_mm256_xor_si256(h0, d), _mm256_set1_epi32(static_cast<int>(k1)));
      b = l1, d = l0;
      k0 += kPhiloxW0, k1 += kPhiloxW1;
    }
    const __m256i words[] = {a, b, c, d};
    for (int w = 0; w < 4; ++w)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + w * kPhiloxLanes), words[w]);
  }
}
#else
inline void philox(uint64_t seed, uint64_t counter, uint32_t* out) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint32_t a[kPhiloxLanes], b[kPhiloxLanes], c[kPhiloxLanes], d[kPhiloxLanes];
  for (int i = 0; i < kPhiloxLanes; ++i)
    a[i] = static_cast<uint32_t>(counter + i), b[i] = static_cast<uint32_t>(counter >> 32), c[i] = 0,
    d[i] = 0;
  for (int round = 0; round < 7; ++round) {
    for (int i = 0; i < kPhiloxLanes; ++i) {
      const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * a[i],
                     p1 = static_cast<uint64_t>(kPhiloxM1) * c[i];
      const uint32_t x = static_cast<uint32_t>(p1 >> 32) ^ b[i] ^ k0,
                     z = static_cast<uint32_t>(p0 >> 32) ^ d[i] ^ k1;
      b[i] = static_cast<uint32_t>(p1), d[i] = static_cast<uint32_t>(p0);
      a[i] = x, c[i] = z;
    }
    k0 += kPhiloxW0, k1 += kPhiloxW1;
  }
  std::copy(a, a + kPhiloxLanes, out);
  std::copy(b, b + kPhiloxLanes, out + kPhiloxLanes);
  std::copy(c, c + kPhiloxLanes, out + 2 * kPhiloxLanes);
  std::copy(d, d + kPhiloxLanes, out + 3 * kPhiloxLanes);
}
#endif

// keep / (1 - p) of `count` elements, starting at `index`. Element e uses word (e / 16) % 4 of counter block
// e / 64, lane e % 16.
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

// Apply f(v, index) -> Vec to rows [begin, end) of length n of NI tensors; the first of them gets the bias.
// `sums`, if not null, receives sums of the results for the gradient of the bias. If the bias has one value a
// row, so has `sums`. Otherwise `sums` has one row for every kSumRows rows, which bounds the rounding error
// of a float sum, and [begin, end) covers whole blocks of kSumRows rows.
template <class T, int NI, class F>
inline void bias_rows(const std::array<const T*, NI>& in, const T* bias, T* y, Acc<T>* sums, int64_t n,
                      int64_t per_row, int64_t begin, int64_t end, F&& f) {
  using A = Acc<T>;
  using V = Vec<A>;
  constexpr int64_t width = V::size();
  constexpr bool direct = std::is_same_v<T, A>;
  A in_buffer[direct ? 1 : NI][direct ? 1 : kChunk], bias_buffer[direct ? 1 : kChunk],
      out_buffer[direct ? 1 : kChunk];
  for (int64_t row = begin; row < end; ++row) {
    const V one_bias(bias && per_row ? static_cast<A>(bias[row % per_row]) : A(0));
    V row_sum(A(0));
    A* into = sums && !per_row ? sums + row / kSumRows * n : nullptr;
    if (into && row % kSumRows == 0) std::fill(into, into + n, A(0));
    for (int64_t chunk = 0; chunk < n; chunk += kChunk) {
      const int64_t count = std::min(kChunk, n - chunk), base = row * n + chunk;
      const A* x[NI];
      for (int k = 0; k < NI; ++k) x[k] = widen<T>(in[k] + base, in_buffer[direct ? 0 : k], count);
      const A* b = bias && !per_row ? widen<T>(bias + chunk, bias_buffer, count) : nullptr;
      A* out = target<T>(y + base, out_buffer);
      f.start(base, count);
      int64_t i = 0;
      for (; i + width <= count; i += width) {
        V v[NI];
        for (int k = 0; k < NI; ++k) v[k] = V::loadu(x[k] + i);
        v[0] = v[0] + (b ? V::loadu(b + i) : one_bias);
        const V r = f(v, i);
        r.store(out + i);
        if (into)
          (V::loadu(into + chunk + i) + r).store(into + chunk + i);
        else
          row_sum = row_sum + r;
      }
      if (i < count) {
        const int64_t w = count - i;
        V v[NI];
        for (int k = 0; k < NI; ++k) v[k] = V::loadu(x[k] + i, w);
        v[0] = v[0] + (b ? V::loadu(b + i, w) : one_bias);
        const V r = f(v, i);
        r.store(out + i, w);
        if (into)
          (V::loadu(into + chunk + i, w) + r).store(into + chunk + i, w);
        else
          row_sum = row_sum + V::set(V(A(0)), r, w);
      }
      narrow<T>(y + base, out, count);
    }
    if (sums && per_row) sums[row] = total(row_sum);
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

inline void bias_gelu(Dtype dtype, const void* x, const void* bias, void* y, int64_t n, int64_t per_row,
                      int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    bias_rows<T, 1>({static_cast<const T*>(x)}, static_cast<const T*>(bias), static_cast<T*>(y), nullptr, n,
                    per_row, begin, end, Gelu<Acc<T>>{});
  });
}
inline void bias_gelu_backward(Dtype dtype, const void* x, const void* bias, const void* dy, void* dx,
                               void* sums, int64_t n, int64_t per_row, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    bias_rows<T, 2>({static_cast<const T*>(x), static_cast<const T*>(dy)}, static_cast<const T*>(bias),
                    static_cast<T*>(dx), static_cast<Acc<T>*>(sums), n, per_row, begin, end,
                    GeluBackward<Acc<T>>{});
  });
}
inline void bias_dropout(Dtype dtype, const void* x, const void* bias, void* y, void* sums, int64_t n,
                         int64_t per_row, double p, uint64_t seed, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    bias_rows<T, 1>({static_cast<const T*>(x)}, static_cast<const T*>(bias), static_cast<T*>(y),
                    static_cast<Acc<T>*>(sums), n, per_row, begin, end, Dropout<Acc<T>>{p, seed, {}});
  });
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
