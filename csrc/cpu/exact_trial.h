// The comparison of a product in blocks with ATen's own.
#pragma once
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>

#include "exact_products.h"

namespace oneflow_ext {

using Triple = std::array<int64_t, 3>;  // sizes or strides of (batch, rows, columns)

struct Operand {
  const float* data;
  Triple strides;
  const float* of_batch(int64_t i) const { return data ? data + i * strides[0] : nullptr; }
};

// addend (batch, m, n) + a (batch, m, k) b (batch, k, n). Without addend its data is null.
struct ProductCall {
  int64_t dims, batch, m, n, k;
  Operand a, b, addend;
  int64_t threads;
  int64_t results() const { return batch * m * n; }
};

inline void run_in_blocks(const ProductCall& call, int64_t depth, float* out) {
  const auto& [a, b, addend] = std::tie(call.a, call.b, call.addend);
  const auto some = [&](int64_t begin, int64_t end, int64_t threads) {
    for (int64_t i = begin; i < end; ++i)
      multiply_exactly(threads, {a.of_batch(i), call.m, call.k, a.strides[1], a.strides[2]},
                       {b.of_batch(i), call.k, call.n, b.strides[1], b.strides[2]},
                       {addend.of_batch(i), addend.strides[1], addend.strides[2]}, depth,
                       out + i * call.m * call.n);
  };
  if (call.batch < call.threads || call.threads == 1) return some(0, call.batch, call.threads);
  torch::stable::parallel_for(0, call.batch, 1, [&](int64_t begin, int64_t end) { some(begin, end, 1); });
}

inline void run_in_aten(const Tensor& out, const Tensor* addend, const Tensor& a, const Tensor& b) {
  const bool is_batch = a.dim() == 3;
  AtenTensorHandle y = out.get(), x = a.get(), w = b.get();
  const auto code = addend && is_batch ? aoti_torch_cpu_baddbmm_out(y, addend->get(), x, w, 1, 1)
                    : addend           ? aoti_torch_cpu_addmm_out(y, addend->get(), x, w, 1, 1)
                    : is_batch         ? aoti_torch_cpu_bmm_out(y, x, w)
                                       : aoti_torch_cpu_mm_out(y, x, w);
  STABLE_TORCH_ERROR_CODE_CHECK(code);
}

// The number of floats between an address and the beginning of its cache line.
inline int64_t place_in_line(const float* data) { return reinterpret_cast<uintptr_t>(data) % 64 / 4; }

// The number of floats from the first to the last element.
inline int64_t extent(const Triple& sizes, const Triple& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < 3; ++d) last += (sizes[d] - 1) * strides[d];
  return last + 1;
}

// A tensor for trials: random values between -1 and 1, in the layout of an operand.
struct TrialTensor {
  Tensor memory, tensor;
  float* data;

  TrialTensor(const Tensor& like, int64_t dims, const Triple& sizes, const Operand& operand, int64_t seed)
      : memory(fresh(like, {extent(sizes, operand.strides) + 32})) {
    const std::vector<float>& pool = random_pool();
    float* begin = static_cast<float*>(memory.data_ptr());
    data = begin + (place_in_line(operand.data) - place_in_line(begin) + 16) % 16;
    const int64_t size = extent(sizes, operand.strides), period = static_cast<int64_t>(pool.size());
    for (int64_t i = -(seed % period); i < size; i += period) {
      const int64_t skipped = std::max<int64_t>(-i, 0);
      std::copy_n(pool.data() + skipped, std::min(period, size - i) - skipped, data + i + skipped);
    }
    const size_t skipped = static_cast<size_t>(3 - dims);
    AtenTensorHandle made = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
        data, dims, sizes.data() + skipped, operand.strides.data() + skipped, 0, aoti_torch_dtype_float32(),
        aoti_torch_device_type_cpu(), 0, &made));
    tensor = Tensor(made);
  }

  static const std::vector<float>& random_pool() {
    static const std::vector<float> pool = [] {
      std::vector<float> values(16381);  // a prime, so that rows differ
      uint64_t state = 0x9e3779b97f4a7c15;
      for (float& value : values) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        value = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) / (1 << 23);
      }
      return values;
    }();
    return pool;
  }
};

// A row of a, or a column of b.
struct Line {
  float* data;
  int64_t size, stride;
  void scale(int exponent) const {
    for (int64_t k = 0; k < size; ++k) data[k * stride] = std::ldexp(data[k * stride], exponent);
  }
  void clear() const {  // keeps the signs
    for (int64_t k = 0; k < size; ++k) data[k * stride] = std::copysign(0.0f, data[k * stride]);
  }
  void set(int64_t k, float value) const { data[k % size * stride] = value; }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = NAN;

// Make some of `lines` lines special: zeros of both signs, infinity, NaN, and values whose products overflow,
// are denormal or underflow to zeros of both signs.
inline void make_special(const Line& line, int64_t index, int64_t lines) {
  if (index / 16 % (lines / 256 + 1)) return;
  switch (index % 16) {
    case 1: return line.scale(-75);
    case 3: return line.clear();
    case 5: return line.set(index, kInfinity);
    case 7: return line.set(index, kNan);
    case 9: return line.scale(66);
    case 11: return line.scale(-70);
    case 12: return line.scale(-90);
    default: return;
  }
}

// The time that this thread has run, which another process cannot lengthen.
inline double seconds_of_thread() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  timespec time;
  if (!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time))
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
#endif
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The operands of a call with other values, and ATen's result.
class Trial {
 public:
  Trial(const Tensor& like, const ProductCall& call)
      : call_(call),
        a_(like, call.dims, {call.batch, call.m, call.k}, call.a, 7),
        b_(like, call.dims, {call.batch, call.k, call.n}, call.b, 4099),
        out_(fresh(like, call.dims == 2 ? std::vector<int64_t>{call.m, call.n}
                                        : std::vector<int64_t>{call.batch, call.m, call.n})) {
    const Triple &x = call.a.strides, &w = call.b.strides;
    for (int64_t i = 0; i < (x[0] ? call.batch : 1); ++i)
      for (int64_t j = 0; j < call.m; ++j)
        make_special({a_.data + i * x[0] + j * x[1], call.k, x[2]}, i + j, call.m);
    for (int64_t i = 0; i < (w[0] ? call.batch : 1); ++i)
      for (int64_t j = 0; j < call.n; ++j)
        make_special({b_.data + i * w[0] + j * w[2], call.k, w[1]}, i + j, call.n);
    call_.a.data = a_.data, call_.b.data = b_.data;
    if (call.addend.data) {
      const Triple sizes{call.batch, call.m, call.n};
      addend_.emplace(like, call.dims, sizes, call.addend, 31);
      call_.addend.data = addend_->data;
      static constexpr float values[] = {-0.0f, 0.0f, kInfinity, kNan, 1e-41f, -1e-41f, 3e38f, -kInfinity};
      for (int64_t i = 0; i < extent(sizes, call.addend.strides); i += 3)
        if (i % 4 == 0 || i % 32 == 27) addend_->data[i] = values[i % 4 ? i / 32 % 8 : i / 12 % 2];
    }
    seconds_of_aten_ = seconds_in_aten();
    expected_ = digest();
  }

  int64_t depth() const { return call_.k; }

  // Whether the product in blocks has ATen's bits. All NaN are equal.
  bool fits(int64_t depth) {
    seconds_ = seconds_in_blocks(depth);
    return digest() == expected_;
  }

  // Whether the product in blocks of this depth, which fits, takes less time than ATen's.
  bool is_faster(int64_t depth) {
    // the first product of a shape compiles its kernels
    for (int round = 0; round < 3; ++round) {
      const bool is_warm = round > 0 || seconds_of_aten_ > kLong;
      if (is_warm && seconds_ + kCallCost < kMargin * seconds_of_aten_) return true;
      seconds_ = std::min(seconds_, seconds_in_blocks(depth));
      seconds_of_aten_ = std::min(seconds_of_aten_, seconds_in_aten());
    }
    return seconds_ + kCallCost < seconds_of_aten_;
  }

 private:
  static constexpr double kLong = 5e-3, kCallCost = 1e-6;  // seconds
  static constexpr double kMargin = 0.8;

  ProductCall call_;
  TrialTensor a_, b_;
  std::optional<TrialTensor> addend_;
  Tensor out_;
  uint64_t expected_ = 0;  // of ATen's result
  double seconds_of_aten_ = 0, seconds_ = 0;

  template <class Function>
  static double seconds(const Function& function) {
    const double begin = seconds_of_thread();
    function();
    return seconds_of_thread() - begin;
  }
  double seconds_in_aten() const {
    return seconds([&] { run_in_aten(out_, addend_ ? &addend_->tensor : nullptr, a_.tensor, b_.tensor); });
  }
  double seconds_in_blocks(int64_t depth) const {
    return seconds([&] { run_in_blocks(call_, depth, static_cast<float*>(out_.data_ptr())); });
  }

  // A hash of the bits of the result. It takes the place of a second result, which may be large.
  uint64_t digest() const {
    const float* x = static_cast<const float*>(out_.data_ptr());
    uint64_t hash = 0xcbf29ce484222325;
    for (int64_t i = 0; i < call_.results(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + i, 4);
      hash = (hash ^ (x[i] != x[i] ? 0x7fc00000u : bits)) * 0x100000001b3;
    }
    return hash;
  }
};

}  // namespace oneflow_ext
