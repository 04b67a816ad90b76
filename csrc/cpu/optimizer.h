// Optimizer steps on one tensor, in place. Scalars:
//   adam: lr / bias correction 1, l2, beta1, beta2, sqrt(bias correction 2), eps, gradient scale,
//         1 - lr * weight decay
//   momentum: +-lr, momentum, 1 - dampening, nesterov (0 or 1), gradient scale, 1 - lr * weight decay
//   sgd: lr, weight decay, gradient scale
#pragma once
#include "pointwise.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

inline void adam(Dtype dtype, void* model, const void* diff, void* m, void* v, const double* s, int64_t begin,
                 int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    using V = Vec<A>;
    const V step = scalar<A>(s, 0), l2 = scalar<A>(s, 1), b1 = V(static_cast<A>(1 - s[2])),
            beta2 = scalar<A>(s, 3), b2 = V(static_cast<A>(1 - s[3])), over_c2 = V(static_cast<A>(1 / s[4])),
            eps = scalar<A>(s, 5), scale = scalar<A>(s, 6), keep = scalar<A>(s, 7);
    const void* in[] = {model, diff, m, v};
    void* out[] = {model, m, v};
    run<T, 4, 3>(in, out, begin, end, [&](V* x, V* y) {
      const V g = at::vec::fmadd(l2, x[0], scale * x[1]);
      y[1] = x[2] + b1 * (g - x[2]);
      y[2] = beta2 * x[3] + b2 * g * g;
      y[0] = x[0] * keep - step * y[1] / at::vec::fmadd(y[2].sqrt(), over_c2, eps);
    });
  });
}

inline void momentum(Dtype dtype, void* model, const void* diff, void* buffer, const double* s, int64_t begin,
                     int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    using V = Vec<A>;
    const V lr = scalar<A>(s, 0), momentum = scalar<A>(s, 1), share = scalar<A>(s, 2),
            scale = scalar<A>(s, 4), keep = scalar<A>(s, 5);
    const bool nesterov = s[3] != 0;
    const void* in[] = {model, diff, buffer};
    void* out[] = {model, buffer};
    run<T, 3, 2>(in, out, begin, end, [&](V* x, V* y) {
      const V g = scale * x[1];
      y[1] = momentum * x[2] + share * g;
      y[0] = x[0] * keep - lr * (nesterov ? g + momentum * y[1] : y[1]);
    });
  });
}

inline void sgd(Dtype dtype, void* model, const void* diff, const double* s, int64_t begin, int64_t end) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    using V = Vec<A>;
    const V lr = scalar<A>(s, 0), decay = scalar<A>(s, 1), scale = scalar<A>(s, 2);
    const void* in[] = {model, diff};
    void* out[] = {model};
    run<T, 2, 1>(in, out, begin, end, [&](V* x, V* y) { y[0] = x[0] - lr * (scale * x[1] + decay * x[0]); });
  });
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
