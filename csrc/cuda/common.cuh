// Helpers shared by the CUDA kernels: launches on torch's current stream, types, reductions, Philox random
// numbers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <initializer_list>

#include "../common.h"

namespace oneflow_ext {

inline cudaStream_t stream_of(const Tensor& x) {
  void* stream = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device(), &stream));
  return static_cast<cudaStream_t>(stream);
}

// Make x's device the current one during its lifetime. torch's guard does not create a context on the device
// that it restores.
struct OnDevice {
  torch::stable::accelerator::DeviceGuard guard;
  explicit OnDevice(const Tensor& x) : guard(x.get_device()) {}
};

inline void check_cuda(const char* name, cudaError_t error) {
  STD_TORCH_CHECK(error == cudaSuccess, "oneflow::", name, ": ", cudaGetErrorString(error));
}
// Call this after every launch: CUDA reports a failed launch only through the next cudaGetLastError.
inline void check_launch(const char* name) { check_cuda(name, cudaGetLastError()); }
inline void fill_bytes(const char* name, const Tensor& x, int value, cudaStream_t stream) {
  check_cuda(name,
             cudaMemsetAsync(x.data_ptr(), value, static_cast<size_t>(x.numel()) * x.element_size(), stream));
}

// torch.maximum and torch.minimum: NaN if either value is NaN. CUDA's max and min return the other value.
template <class A>
__device__ inline A maximum(A a, A b) {
  return a > b || a != a ? a : b;
}
template <class A>
__device__ inline A minimum(A a, A b) {
  return a < b || a != a ? a : b;
}

// The compute dtype for a tensor of T.
template <class T>
struct AccOf {
  using type = float;
};
template <>
struct AccOf<double> {
  using type = double;
};
template <class T>
using Acc = typename AccOf<T>::type;

template <class T>
__device__ inline Acc<T> load(const T* p) {
  return static_cast<Acc<T>>(*p);
}
template <class T>
__device__ inline void save(T* p, Acc<T> v) {
  *p = static_cast<T>(v);
}

template <class F>
inline void floating(const char* name, const Tensor& x, F&& f) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return f(float{});
    case ScalarType::Double: return f(double{});
    case ScalarType::Half: return f(__half{});
    case ScalarType::BFloat16: return f(__nv_bfloat16{});
    default:
      STD_TORCH_CHECK(false, "oneflow::", name,
                      ": the CUDA kernels take float32, float64, float16 and bfloat16, found ",
                      toString(x.scalar_type()));
  }
}

constexpr int kThreads = 256;
inline unsigned blocks_for(int64_t n) {
  return static_cast<unsigned>(std::min<int64_t>((n + kThreads - 1) / kThreads, 132 * 32));
}

// for (i over n) in a grid-stride loop, 64-bit indices.
#define GRID_LOOP(i, n)                                                                  \
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < (n); \
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)

// N values that are loaded and stored together: 16 bytes, if all addresses are aligned to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
template <class T>
constexpr int kPack = 16 / sizeof(T);
inline bool aligned(std::initializer_list<const void*> addresses) {
  for (const void* p : addresses)
    if (reinterpret_cast<uintptr_t>(p) % 16) return false;
  return true;
}

template <class T>
const T* data(const Tensor& x) {
  return static_cast<const T*>(x.data_ptr());
}
template <class T>
T* mutable_data(const Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

struct Drop {
  uint32_t threshold;
  double kept;
};
inline Drop drop_of(double p) {
  return {static_cast<uint32_t>(std::min(p * 4294967296.0, 4294967295.0)), p < 1 ? 1 / (1 - p) : 0.0};
}

// keep / (1 - p) of element `index`. The random numbers equal those of cpu/bias.h, so CPU and GPU drop the
// same elements for the same seed.
template <class A>
__device__ inline A dropout_factor(uint64_t seed, int64_t index, const Drop& drop) {
  const uint64_t counter = static_cast<uint64_t>(index / 64) * 16 + index % 16;
  uint32_t a = static_cast<uint32_t>(counter), b = static_cast<uint32_t>(counter >> 32), c = 0, d = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    const uint32_t x = __umulhi(0xCD9E8D57u, c) ^ b ^ k0, z = __umulhi(0xD2511F53u, a) ^ d ^ k1;
    b = 0xCD9E8D57u * c, d = 0xD2511F53u * a;
    a = x, c = z;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  const int word = static_cast<int>(index % 64 / 16);
  const uint32_t value = word == 0 ? a : word == 1 ? b : word == 2 ? c : d;
  return value >= drop.threshold ? static_cast<A>(drop.kept) : A(0);
}

// Sum or maximum over a block; every thread gets the result. `shared` holds 33 values.
template <class A, class F>
__device__ A block_reduce(A value, A* shared, F combine, A neutral) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
#pragma unroll
  for (int offset = 16; offset; offset >>= 1)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  if (warp == 0) {
    A v = lane < warps ? shared[lane] : neutral;
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) v = combine(v, __shfl_xor_sync(0xffffffffu, v, offset));
    if (lane == 0) shared[32] = v;
  }
  __syncthreads();
  return shared[32];
}

}  // namespace oneflow_ext
