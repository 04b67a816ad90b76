// The elementwise operators of enum Point.
#pragma once
#include "vec.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

template <class T, int NI, int NO, class F>
inline void run(const void* const* in, void* const* out, int64_t begin, int64_t end, F&& f) {
  std::array<const T*, NI> x;
  std::array<T*, NO> y;
  for (int k = 0; k < NI; ++k) x[k] = static_cast<const T*>(in[k]);
  for (int k = 0; k < NO; ++k) y[k] = static_cast<T*>(out[k]);
  loop<T, NI, NO>(x, y, begin, end, f);
}

template <class A>
inline Vec<A> scalar(const double* s, int i) {
  return Vec<A>(static_cast<A>(s[i]));
}

// max and min like torch.maximum and torch.minimum. In the gradient, equal inputs get one half each.
template <class A>
inline Vec<A> share_greater(const Vec<A>& a, const Vec<A>& b) {
  const Vec<A> one(A(1)), half(A(0.5)), zero(A(0));
  return Vec<A>::blendv(Vec<A>::blendv(zero, half, a == b), one, a > b);
}

template <class T>
void pointwise_of(Point op, const void* const* in, void* const* out, const double* s, int64_t begin,
                  int64_t end) {
  using A = Acc<T>;
  using V = Vec<A>;
  const V one(A(1)), half(A(0.5)), two(A(2)), zero(A(0));
  const V eps(s ? A(s[0]) : A(0));
  switch (op) {
    case Point::quick_gelu: {
      const V c(A(-1.702));
      return run<T, 1, 1>(in, out, begin, end,
                          [&](V* x, V* y) { y[0] = x[0] / (one + exponential(x[0] * c)); });
    }
    case Point::quick_gelu_backward: {
      const V c(A(1.702));
      return run<T, 2, 1>(in, out, begin, end, [&](V* x, V* y) {
        const V sig = logistic(x[0] * c);
        y[0] = x[1] * sig * (one + c * x[0] * (one - sig));
      });
    }
    case Point::square_relu:
      return run<T, 1, 1>(in, out, begin, end, [&](V* x, V* y) {
        const V r = at::vec::clamp_min(x[0], zero);
        y[0] = r * r;
      });
    case Point::square_relu_backward:
      return run<T, 2, 1>(in, out, begin, end,
                          [&](V* x, V* y) { y[0] = two * at::vec::clamp_min(x[0], zero) * x[1]; });
    case Point::fast_gelu_mul:
      return run<T, 2, 1>(in, out, begin, end, [&](V* x, V* y) { y[0] = x[0] * tanh_share(x[0]) * x[1]; });
    case Point::fast_gelu_mul_backward: {
      const V beta(A(M_SQRT2 * M_2_SQRTPI * 0.5)), cube(A(3 * 0.044715));
      return run<T, 3, 2>(in, out, begin, end, [&](V* x, V* y) {
        const V sig = tanh_share(x[0]);
        const V slope = sig + two * x[0] * sig * (one - sig) * beta * (one + cube * x[0] * x[0]);
        y[0] = x[2] * x[1] * slope;
        y[1] = x[2] * x[0] * sig;
      });
    }
    case Point::boxes_coord:
      return run<T, 8, 8>(in, out, begin, end, [&](V* x, V* y) {
        for (int b = 0; b < 2; ++b) {
          const V w = x[4 * b + 2] * half, h = x[4 * b + 3] * half;
          y[4 * b] = x[4 * b] - w, y[4 * b + 1] = x[4 * b] + w;
          y[4 * b + 2] = x[4 * b + 1] - h, y[4 * b + 3] = x[4 * b + 1] + h;
        }
      });
    case Point::boxes_coord_backward:
      return run<T, 8, 8>(in, out, begin, end, [&](V* d, V* y) {
        for (int b = 0; b < 8; b += 4) {
          y[b] = d[b] + d[b + 1], y[b + 1] = d[b + 2] + d[b + 3];
          y[b + 2] = (d[b + 1] - d[b]) * half, y[b + 3] = (d[b + 3] - d[b + 2]) * half;
        }
      });
    // corners: 0 b1_x1, 1 b1_x2, 2 b2_x1, 3 b2_x2, 4 b1_y1, 5 b1_y2, 6 b2_y1, 7 b2_y2
    case Point::intersection:
      return run<T, 8, 1>(in, out, begin, end, [&](V* x, V* y) {
        const V w = at::vec::clamp_min(at::vec::minimum(x[1], x[3]) - at::vec::maximum(x[0], x[2]), zero);
        y[0] = w * at::vec::clamp_min(at::vec::minimum(x[5], x[7]) - at::vec::maximum(x[4], x[6]), zero);
      });
    case Point::intersection_backward:
      return run<T, 9, 8>(in, out, begin, end, [&](V* x, V* y) {
        const V rw = at::vec::minimum(x[1], x[3]) - at::vec::maximum(x[0], x[2]);
        const V rh = at::vec::minimum(x[5], x[7]) - at::vec::maximum(x[4], x[6]);
        const V dw = V::blendv(zero, x[8] * at::vec::clamp_min(rh, zero), rw >= zero);
        const V dh = V::blendv(zero, x[8] * at::vec::clamp_min(rw, zero), rh >= zero);
        for (int a = 0; a < 8; a += 4) {
          const V d = a ? dh : dw;
          const V low = share_greater(x[a], x[a + 2]), high = share_greater(x[a + 3], x[a + 1]);
          y[a] = (d * low).neg(), y[a + 2] = (d * (one - low)).neg();
          y[a + 1] = d * high, y[a + 3] = d * (one - high);
        }
      });
    case Point::iou:
      return run<T, 5, 1>(in, out, begin, end,
                          [&](V* x, V* y) { y[0] = x[4] / (x[0] * x[1] + x[2] * x[3] - x[4] + eps); });
    case Point::iou_backward:
      return run<T, 6, 5>(in, out, begin, end, [&](V* x, V* y) {
        const V below = one / (x[0] * x[1] + x[2] * x[3] - x[4] + eps);
        const V d = x[5] * below, area = (d * x[4] * below).neg();
        y[0] = area * x[1], y[1] = area * x[0], y[2] = area * x[3], y[3] = area * x[2];
        y[4] = d - area;
      });
    case Point::convex:
      return run<T, 8, 1>(in, out, begin, end, [&](V* x, V* y) {
        const V w = at::vec::maximum(x[1], x[3]) - at::vec::minimum(x[0], x[2]);
        const V h = at::vec::maximum(x[5], x[7]) - at::vec::minimum(x[4], x[6]);
        y[0] = w * w + h * h + eps;
      });
    case Point::convex_backward:
      return run<T, 9, 8>(in, out, begin, end, [&](V* x, V* y) {
        for (int a = 0; a < 8; a += 4) {
          const V d = two * x[8] * (at::vec::maximum(x[a + 1], x[a + 3]) - at::vec::minimum(x[a], x[a + 2]));
          const V low = share_greater(x[a + 2], x[a]), high = share_greater(x[a + 1], x[a + 3]);
          y[a] = (d * low).neg(), y[a + 2] = (d * (one - low)).neg();
          y[a + 1] = d * high, y[a + 3] = d * (one - high);
        }
      });
    case Point::center_dist: {
      const V quarter(A(0.25));
      return run<T, 8, 1>(in, out, begin, end, [&](V* x, V* y) {
        const V dx = x[2] + x[3] - x[0] - x[1], dy = x[6] + x[7] - x[4] - x[5];
        y[0] = (dx * dx + dy * dy) * quarter;
      });
    }
    case Point::center_dist_backward:
      return run<T, 9, 4>(in, out, begin, end, [&](V* x, V* y) {
        for (int a = 0; a < 2; ++a) {
          y[2 * a + 1] = half * x[8] * (x[4 * a + 2] + x[4 * a + 3] - x[4 * a] - x[4 * a + 1]);
          y[2 * a] = y[2 * a + 1].neg();
        }
      });
    case Point::angle: {
      const V c(A(4 / (M_PI * M_PI)));
      return run<T, 4, 1>(in, out, begin, end, [&](V* x, V* y) {
        const V d = atan_ratio(x[2], x[3] + eps) - atan_ratio(x[0], x[1] + eps);
        y[0] = c * d * d;
      });
    }
    case Point::angle_backward: {
      const V c(A(8 / (M_PI * M_PI)));
      return run<T, 5, 4>(in, out, begin, end, [&](V* x, V* y) {
        const V h1 = x[1] + eps, h2 = x[3] + eps;
        const V d = c * x[4] * (atan_ratio(x[2], h2) - atan_ratio(x[0], h1));
        const V d1 = d / (x[0] * x[0] + h1 * h1), d2 = d / (x[2] * x[2] + h2 * h2);
        y[0] = (d1 * h1).neg(), y[1] = d1 * x[0], y[2] = d2 * h2, y[3] = (d2 * x[2]).neg();
      });
    }
    case Point::ciou: {
      const V above(A(1 + s[0]));
      return run<T, 4, 2>(in, out, begin, end, [&](V* x, V* y) {
        y[1] = x[0] / (x[0] - x[1] + above);
        y[0] = x[1] - (x[2] / x[3] + x[0] * y[1]);
      });
    }
    case Point::ciou_backward:
      return run<T, 4, 4>(in, out, begin, end, [&](V* x, V* y) {
        y[0] = (x[3] * x[0]).neg(), y[1] = x[3];
        y[2] = (x[3] / x[2]).neg(), y[3] = x[3] * x[1] / (x[2] * x[2]);
      });
    case Point::fake_quantize: {
      const V scale = scalar<A>(s, 0), zero_point = scalar<A>(s, 1), low = scalar<A>(s, 2),
              high = scalar<A>(s, 3);
      return run<T, 1, 1>(in, out, begin, end, [&](V* x, V* y) {
        y[0] = (at::vec::clamp((x[0] / scale + zero_point).round(), low, high) - zero_point) * scale;
      });
    }
    case Point::count: return;
  }
}

inline void pointwise(Point op, Dtype dtype, const void* const* in, void* const* out, const double* s,
                      int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) { pointwise_of<decltype(t)>(op, in, out, s, begin, end); });
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
