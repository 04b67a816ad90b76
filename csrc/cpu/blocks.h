// Elementwise steps over several tensors of one length, a block at a time, so that shared operands stay in
// the cache. Each step rounds like torch's CPU operator of the same name on the same instruction set
// (ATen/native/cpu/BinaryOpsKernel.cpp, PointwiseOpsKernel.cpp, Lerp.h). Like torch, a step calls
// at::vec::fmadd, which rounds once with FMA and twice without.
#pragma once
#include "vec.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// y = f(a[0], ...) over n elements; y may alias an operand.
template <class T, int N, class F>
inline void each(T* y, const std::array<const T*, N>& a, int64_t n, F&& f) {
  constexpr int64_t width = Vec<T>::size();
  Vec<T> x[N];
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    for (int k = 0; k < N; ++k) x[k] = Vec<T>::loadu(a[k] + i);
    f(x).store(y + i);
  }
  if (i < n) {
    for (int k = 0; k < N; ++k) x[k] = Vec<T>::loadu(a[k] + i, n - i);
    f(x).store(y + i, n - i);
  }
}

template <class T>
void block_step(Block op, const BlockFunctionsOf<T>& mkl, T* y, const T* a, const T* b, const T* c, T s,
                int64_t n) {
  using V = Vec<T>;
  const V v(s), zero(T(0)), unit(T(1));
  const auto call = [&](BlockFunction<T> f) { f(static_cast<int>(n), a, y); };
  const auto one = [&](auto f) { each<T, 1>(y, {a}, n, f); };
  const auto two = [&](auto f) { each<T, 2>(y, {a, b}, n, f); };
  const auto three = [&](auto f) { each<T, 3>(y, {a, b, c}, n, f); };
  switch (op) {
    case Block::copy: return one([](V* x) { return x[0]; });
    case Block::neg: return one([](V* x) { return x[0].neg(); });
    case Block::abs: return one([](V* x) { return x[0].abs(); });
    case Block::sqrt: return mkl.sqrt ? call(mkl.sqrt) : one([](V* x) { return x[0].sqrt(); });
    case Block::tanh: return call(mkl.tanh);
    case Block::exp: return call(mkl.exp);
    case Block::log: return call(mkl.log);
    case Block::erf: return call(mkl.erf);
    case Block::sin: return call(mkl.sin);
    case Block::cos: return call(mkl.cos);
    case Block::relu: return one([&](V* x) { return at::vec::clamp_min(x[0], zero); });
    case Block::reciprocal: return one([](V* x) { return x[0].reciprocal(); });
    case Block::add_number: return one([&](V* x) { return x[0] + v; });
    case Block::mul_number: return one([&](V* x) { return x[0] * v; });
    case Block::div_number: return one([&](V* x) { return x[0] / v; });
    case Block::add: return two([&](V* x) { return at::vec::fmadd(x[1], v, x[0]); });
    case Block::mul: return two([](V* x) { return x[0] * x[1]; });
    case Block::div: return two([](V* x) { return x[0] / x[1]; });
    case Block::maximum: return two([](V* x) { return at::vec::maximum(x[0], x[1]); });
    case Block::minimum: return two([](V* x) { return at::vec::minimum(x[0], x[1]); });
    case Block::lerp: {
      if (std::abs(s) < T(0.5)) return two([&](V* x) { return at::vec::fmadd(v, x[1] - x[0], x[0]); });
      const V rest(s - T(1));
      return two([&](V* x) { return at::vec::fmadd(rest, x[1] - x[0], x[1]); });
    }
    case Block::tanh_backward:
      return two([&](V* x) { return x[0] * at::vec::fnmadd(x[1], x[1], unit); });
    case Block::sigmoid_backward: return two([&](V* x) { return x[0] * (unit - x[1]) * x[1]; });
    case Block::threshold_backward:
      return two([&](V* x) { return V::blendv(x[0], zero, x[1] <= v); });
    case Block::addcmul: return three([&](V* x) { return at::vec::fmadd(v * x[1], x[2], x[0]); });
    case Block::addcdiv: return three([&](V* x) { return x[0] + v * x[1] / x[2]; });
    case Block::count: return;
  }
}

template <class T>
void blocks_of(const BlockFunctionsOf<T>& mkl, const BlockStep* steps, int64_t count, void* const* tensors,
               int64_t given, const double* scalars, int64_t begin, int64_t end) {
  constexpr int64_t size = 4096 / sizeof(T);
  alignas(64) T own[kBlockTemporaries][size];
  for (int64_t i = begin; i < end; i += size) {
    const auto at = [&](int64_t r) {
      return r < 0 ? nullptr : r < given ? static_cast<T*>(tensors[r]) + i : own[r - given];
    };
    for (const BlockStep* s = steps; s != steps + count; ++s)
      block_step<T>(s->op, mkl, at(s->to), at(s->a), at(s->b), at(s->c),
                    s->scalar < 0 ? T(0) : static_cast<T>(scalars[s->scalar]), std::min(size, end - i));
  }
}

inline void blocks(Dtype dtype, const BlockFunctions& mkl, const BlockStep* steps, int64_t count,
                   void* const* tensors, int64_t given, const double* scalars, int64_t begin, int64_t end) {
  if (dtype == Dtype::f64)
    blocks_of<double>(mkl.f64, steps, count, tensors, given, scalars, begin, end);
  else
    blocks_of<float>(mkl.f32, steps, count, tensors, given, scalars, begin, end);
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
