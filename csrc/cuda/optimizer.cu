// Optimizer steps on CUDA: adam_, momentum_ and sgd_ update up to 64 tensors with one launch. Scalars as in
// cpu/optimizer.h.
#include "common.cuh"

namespace oneflow_ext {
namespace {

struct Scalars {
  double s[8];
};

// The tensors of one launch, all of one dtype and device. m and v are null if the optimizer has no such
// state.
constexpr int kUpdates = 64;
template <class T>
struct Updates {
  T* model[kUpdates];
  const T* diff[kUpdates];
  T* m[kUpdates];
  T* v[kUpdates];
  int64_t n[kUpdates];
};

// kind: 0 is adam, 1 is momentum, 2 is sgd
template <class A, int kind>
__device__ inline void update(A& p, A d, A& m, A& v, const Scalars& c) {
  if constexpr (kind == 0) {
    const A g = A(c.s[6]) * d + A(c.s[1]) * p;
    m += A(1 - c.s[2]) * (g - m);
    v = A(c.s[3]) * v + A(1 - c.s[3]) * g * g;
    p = p * A(c.s[7]) - A(c.s[0]) * m / (sqrt(v) / A(c.s[4]) + A(c.s[5]));
  } else if constexpr (kind == 1) {
    const A g = A(c.s[4]) * d;
    m = A(c.s[1]) * m + A(c.s[2]) * g;
    p = p * A(c.s[5]) - A(c.s[0]) * (c.s[3] != 0 ? g + A(c.s[1]) * m : m);
  } else {
    p -= A(c.s[0]) * (A(c.s[2]) * d + A(c.s[1]) * p);
  }
}

// Block row y updates tensor y, N adjacent elements at a time.
template <class T, int kind, int N>
__global__ void optimizer_kernel(Updates<T> list, Scalars c) {
  const int t = blockIdx.y;
  GRID_LOOP(k, list.n[t] / N) {
    Pack<T, N> p = reinterpret_cast<Pack<T, N>*>(list.model[t])[k], m{}, v{};
    const Pack<T, N> d = reinterpret_cast<const Pack<T, N>*>(list.diff[t])[k];
    if constexpr (kind < 2) m = reinterpret_cast<Pack<T, N>*>(list.m[t])[k];
    if constexpr (kind < 1) v = reinterpret_cast<Pack<T, N>*>(list.v[t])[k];
#pragma unroll
    for (int e = 0; e < N; ++e) {
      Acc<T> pe = load(&p.v[e]), me = load(&m.v[e]), ve = load(&v.v[e]);
      update<Acc<T>, kind>(pe, load(&d.v[e]), me, ve, c);
      save(&p.v[e], pe), save(&m.v[e], me), save(&v.v[e], ve);
    }
    reinterpret_cast<Pack<T, N>*>(list.model[t])[k] = p;
    if constexpr (kind < 2) reinterpret_cast<Pack<T, N>*>(list.m[t])[k] = m;
    if constexpr (kind < 1) reinterpret_cast<Pack<T, N>*>(list.v[t])[k] = v;
  }
}

// Update model[begin] to model[end - 1] with one launch: at most kUpdates tensors of one dtype and device.
template <int kind>
void update_together(const char* name, const std::vector<Tensor>& model, const std::vector<Tensor>& diff,
                     const std::vector<Tensor>* m, const std::vector<Tensor>* v, const Scalars& scalars,
                     size_t begin, size_t end) {
  const OnDevice guard(model[begin]);
  std::vector<Tensor> gradients;
  for (size_t i = begin; i < end; ++i) gradients.push_back(dense(diff[i]));
  floating(name, model[begin], [&](auto t) {
    using T = decltype(t);
    constexpr int N = kPack<T>;
    Updates<T> list{};
    int64_t longest = 0;
    bool packs = true;
    for (size_t i = begin; i < end; ++i) {
      const size_t at = i - begin;
      const int64_t n = model[i].numel();
      list.model[at] = mutable_data<T>(model[i]), list.diff[at] = data<T>(gradients[at]), list.n[at] = n;
      if (m) list.m[at] = mutable_data<T>((*m)[i]);
      if (v) list.v[at] = mutable_data<T>((*v)[i]);
      packs &= n % N == 0 && aligned({list.model[at], list.diff[at], list.m[at], list.v[at]});
      longest = std::max(longest, n);
    }
    if (!longest) return;
    auto start = [&](auto width) {
      constexpr int W = decltype(width)::value;
      const dim3 blocks(blocks_for(longest / W), static_cast<unsigned>(end - begin));
      optimizer_kernel<T, kind, W><<<blocks, kThreads, 0, stream_of(model[begin])>>>(list, scalars);
    };
    if (packs)
      start(std::integral_constant<int, N>{});
    else
      start(std::integral_constant<int, 1>{});
  });
  check_launch(name);
}

template <int kind>
void optimizer(const char* name, const std::vector<Tensor>& model, const std::vector<Tensor>& diff,
               const std::vector<Tensor>* m, const std::vector<Tensor>* v, const std::vector<double>& s) {
  Scalars scalars{};
  std::copy(s.begin(), s.end(), scalars.s);
  for (size_t begin = 0, end; begin < model.size(); begin = end) {
    const Tensor& first = model[begin];
    for (end = begin + 1; end < model.size() && end - begin < kUpdates; ++end)
      if (model[end].scalar_type() != first.scalar_type() || model[end].get_device() != first.get_device())
        break;
    update_together<kind>(name, model, diff, m, v, scalars, begin, end);
  }
}

void adam(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> m, std::vector<Tensor> v,
          std::vector<double> s) {
  check_adam(model, diff, m, v, s);
  optimizer<0>("adam_", model, diff, &m, &v, s);
}
void momentum(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> buffer,
              std::vector<double> s) {
  check_momentum(model, diff, buffer, s);
  optimizer<1>("momentum_", model, diff, &buffer, nullptr, s);
}
void sgd(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<double> s) {
  check_sgd(model, diff, s);
  optimizer<2>("sgd_", model, diff, nullptr, nullptr, s);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CUDA, m) {
  m.impl("adam_", TORCH_BOX(&adam));
  m.impl("momentum_", TORCH_BOX(&momentum));
  m.impl("sgd_", TORCH_BOX(&sgd));
}

}  // namespace oneflow_ext
