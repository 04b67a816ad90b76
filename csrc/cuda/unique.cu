// unique_pairs on CUDA: a hash table with open addressing, whose slots are claimed by atomic
// compare-and-swap. Results are in order of first occurrence, as on the CPU, whatever the order of the
// threads.
#include <array>

#include "common.cuh"

namespace oneflow_ext {
namespace {

using Word = unsigned long long;

// slots[h] is the index of a key plus 1, lowest[h] is the lowest index of that key, and where[i] is the slot
// of key i.
__global__ void insert_kernel(const int64_t* keys, Word* slots, Word* lowest, int64_t* where, int64_t n,
                              Word mask) {
  GRID_LOOP(i, n) {
    const int64_t key = keys[i];
    Word h = static_cast<Word>(key) * 0x9E3779B97F4A7C15ull;
    for (h = (h ^ (h >> 32)) & mask;; h = (h + 1) & mask) {
      const Word before = atomicCAS(slots + h, 0ull, static_cast<Word>(i) + 1);
      if (before == 0 || keys[before - 1] == key) break;
    }
    atomicMin(lowest + h, static_cast<Word>(i));
    where[i] = static_cast<int64_t>(h);
  }
}
__global__ void first_kernel(const Word* lowest, const int64_t* where, int64_t* first, int64_t n) {
  GRID_LOOP(i, n) first[i] = lowest[where[i]] == static_cast<Word>(i);
}
// rank: the number of first occurrences up to and including each key.
__global__ void write_kernel(const int64_t* keys, const char* values, const Word* lowest,
                             const int64_t* where, const int64_t* rank, int32_t* count, int64_t* unique,
                             char* of, int32_t* inverse, int64_t n, int64_t size) {
  GRID_LOOP(i, n) {
    const int64_t leader = static_cast<int64_t>(lowest[where[i]]), at = rank[leader] - 1;
    inverse[i] = static_cast<int32_t>(at);
    if (leader == i) {
      unique[at] = keys[i];
      for (int64_t b = 0; b < size; ++b) of[at * size + b] = values[i * size + b];
    }
    if (i == n - 1) *count = static_cast<int32_t>(rank[i]);
  }
}

Tensor cumulative(const Tensor& x) {
  std::array<StableIValue, 3> stack{torch::stable::detail::from(x), torch::stable::detail::from(int64_t(0)),
                                    torch::stable::detail::from(std::nullopt)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::cumsum", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> unique_pairs(const Tensor& keys, const Tensor& values) {
  check_unique_pairs(keys, values);
  const OnDevice guard(keys);
  const cudaStream_t stream = stream_of(keys);
  const Tensor kd = dense(keys), vd = dense(values);
  const int64_t n = keys.numel(), size = static_cast<int64_t>(values.element_size());
  const Tensor count = fresh(keys, {1}, ScalarType::Int), unique = fresh(keys, {n}), of = fresh(values, {n}),
               inverse = fresh(keys, {n}, ScalarType::Int);
  fill_bytes("unique_pairs", count, 0, stream);
  if (n) {
    int64_t room = 32;
    while (room < 2 * n) room *= 2;
    const Tensor slots = fresh(keys, {room}), lowest = fresh(keys, {room}), where = fresh(keys, {n}),
                 first = fresh(keys, {n});
    fill_bytes("unique_pairs", slots, 0, stream), fill_bytes("unique_pairs", lowest, 0xFF, stream);
    fill_bytes("unique_pairs", unique, 0, stream), fill_bytes("unique_pairs", of, 0, stream);
    auto *s = static_cast<Word*>(slots.data_ptr()), *l = static_cast<Word*>(lowest.data_ptr());
    insert_kernel<<<blocks_for(n), kThreads, 0, stream>>>(
        data<int64_t>(kd), s, l, mutable_data<int64_t>(where), n, static_cast<Word>(room - 1));
    check_launch("unique_pairs");
    first_kernel<<<blocks_for(n), kThreads, 0, stream>>>(l, data<int64_t>(where),
                                                         mutable_data<int64_t>(first), n);
    check_launch("unique_pairs");
    const Tensor rank = cumulative(first);
    write_kernel<<<blocks_for(n), kThreads, 0, stream>>>(
        data<int64_t>(kd), data<char>(vd), l, data<int64_t>(where), data<int64_t>(rank),
        mutable_data<int32_t>(count), mutable_data<int64_t>(unique), mutable_data<char>(of),
        mutable_data<int32_t>(inverse), n, size);
    check_launch("unique_pairs");
  }
  return {count, unique, of, inverse};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CUDA, m) { m.impl("unique_pairs", TORCH_BOX(&unique_pairs)); }

}  // namespace oneflow_ext
