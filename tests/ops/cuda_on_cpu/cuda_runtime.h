// CUDA's execution model on one CPU thread, for testing the kernels' logic where no GPU is: what csrc/cuda uses of the runtime, and
// `emulated::launch`, which build.py writes in place of <<< >>>. Blocks run one after another. The threads of a block run in turns on
// stacks of their own and change over at __syncthreads and at warp shuffles only; a barrier that part of the block or warp never
// reaches ends the process with a message, where a GPU would hang or compute garbage. EMULATED_ORDER=reverse runs the threads of
// a block from the last to the first: a missing barrier then shows in one of the two orders.
//
// What it does not show: races within a stretch between barriers, memory ordering, occupancy, real rounding of GPU functions.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#define __global__ static
#define __device__
#define __host__
#define __shared__ static  // blocks run one at a time

struct uint3 {
  unsigned x, y, z;
};
struct dim3 : uint3 {
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : uint3{x, y, z} {}
};
using cudaStream_t = void*;
enum [[nodiscard]] cudaError_t { cudaSuccess, cudaErrorInvalidConfiguration };

namespace emulated {

[[noreturn]] inline void die(const char* what) {
  std::fprintf(stderr, "emulated CUDA: %s\n", what);
  std::abort();
}

enum class Waits { Ready, Running, Block, Warp, Done };

inline uint3 thread, block;
inline dim3 threads, blocks;
inline cudaError_t error = cudaSuccess;
inline bool guard_required = false, unchecked = false;  // unchecked: a launch that cudaGetLastError has not followed
inline int guards = 0;                                  // device guards that live

// Tells at the end how many kernels ran, as a test that they did.
inline struct Launches {
  uint64_t count = 0;
  ~Launches() {
    if (count) std::fprintf(stderr, "emulated CUDA: %llu kernels launched\n", static_cast<unsigned long long>(count));
  }
} launches;

struct Block {
  struct Stack {
    static constexpr size_t kSize = 256 << 10;
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ucontext_t context{};
  };
  std::vector<std::unique_ptr<Stack>> stacks, spare;  // stacks[t]: of thread t, while it waits
  std::vector<Waits> state;
  std::vector<uint64_t> exchanged;
  std::function<void()> body;
  ucontext_t scheduler{};
  unsigned current = 0;

  static Block& the() {
    static Block only;
    return only;
  }

  // A stack runs its thread, then the next that is ready: kernels without barriers need one stack.
  static void work() {
    Block& b = the();
    for (;;) {
      b.body();
      b.state[b.current] = Waits::Done;
      const int next = b.next_fresh();
      if (next < 0) break;
      b.stacks[next] = std::move(b.stacks[b.current]);
      b.become(next);
    }
    b.spare.push_back(std::move(b.stacks[b.current]));
    swapcontext(&b.spare.back()->context, &b.scheduler);
  }

  int next_fresh() const {
    static const bool reverse = std::getenv("EMULATED_ORDER") && !std::strcmp(std::getenv("EMULATED_ORDER"), "reverse");
    const int n = static_cast<int>(state.size());
    for (int k = 0; k < n; ++k) {
      const int t = reverse ? n - 1 - k : k;
      if (state[t] == Waits::Ready && !stacks[t]) return t;
    }
    return -1;
  }
  void become(unsigned t) {
    current = t, state[t] = Waits::Running;
    thread = {t % threads.x, t / threads.x % threads.y, t / threads.x / threads.y};
  }
  void start(unsigned t) {
    if (spare.empty()) spare.push_back(std::make_unique<Stack>());
    stacks[t] = std::move(spare.back());
    spare.pop_back();
    Stack& s = *stacks[t];
    getcontext(&s.context);
    s.context.uc_stack.ss_sp = s.memory, s.context.uc_stack.ss_size = Stack::kSize, s.context.uc_link = nullptr;
    makecontext(&s.context, &work, 0);
    resume(t);
  }
  void resume(unsigned t) {
    become(t);
    swapcontext(&scheduler, &stacks[t]->context);
  }
  void wait(Waits what) {
    const unsigned me = current;
    state[me] = what;
    swapcontext(&stacks[me]->context, &scheduler);
  }

  void run(unsigned n) {
    state.assign(n, Waits::Ready), exchanged.assign(n, 0);
    stacks.clear(), stacks.resize(n);
    for (;;) {
      const int next = next_fresh();
      if (next >= 0) {
        start(next);
        continue;
      }
      bool moved = false;
      for (unsigned t = 0; t < n; ++t)
        if (state[t] == Waits::Ready) resume(t), moved = true;
      if (moved) continue;
      for (unsigned w = 0; w < n; w += 32) {
        const unsigned end = std::min(w + 32, n);
        const auto waiting = std::count(state.begin() + w, state.begin() + end, Waits::Warp);
        if (!waiting) continue;
        if (waiting != end - w) die("a warp shuffle that some threads of the warp do not reach");
        std::fill(state.begin() + w, state.begin() + end, Waits::Ready), moved = true;
      }
      if (moved) continue;
      const auto waiting = std::count(state.begin(), state.end(), Waits::Block);
      if (!waiting) return;
      if (waiting != n) die("__syncthreads() that some threads of the block do not reach");
      std::fill(state.begin(), state.end(), Waits::Ready);
    }
  }
};

template <class F, class... Args>
void launch(dim3 grid, dim3 size, size_t, cudaStream_t, F kernel, Args... args) {
  const uint64_t n = uint64_t(size.x) * size.y * size.z;
  if (guard_required && !guards) die("a launch without a device guard");
  if (unchecked) die("a launch after one that cudaGetLastError did not follow");
  unchecked = true;
  if (!n || n > 1024 || !grid.x || grid.x > 2147483647u || !grid.y || grid.y > 65535 || !grid.z || grid.z > 65535) {
    error = cudaErrorInvalidConfiguration;
    return;
  }
  ++launches.count;
  blocks = grid, threads = size;
  Block& b = Block::the();
  b.body = [&] { kernel(args...); };
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block = {x, y, z};
        b.run(static_cast<unsigned>(n));
      }
}

template <class T>
T exchange(T value, unsigned from_lane) {
  Block& b = Block::the();
  const unsigned me = b.current, first = me / 32 * 32;
  static_assert(sizeof(T) <= sizeof(uint64_t));
  std::memcpy(&b.exchanged[me], &value, sizeof(T));
  b.wait(Waits::Warp);
  const unsigned other = first + from_lane;
  if (other >= b.state.size()) die("a warp shuffle with a lane that the block does not have");
  std::memcpy(&value, &b.exchanged[other], sizeof(T));
  b.wait(Waits::Warp);
  return value;
}

}  // namespace emulated

#define threadIdx emulated::thread
#define blockIdx emulated::block
#define blockDim emulated::threads
#define gridDim emulated::blocks

inline void __syncthreads() { emulated::Block::the().wait(emulated::Waits::Block); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int offset) {
  if (mask != 0xffffffffu) emulated::die("a shuffle of part of a warp is not emulated");
  return emulated::exchange(value, emulated::Block::the().current % 32 ^ offset);
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t(a) * b >> 32); }

template <class T, class U>
T atomicAdd(T* p, U v) {
  const T before = *p;
  *p = before + static_cast<T>(v);
  return before;
}
template <class T, class U>
T atomicMin(T* p, U v) {
  const T before = *p;
  *p = std::min(before, static_cast<T>(v));
  return before;
}
template <class T>
T atomicCAS(T* p, T expected, T value) {
  const T before = *p;
  if (before == expected) *p = value;
  return before;
}

// CUDA's min and max of floating values drop NaN. No kernel wants that: common.cuh has minimum and maximum.
double max(double, double) = delete;
double min(double, double) = delete;
float max(float, float) = delete;
float min(float, float) = delete;
inline int64_t max(int64_t a, int64_t b) { return std::max(a, b); }
inline int64_t min(int64_t a, int64_t b) { return std::min(a, b); }
using std::atan, std::ceil, std::erf, std::exp, std::fabs, std::floor, std::rint, std::sqrt, std::tanh;

inline cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t) { return std::memset(p, value, n), cudaSuccess; }
inline cudaError_t cudaGetLastError() {
  emulated::unchecked = false;
  return std::exchange(emulated::error, cudaSuccess);
}
inline const char* cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "invalid configuration argument"; }
