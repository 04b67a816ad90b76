// Register the updates of optimizers as CPU operators: one rule for all elements.
#include "operands.h"

namespace oneflow_ext {
namespace {

using oneflow_cpu::best;
using torch::stable::parallel_for;

void adam(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> m, std::vector<Tensor> v,
          std::vector<double> s) {
  check_adam(model, diff, m, v, s);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) {
      best().adam(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), m[i].data_ptr(), v[i].data_ptr(),
                  s.data(), a, b);
    });
  }
}

void momentum(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> buffer,
              std::vector<double> s) {
  check_momentum(model, diff, buffer, s);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) {
      best().momentum(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), buffer[i].data_ptr(), s.data(),
                      a, b);
    });
  }
}

void sgd(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<double> s) {
  check_sgd(model, diff, s);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) {
      best().sgd(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), s.data(), a, b);
    });
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("adam_", TORCH_BOX(&adam));
  m.impl("momentum_", TORCH_BOX(&momentum));
  m.impl("sgd_", TORCH_BOX(&sgd));
}

}  // namespace oneflow_ext
