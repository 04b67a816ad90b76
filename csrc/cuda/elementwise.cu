// The elementwise operators, bias with gelu or dropout, the lower triangle and rotary embedding on CUDA.
#include "../cpu/kernels.h"
#include "common.cuh"

namespace oneflow_ext {
namespace {

using oneflow_cpu::Point;

struct Operands {
  const void* in[oneflow_cpu::kMaxOperands];
  void* out[oneflow_cpu::kMaxOperands];
  double s[oneflow_cpu::kMaxScalars];
};

template <class A>
__device__ A gelu(A x) {
  return A(0.5) * x * (1 + erf(x * A(M_SQRT1_2)));
}
template <class A>
__device__ A gelu_slope(A x) {
  return A(0.5) * (1 + erf(x * A(M_SQRT1_2))) + x * A(0.3989422804014327) * exp(-x * x / 2);
}
template <class A>
__device__ A tanh_inner(A x) {
  return A(0.7978845608028654) * (x + A(0.044715) * x * x * x);
}
template <class A>
__device__ A share_greater(A a, A b) {
  return a > b ? A(1) : a == b ? A(0.5) : A(0);
}

template <class A>
__device__ A quantized(A x, A scale, A zero_point, A low, A high) {
  return (minimum(maximum(rint(x / scale + zero_point), low), high) - zero_point) * scale;
}

// One element of operator `op`, with the formulas of cpu/pointwise.h.
template <Point op, class A>
__device__ void apply(const A* x, A* y, const double* s) {
  const A eps = A(s[0]);
  if constexpr (op == Point::quick_gelu) {
    y[0] = x[0] / (1 + exp(A(-1.702) * x[0]));
  } else if constexpr (op == Point::quick_gelu_backward) {
    const A sig = 1 / (1 + exp(A(-1.702) * x[0]));
    y[0] = x[1] * sig * (1 + A(1.702) * x[0] * (1 - sig));
  } else if constexpr (op == Point::square_relu) {
    const A r = x[0] < 0 ? A(0) : x[0];
    y[0] = r * r;
  } else if constexpr (op == Point::square_relu_backward) {
    y[0] = 2 * (x[0] < 0 ? A(0) : x[0]) * x[1];
  } else if constexpr (op == Point::fast_gelu_mul) {
    y[0] = A(0.5) * x[0] * (1 + tanh(tanh_inner(x[0]))) * x[1];
  } else if constexpr (op == Point::fast_gelu_mul_backward) {
    const A t = tanh(tanh_inner(x[0]));
    const A slope = A(0.5) * (1 + t) +
                    A(0.5) * x[0] * (1 - t * t) * A(0.7978845608028654) * (1 + A(3 * 0.044715) * x[0] * x[0]);
    y[0] = x[2] * x[1] * slope;
    y[1] = x[2] * A(0.5) * x[0] * (1 + t);
  } else if constexpr (op == Point::boxes_coord) {
    for (int b = 0; b < 8; b += 4) {
      const A w = x[b + 2] / 2, h = x[b + 3] / 2;
      y[b] = x[b] - w, y[b + 1] = x[b] + w, y[b + 2] = x[b + 1] - h, y[b + 3] = x[b + 1] + h;
    }
  } else if constexpr (op == Point::boxes_coord_backward) {
    for (int b = 0; b < 8; b += 4) {
      y[b] = x[b] + x[b + 1], y[b + 1] = x[b + 2] + x[b + 3];
      y[b + 2] = (x[b + 1] - x[b]) / 2, y[b + 3] = (x[b + 3] - x[b + 2]) / 2;
    }
  } else if constexpr (op == Point::intersection) {
    const A w = minimum(x[1], x[3]) - maximum(x[0], x[2]), h = minimum(x[5], x[7]) - maximum(x[4], x[6]);
    y[0] = maximum(w, A(0)) * maximum(h, A(0));
  } else if constexpr (op == Point::intersection_backward) {
    const A w = minimum(x[1], x[3]) - maximum(x[0], x[2]), h = minimum(x[5], x[7]) - maximum(x[4], x[6]);
    for (int a = 0; a < 8; a += 4) {
      const A d = a ? (h >= 0 ? x[8] * maximum(w, A(0)) : A(0)) : (w >= 0 ? x[8] * maximum(h, A(0)) : A(0));
      const A low = share_greater(x[a], x[a + 2]), high = share_greater(x[a + 3], x[a + 1]);
      y[a] = -d * low, y[a + 2] = -d * (1 - low), y[a + 1] = d * high, y[a + 3] = d * (1 - high);
    }
  } else if constexpr (op == Point::iou) {
    y[0] = x[4] / (x[0] * x[1] + x[2] * x[3] - x[4] + eps);
  } else if constexpr (op == Point::iou_backward) {
    const A below = 1 / (x[0] * x[1] + x[2] * x[3] - x[4] + eps), d = x[5] * below, area = -d * x[4] * below;
    y[0] = area * x[1], y[1] = area * x[0], y[2] = area * x[3], y[3] = area * x[2], y[4] = d - area;
  } else if constexpr (op == Point::convex) {
    const A w = maximum(x[1], x[3]) - minimum(x[0], x[2]), h = maximum(x[5], x[7]) - minimum(x[4], x[6]);
    y[0] = w * w + h * h + eps;
  } else if constexpr (op == Point::convex_backward) {
    for (int a = 0; a < 8; a += 4) {
      const A d = 2 * x[8] * (maximum(x[a + 1], x[a + 3]) - minimum(x[a], x[a + 2]));
      const A low = share_greater(x[a + 2], x[a]), high = share_greater(x[a + 1], x[a + 3]);
      y[a] = -d * low, y[a + 2] = -d * (1 - low), y[a + 1] = d * high, y[a + 3] = d * (1 - high);
    }
  } else if constexpr (op == Point::center_dist) {
    const A dx = x[2] + x[3] - x[0] - x[1], dy = x[6] + x[7] - x[4] - x[5];
    y[0] = (dx * dx + dy * dy) / 4;
  } else if constexpr (op == Point::center_dist_backward) {
    for (int a = 0; a < 2; ++a) {
      y[2 * a + 1] = x[8] / 2 * (x[4 * a + 2] + x[4 * a + 3] - x[4 * a] - x[4 * a + 1]);
      y[2 * a] = -y[2 * a + 1];
    }
  } else if constexpr (op == Point::angle) {
    const A d = atan(x[2] / (x[3] + eps)) - atan(x[0] / (x[1] + eps));
    y[0] = A(4 / (M_PI * M_PI)) * d * d;
  } else if constexpr (op == Point::angle_backward) {
    const A h1 = x[1] + eps, h2 = x[3] + eps;
    const A d = A(8 / (M_PI * M_PI)) * x[4] * (atan(x[2] / h2) - atan(x[0] / h1));
    const A d1 = d / (x[0] * x[0] + h1 * h1), d2 = d / (x[2] * x[2] + h2 * h2);
    y[0] = -d1 * h1, y[1] = d1 * x[0], y[2] = d2 * h2, y[3] = -d2 * x[2];
  } else if constexpr (op == Point::ciou) {
    y[1] = x[0] / (x[0] - x[1] + (1 + eps));
    y[0] = x[1] - (x[2] / x[3] + x[0] * y[1]);
  } else if constexpr (op == Point::ciou_backward) {
    y[0] = -x[3] * x[0], y[1] = x[3], y[2] = -x[3] / x[2], y[3] = x[3] * x[1] / (x[2] * x[2]);
  } else if constexpr (op == Point::fake_quantize) {
    y[0] = quantized(x[0], A(s[0]), A(s[1]), A(s[2]), A(s[3]));
  }
}

template <class T, Point op, int NI, int NO, int N>
__device__ void pointwise_pack(const Operands& o, int64_t p) {
  Pack<T, N> in[NI], out[NO];
#pragma unroll
  for (int k = 0; k < NI; ++k) in[k] = static_cast<const Pack<T, N>*>(o.in[k])[p];
#pragma unroll
  for (int e = 0; e < N; ++e) {
    Acc<T> x[NI], y[NO];
#pragma unroll
    for (int k = 0; k < NI; ++k) x[k] = load(&in[k].v[e]);
    apply<op, Acc<T>>(x, y, o.s);
#pragma unroll
    for (int k = 0; k < NO; ++k) save(&out[k].v[e], y[k]);
  }
#pragma unroll
  for (int k = 0; k < NO; ++k) static_cast<Pack<T, N>*>(o.out[k])[p] = out[k];
}
// Process packs of N elements, then the remaining elements one by one.
template <class T, Point op, int NI, int NO, int N>
__global__ void pointwise_kernel(Operands o, int64_t n) {
  GRID_LOOP(p, n / N) pointwise_pack<T, op, NI, NO, N>(o, p);
  if constexpr (N > 1) GRID_LOOP(i, n % N) pointwise_pack<T, op, NI, NO, 1>(o, n / N * N + i);
}

template <Point op, int NI = oneflow_cpu::kPointOperands[static_cast<int>(op)].inputs,
          int NO = oneflow_cpu::kPointOperands[static_cast<int>(op)].outputs>
void launch(const Operands& o, const Tensor& like) {
  const int64_t n = like.numel();
  if (!n) return;
  bool packs = true;
  for (int k = 0; k < NI; ++k) packs = packs && aligned({o.in[k]});
  for (int k = 0; k < NO; ++k) packs = packs && aligned({o.out[k]});
  floating("pointwise", like, [&](auto t) {
    using T = decltype(t);
    // Operators with many operands use packs of at most 8 bytes, to limit the registers they need.
    constexpr int N = NI + NO > 4 ? std::max(1, kPack<T> / 4) : kPack<T>;
    if (packs)
      pointwise_kernel<T, op, NI, NO, N><<<blocks_for((n + N - 1) / N), kThreads, 0, stream_of(like)>>>(o, n);
    else
      pointwise_kernel<T, op, NI, NO, 1><<<blocks_for(n), kThreads, 0, stream_of(like)>>>(o, n);
  });
  check_launch("pointwise");
}

std::vector<Tensor> pointwise(int64_t op, std::vector<Tensor> inputs, int64_t outputs,
                              std::vector<double> scalars) {
  check_pointwise(op, inputs, outputs, scalars);
  const OnDevice guard(inputs[0]);
  std::vector<Tensor> dense_inputs, out;
  Operands o{};
  for (size_t i = 0; i < inputs.size(); ++i) {
    dense_inputs.push_back(dense(inputs[i]));
    o.in[i] = dense_inputs[i].data_ptr();
  }
  for (int64_t i = 0; i < outputs; ++i) {
    out.push_back(fresh_like(inputs[0]));
    o.out[i] = out[i].data_ptr();
  }
  std::copy(scalars.begin(), scalars.end(), o.s);
  switch (static_cast<Point>(op)) {
#define CASE(name) \
  case Point::name: launch<Point::name>(o, inputs[0]); break;
  CASE(quick_gelu)
  CASE(quick_gelu_backward) CASE(square_relu) CASE(square_relu_backward) CASE(fast_gelu_mul)
      CASE(fast_gelu_mul_backward) CASE(boxes_coord) CASE(boxes_coord_backward) CASE(intersection)
          CASE(intersection_backward) CASE(iou) CASE(iou_backward) CASE(convex) CASE(convex_backward)
              CASE(center_dist) CASE(center_dist_backward) CASE(angle) CASE(angle_backward) CASE(ciou)
                  CASE(ciou_backward) CASE(fake_quantize)
#undef CASE
                      case Point::count:
    break;  // check_pointwise raised an error
  }
  return out;
}

template <class T, class S>
__global__ void fake_quantize_kernel(const T* x, const S* scale, const S* zero_point, T* y, int64_t n,
                                     double low, double high) {
  const Acc<T> s = static_cast<Acc<T>>(*scale), z = static_cast<Acc<T>>(*zero_point);
  GRID_LOOP(i, n) save(y + i, quantized(load(x + i), s, z, Acc<T>(low), Acc<T>(high)));
}

Tensor fake_quantize(const Tensor& x, const Tensor& scale, const Tensor& zero_point, double low,
                     double high) {
  check_fake_quantize(x, scale, zero_point, low, high);
  const OnDevice guard(x);
  const Tensor xd = dense(x), y = fresh_like(x);
  const int64_t n = x.numel();
  if (!n) return y;
  floating("fake_quantize", x, [&](auto t) {
    using T = decltype(t);
    auto start = [&](auto s) {
      using S = decltype(s);
      fake_quantize_kernel<<<blocks_for(n), kThreads, 0, stream_of(x)>>>(
          data<T>(xd), data<S>(scale), data<S>(zero_point), mutable_data<T>(y), n, low, high);
    };
    if (scale.scalar_type() == ScalarType::Double)
      start(double{});
    else
      start(float{});
  });
  check_launch("fake_quantize");
  return y;
}

// --------------------------------------------------------------------------- bias
// mode 0: gelu(x + bias); 1: dy * slope(x + bias); 2: dropout(x + bias); 3: dropout(x). The bias of element i
// is bias[i / inner % channels]; indices have type I. A pack of N has one bias value (inner is a multiple of
// N) or N adjacent values (inner is 1, channels is a multiple of N).
template <class T, int mode, int N, class I>
__global__ void bias_kernel(const T* x, const T* bias, const T* dy, T* y, int64_t n, I inner, I channels,
                            Drop drop, const int64_t* seed) {
  GRID_LOOP(p, n / N) {
    const Pack<T, N> in = reinterpret_cast<const Pack<T, N>*>(x)[p];
    Pack<T, N> grad, out;
    if constexpr (mode == 1) grad = reinterpret_cast<const Pack<T, N>*>(dy)[p];
    const I first = mode == 3 ? I(0) : static_cast<I>(p * N) / inner % channels;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      Acc<T> v = load(&in.v[e]);
      if constexpr (mode != 3) v += load(bias + (inner == 1 ? first + e : first));
      if constexpr (mode == 0) v = gelu(v);
      if constexpr (mode == 1) v = load(&grad.v[e]) * gelu_slope(v);
      if constexpr (mode >= 2) v *= dropout_factor<Acc<T>>(static_cast<uint64_t>(*seed), p * N + e, drop);
      save(&out.v[e], v);
    }
    reinterpret_cast<Pack<T, N>*>(y)[p] = out;
  }
}

template <int mode>
Tensor bias_op(const char* name, const Tensor& x, const Tensor* bias, const Tensor* dy, int64_t axis,
               double p, const Tensor* seed) {
  const OnDevice guard(x);
  const Tensor xd = dense(x), bd = bias ? dense(*bias) : xd, gd = dy ? dense(*dy) : xd, y = fresh_like(x);
  int64_t inner = 1;
  for (int64_t d = axis + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t n = x.numel(), channels = bias ? x.size(axis) : 1;
  if (!n) return y;
  floating(name, x, [&](auto t) {
    using T = decltype(t);
    auto start = [&](auto width, auto index) {
      constexpr int N = decltype(width)::value;
      using I = decltype(index);
      bias_kernel<T, mode, N, I><<<blocks_for(n / N), kThreads, 0, stream_of(x)>>>(
          data<T>(xd), data<T>(bd), data<T>(gd), mutable_data<T>(y), n, static_cast<I>(inner),
          static_cast<I>(channels), drop_of(p), seed ? data<int64_t>(*seed) : nullptr);
    };
    constexpr int N = kPack<T>;
    const bool fits = n % N == 0 && (mode == 3 || (inner == 1 ? channels : inner) % N == 0);
    const bool packs = fits && aligned({xd.data_ptr(), gd.data_ptr(), y.data_ptr()}),
               small = n < (int64_t(1) << 31);
    if (packs && small)
      start(std::integral_constant<int, N>{}, uint32_t{});
    else if (packs)
      start(std::integral_constant<int, N>{}, int64_t{});
    else if (small)
      start(std::integral_constant<int, 1>{}, uint32_t{});
    else
      start(std::integral_constant<int, 1>{}, int64_t{});
  });
  check_launch(name);
  return y;
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, int64_t axis) {
  check_bias_gelu(x, bias, axis);
  return bias_op<0>("bias_gelu", x, &bias, nullptr, axis, 0, nullptr);
}
Tensor bias_gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& bias, int64_t axis) {
  check_bias_gelu_backward("bias_gelu_backward", dy, x, bias, axis);
  return bias_op<1>("bias_gelu_backward", x, &bias, &dy, axis, 0, nullptr);
}
Tensor bias_dropout(const Tensor& x, const Tensor& bias, int64_t axis, double p, const Tensor& seed) {
  check_bias_dropout(x, bias, axis, p, seed);
  return bias_op<2>("bias_dropout", x, &bias, nullptr, axis, p, &seed);
}
Tensor bias_dropout_backward(const Tensor& dy, double p, const Tensor& seed) {
  check_bias_dropout_backward(dy, p, seed);
  return bias_op<3>("bias_dropout_backward", dy, nullptr, nullptr, 0, p, &seed);
}

// --------------------------------------------------------------------------- lower triangle, rotary
// Indices have type I; a pack of N lies in one row.
template <class T, int N, class I>
__global__ void tril_kernel(const T* x, T* y, int64_t total, I m, I n, int64_t diagonal, double scale,
                            double fill) {
  GRID_LOOP(p, total / N) {
    const Pack<T, N> in = reinterpret_cast<const Pack<T, N>*>(x)[p];
    Pack<T, N> out;
    const I line = static_cast<I>(p * N) / n;
    const int64_t column = static_cast<I>(p * N) - line * n, last = static_cast<int64_t>(line % m) + diagonal;
#pragma unroll
    for (int e = 0; e < N; ++e)
      save(&out.v[e], column + e <= last ? load(&in.v[e]) * Acc<T>(scale) : Acc<T>(fill));
    reinterpret_cast<Pack<T, N>*>(y)[p] = out;
  }
}

Tensor scale_tril(const Tensor& x, int64_t diagonal, double scale, double fill) {
  check_scale_tril(x, diagonal);
  const OnDevice guard(x);
  const Tensor xd = dense(x), y = fresh_like(x);
  const int64_t total = x.numel(), m = x.size(x.dim() - 2), n = x.size(x.dim() - 1);
  if (!total) return y;
  floating("scale_tril", x, [&](auto t) {
    using T = decltype(t);
    auto start = [&](auto width, auto index) {
      constexpr int N = decltype(width)::value;
      using I = decltype(index);
      tril_kernel<T, N, I><<<blocks_for(total / N), kThreads, 0, stream_of(x)>>>(
          data<T>(xd), mutable_data<T>(y), total, static_cast<I>(m), static_cast<I>(n), diagonal, scale,
          fill);
    };
    constexpr int N = kPack<T>;
    const bool packs = n % N == 0 && aligned({xd.data_ptr(), y.data_ptr()}),
               small = total < (int64_t(1) << 31);
    if (packs && small)
      start(std::integral_constant<int, N>{}, uint32_t{});
    else if (packs)
      start(std::integral_constant<int, N>{}, int64_t{});
    else if (small)
      start(std::integral_constant<int, 1>{}, uint32_t{});
    else
      start(std::integral_constant<int, 1>{}, int64_t{});
  });
  check_launch("scale_tril");
  return y;
}

struct RotaryShape {
  int64_t b, m, h, k, size, part, x_stride[3], y_stride[3];
  bool one_table, interval, backward;
};

// Each thread rotates one pair or copies one of the remaining elements.
template <class T, class I>
__global__ void rotary_kernel(const T* x, const Acc<T>* cos, const Acc<T>* sin, T* y, RotaryShape r) {
  const int64_t pairs = r.size / 2, items = pairs + r.k - r.size, total = r.b * r.m * r.h * items;
  const I items_i = static_cast<I>(items), h_i = static_cast<I>(r.h), m_i = static_cast<I>(r.m),
          half_i = static_cast<I>(r.part / 2);
  GRID_LOOP(i, total) {  // indices are computed in I
    const I line = static_cast<I>(i) / items_i, place = line / h_i;
    const int64_t item = static_cast<I>(i) - line * items_i, ih = line - place * h_i, im = place % m_i,
                  ib = place / m_i;
    const T* from = x + ib * r.x_stride[0] + im * r.x_stride[1] + ih * r.x_stride[2];
    T* to = y + ib * r.y_stride[0] + im * r.y_stride[1] + ih * r.y_stride[2];
    if (item >= pairs) {
      to[r.size + item - pairs] = from[r.size + item - pairs];
      continue;
    }
    const int64_t half = half_i, segment = static_cast<I>(item) / half_i * r.part,
                  within = static_cast<I>(item) % half_i;
    const int64_t p = r.interval ? segment + 2 * within : segment + within, q = r.interval ? p + 1 : p + half;
    const Acc<T>*c = cos + ((r.one_table ? 0 : ib) * r.m + im) * r.size,
          *s = sin + ((r.one_table ? 0 : ib) * r.m + im) * r.size;
    const Acc<T> a = load(from + p), b = load(from + q);
    save(to + p, r.backward ? a * c[p] + b * s[q] : a * c[p] - b * s[p]);
    save(to + q, r.backward ? b * c[q] - a * s[p] : b * c[q] + a * s[q]);
  }
}

Tensor rotary(const Tensor& given, const Tensor& cos, const Tensor& sin, int64_t parts, bool interval,
              std::vector<int64_t> order, bool backward) {
  check_rotary(given, cos, sin, parts, order);
  const OnDevice guard(given);
  const Tensor x = given.stride(3) == 1 ? given : dense(given), c = dense(cos), s = dense(sin);
  std::vector<int64_t> sizes;
  for (int64_t d : order) sizes.push_back(x.size(d));
  const Tensor y = fresh(x, sizes);
  RotaryShape r{x.size(0),
                x.size(1),
                x.size(2),
                x.size(3),
                cos.size(2),
                cos.size(2) / parts,
                {x.stride(0), x.stride(1), x.stride(2)},
                {},
                cos.size(0) == 1,
                interval,
                backward};
  for (int i = 0; i < 3; ++i) r.y_stride[order[i]] = y.stride(i);
  const int64_t total = x.numel();
  if (!total) return y;
  floating("rotary", x, [&](auto t) {
    using T = decltype(t);
    if (total < int64_t(1) << 31)
      rotary_kernel<T, uint32_t><<<blocks_for(total), kThreads, 0, stream_of(x)>>>(
          data<T>(x), data<Acc<T>>(c), data<Acc<T>>(s), mutable_data<T>(y), r);
    else
      rotary_kernel<T, int64_t><<<blocks_for(total), kThreads, 0, stream_of(x)>>>(
          data<T>(x), data<Acc<T>>(c), data<Acc<T>>(s), mutable_data<T>(y), r);
  });
  check_launch("rotary");
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CUDA, m) {
  m.impl("pointwise", TORCH_BOX(&pointwise));
  m.impl("fake_quantize", TORCH_BOX(&fake_quantize));
  m.impl("bias_gelu", TORCH_BOX(&bias_gelu));
  m.impl("bias_gelu_backward", TORCH_BOX(&bias_gelu_backward));
  m.impl("bias_dropout", TORCH_BOX(&bias_dropout));
  m.impl("bias_dropout_backward", TORCH_BOX(&bias_dropout_backward));
  m.impl("scale_tril", TORCH_BOX(&scale_tril));
  m.impl("rotary", TORCH_BOX(&rotary));
}

}  // namespace oneflow_ext
