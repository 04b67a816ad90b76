// Loops over at::vec for float, double and bfloat16 (which is computed in float). Included once for each
// instruction set.
#pragma once
#include <ATen/cpu/vec/vec.h>
#include <ATen/cpu/vec/functional.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
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

// `count` elements of a row of T in the compute dtype: the row itself, or a copy in `buffer`.
template <class T>
inline const Acc<T>* widen(const T* from, Acc<T>* buffer, int64_t count) {
  if constexpr (std::is_same_v<T, Acc<T>>) {
    return from;
  } else {
    constexpr int64_t width = Vec<T>::size();
    int64_t i = 0;
    for (; i + width <= count; i += width) {
      const auto [low, high] = at::vec::convert_bfloat16_float(Vec<T>::loadu(from + i));
      low.store(buffer + i), high.store(buffer + i + width / 2);
    }
    for (; i < count; ++i) buffer[i] = static_cast<float>(from[i]);
    return buffer;
  }
}
template <class T>
inline Acc<T>* target(T* to, Acc<T>* buffer) {
  if constexpr (std::is_same_v<T, Acc<T>>)
    return to;
  else
    return buffer;
}
template <class T>
inline void narrow(T* to, const Acc<T>* buffer, int64_t count) {
  if constexpr (!std::is_same_v<T, Acc<T>>) {
    constexpr int64_t width = Vec<T>::size();
    int64_t i = 0;
    for (; i + width <= count; i += width)
      at::vec::convert_float_bfloat16(Vec<float>::loadu(buffer + i),
                                      Vec<float>::loadu(buffer + i + width / 2))
          .store(to + i);
    for (; i < count; ++i) to[i] = static_cast<T>(buffer[i]);
  }
}

// f(Vec x[NI], Vec y[NO]) over [begin, end).
template <class T, int NI, int NO, class F>
inline void loop(const std::array<const T*, NI>& in, const std::array<T*, NO>& out, int64_t begin,
                 int64_t end, F&& f) {
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

// e^x within 1.5 ulp. It is inlined, because a call of the library function would spill every vector
// register.
template <class A>
inline Vec<A> exponential(const Vec<A>& x) {
  return x.exp();
}
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <>
inline Vec<float> exponential(const Vec<float>& given) {
  // x = n ln 2 + r. Below -87 the result is 0, because a denormal result costs about 150 cycles. Above 89 it
  // is infinite. The instructions for min and max return their second operand if one operand is NaN.
#if defined(CPU_CAPABILITY_AVX512)
  const Vec<float> x = _mm512_max_ps(_mm512_set1_ps(-87.f), _mm512_min_ps(_mm512_set1_ps(89.f), given));
  const Vec<float> n =
      _mm512_roundscale_ps(x * Vec<float>(1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Vec<float> x = _mm256_max_ps(_mm256_set1_ps(-87.f), _mm256_min_ps(_mm256_set1_ps(89.f), given));
  const Vec<float> n =
      _mm256_round_ps(x * Vec<float>(1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#endif
  Vec<float> r = at::vec::fmadd(n, Vec<float>(-0.693147182f), x);
  r = at::vec::fmadd(n, Vec<float>(1.90465421e-9f), r);
  Vec<float> y = at::vec::fmadd(Vec<float>(1.9875691500e-4f), r, Vec<float>(1.3981999507e-3f));
  y = at::vec::fmadd(y, r, Vec<float>(8.3334519073e-3f));
  y = at::vec::fmadd(y, r, Vec<float>(4.1665795894e-2f));
  y = at::vec::fmadd(y, r, Vec<float>(1.6666665459e-1f));
  y = at::vec::fmadd(y, r, Vec<float>(5.0000001201e-1f));
  y = at::vec::fmadd(y, r * r, r) + Vec<float>(1.f);
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(given, _mm512_set1_ps(-87.f), _CMP_NLT_UQ), y, n);
#else
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1),
                bias = _mm256_set1_epi32(127);
  const __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 second =
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
  return _mm256_and_ps(_mm256_mul_ps(_mm256_mul_ps(y, first), second),
                       _mm256_cmp_ps(given, _mm256_set1_ps(-87.f), _CMP_NLT_UQ));
#endif
}
#endif

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
template <class A>
constexpr bool kWideFloat = std::is_same_v<A, float>;
#else
template <class A>
constexpr bool kWideFloat = false;
#endif

// Reduce the lanes of a vector to one value: f combines two vectors, g two scalars.
template <class A, class F, class G>
inline A fold(const Vec<A>& v, F f, G g) {
  if constexpr (kWideFloat<A>) {
    return at::vec::vec_reduce_all<A>(f, v);
  } else {
    A lanes[Vec<A>::size()];
    v.store(lanes);
    for (int64_t k = 1; k < Vec<A>::size(); ++k) lanes[0] = g(lanes[0], lanes[k]);
    return lanes[0];
  }
}
template <class A>
inline A total(const Vec<A>& v) {
  return fold(v, [](Vec<A> a, Vec<A> b) { return a + b; }, [](A a, A b) { return a + b; });
}
template <class A>
inline A largest(const Vec<A>& v) {  // NaN if any lane is NaN
  return fold(
      v, [](Vec<A> a, Vec<A> b) { return at::vec::maximum(a, b); },
      [](A a, A b) { return b > a || b != b ? b : a; });
}

// 1 / (1 + e^-x)
template <class A>
inline Vec<A> logistic(const Vec<A>& x) {
  const Vec<A> one(A(1));
  return one / (one + exponential(x.neg()));
}

// tanh x, inlined: the polynomial of Cephes up to 0.625, and 1 - 2 / (1 + e^(2 |x|)) above.
template <class A>
inline Vec<A> hyperbolic_tangent(const Vec<A>& x) {
  if constexpr (kWideFloat<A>) {
    const Vec<A> one(1.f), size = x.abs(), z = x * x;
    Vec<A> y = at::vec::fmadd(Vec<A>(-5.70498872745e-3f), z, Vec<A>(2.06390887954e-2f));
    for (const float c : {-5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f})
      y = at::vec::fmadd(y, z, Vec<A>(c));
    y = at::vec::fmadd(y * z, x, x);
    const Vec<A> far = one - Vec<A>(2.f) / (one + exponential(size + size));
    return Vec<A>::blendv(far | (x & Vec<A>(-0.f)), y, size < Vec<A>(0.625f));
  } else {
    return x.tanh();
  }
}

// P(Z > |x|) e^(x^2 / 2) for a standard normal Z, within 1e-7. Like torch's vectorized erf, it uses formula
// 7.1.26 of Abramowitz and Stegun.
inline Vec<float> tail(const Vec<float>& x) {
  const Vec<float> t = Vec<float>(1.f) / at::vec::fmadd(x.abs(), Vec<float>(0.231641888f), Vec<float>(1.f));
  Vec<float> y = at::vec::fmadd(Vec<float>(0.5307027145f), t, Vec<float>(-0.7265760135f));
  y = at::vec::fmadd(y, t, Vec<float>(0.7107068705f));
  y = at::vec::fmadd(y, t, Vec<float>(-0.142248368f));
  return at::vec::fmadd(y, t, Vec<float>(0.127414796f)) * t;
}

// atan(a / b)
template <class A>
inline Vec<A> atan_ratio(const Vec<A>& a, const Vec<A>& b) {
  if constexpr (std::is_same_v<A, float>) {
    // A polynomial (error below 1e-7) gives the angle of smaller / larger. If |a| > |b|, the result is pi / 2
    // minus that angle.
    const Vec<A> p = a.abs(), q = b.abs(), steep = p > q;
    const Vec<A> z = Vec<A>::blendv(p, q, steep) / Vec<A>::blendv(q, p, steep), u = z * z;
    Vec<A> y = at::vec::fmadd(Vec<A>(0.00292068929f), u, Vec<A>(-0.0163679179f));
    for (const float c :
         {0.0432118438f, -0.0755221322f, 0.106660038f, -0.142110556f, 0.199937731f, -0.333331525f})
      y = at::vec::fmadd(y, u, Vec<A>(c));
    y = at::vec::fmadd(y * u, z, z);
    y = Vec<A>::blendv(y, Vec<A>(1.57079633f) - y, steep);
    return y ^ ((a ^ b) & Vec<A>(-0.f));
  } else {
    return (a / b).atan();
  }
}

template <class A>
inline Vec<A> gelu(const Vec<A>& x) {
  if constexpr (kWideFloat<A>) {
    const Vec<A> size =
        at::vec::clamp_max(x.abs(), Vec<A>(64.f));  // avoids infinity * 0
    return at::vec::clamp_min(x, Vec<A>(0.f)) - size * tail(x) * exponential(x * x * Vec<A>(-0.5f));
  } else {
    return Vec<A>(A(0.5)) * x * (Vec<A>(A(1)) + (x * Vec<A>(A(M_SQRT1_2))).erf());
  }
}
template <class A>
inline Vec<A> gelu_slope(const Vec<A>& x) {
  const Vec<A> one(A(1)), density(A(M_2_SQRTPI * M_SQRT1_2 * 0.5)), e = exponential(x * x * Vec<A>(A(-0.5)));
  if constexpr (kWideFloat<A>) {
    const Vec<A> above = tail(x) * e;
    return at::vec::fmadd(x * density, e, Vec<A>::blendv(above, one - above, x > Vec<A>(0.f)));
  } else {
    return Vec<A>(A(0.5)) * (one + (x * Vec<A>(A(M_SQRT1_2))).erf()) + x * density * e;
  }
}
// The factor of x in the tanh gelu: (1 + tanh(u)) / 2 = 1 / (1 + e^(-2 u)).
template <class A>
inline Vec<A> tanh_share(const Vec<A>& x) {
  const Vec<A> u = Vec<A>(A(M_SQRT2 * M_2_SQRTPI * 0.5)) * (x + Vec<A>(A(0.044715)) * x * x * x);
  if constexpr (kWideFloat<A>)
    return logistic(u + u);
  else
    return Vec<A>(A(0.5)) * (Vec<A>(A(1)) + u.tanh());
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
