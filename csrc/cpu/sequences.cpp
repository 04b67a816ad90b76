// ctc_greedy_decode and unique_pairs on the CPU, for scores in float32 and float64.
#include <algorithm>
#include <cstring>

#include "../common.h"
#include "scalar.h"

namespace oneflow_ext {
namespace {

using torch::stable::parallel_for;

// The class with the largest value. The first NaN counts as the largest, as in torch.max.
template <class T>
int64_t best_class(const T* row, int64_t classes) {
  int64_t best = 0;
  for (int64_t k = 0; k < classes && row[best] == row[best]; ++k)
    if (!(row[k] <= row[best])) best = k;
  return best;
}

std::tuple<Tensor, Tensor> ctc_greedy_decode(const Tensor& log_probs, const Tensor& input_lengths,
                                             bool merge) {
  check_ctc_greedy_decode(log_probs, input_lengths);
  const Tensor xd = dense(log_probs), ld = dense(input_lengths);
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), c = log_probs.size(2);
  const Tensor decoded = fresh(log_probs, {n, steps}, ScalarType::Long), sums = fresh(log_probs, {n, 1});
  if (n == 0) return {decoded, sums};
  floating("ctc_greedy_decode", log_probs, [&](auto t) {
    using T = decltype(t);
    parallel_for(0, n, std::max<int64_t>(1, 16384 / std::max<int64_t>(steps * c, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     int64_t* out = mutable_data<int64_t>(decoded) + i * steps;
                     int64_t used = 0, before = c - 1;
                     T sum = 0;
                     const int64_t length = std::min(data<int64_t>(ld)[i], steps);
                     for (int64_t s = 0; s < length; ++s) {
                       const T* row = data<T>(xd) + (s * n + i) * c;
                       const int64_t best = best_class(row, c);
                       sum -= row[best];
                       if (best != c - 1 && !(merge && s > 0 && best == before)) out[used++] = best;
                       before = best;
                     }
                     std::fill(out + used, out + steps, int64_t(0));
                     mutable_data<T>(sums)[i] = sum;
                   }
                 });
  });
  return {decoded, sums};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> unique_pairs(const Tensor& keys, const Tensor& values) {
  check_unique_pairs(keys, values);
  const Tensor kd = dense(keys), vd = dense(values);
  const int64_t n = keys.numel(), size = static_cast<int64_t>(values.element_size());
  const Tensor count = fresh(keys, {1}, ScalarType::Int), unique = fresh(keys, {n}), of = fresh(values, {n}),
               inverse = fresh(keys, {n}, ScalarType::Int);
  const int64_t* k = data<int64_t>(kd);
  int64_t* u = mutable_data<int64_t>(unique);
  const char* v = data<char>(vd);
  char* o = mutable_data<char>(of);
  int32_t* at = mutable_data<int32_t>(inverse);
  // Open addressing in a table with at least two slots a key. A slot holds a unique index + 1.
  uint64_t room = 16;
  while (room < static_cast<uint64_t>(2 * n)) room *= 2;
  std::vector<int32_t> table(room, 0);
  int32_t used = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint64_t h = static_cast<uint64_t>(k[i]) * 0x9E3779B97F4A7C15ull;
    for (h = (h ^ (h >> 32)) & (room - 1);; h = (h + 1) & (room - 1)) {
      if (!table[h]) {
        u[used] = k[i];
        std::memcpy(o + used * size, v + i * size, size);
        table[h] = ++used;
      }
      if (u[table[h] - 1] == k[i]) {
        at[i] = table[h] - 1;
        break;
      }
    }
  }
  std::fill(u + used, u + n, int64_t(0));
  if (used < n)
    std::memset(o + used * size, 0, (n - used) * size);  // memset of a null pointer is undefined, even for 0 bytes
  *mutable_data<int32_t>(count) = used;
  return {count, unique, of, inverse};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("ctc_greedy_decode", TORCH_BOX(&ctc_greedy_decode));
  m.impl("unique_pairs", TORCH_BOX(&unique_pairs));
}

}  // namespace oneflow_ext
