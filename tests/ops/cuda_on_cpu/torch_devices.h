// The device guard and the current stream of torch's stable ABI, whose calls on CPU tensors fail: translate.py includes this before
// everything else. A kernel that is launched without a guard, and a launch whose error nobody asks for, end the process.
#pragma once
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "cuda_runtime.h"

namespace emulated {

inline const bool guard_is_required = guard_required = true;

inline int32_t create_guard(int32_t, DeviceGuardHandle* guard) {
  ++guards;
  *guard = reinterpret_cast<DeviceGuardHandle>(&guards);
  return 0;
}
inline int32_t delete_guard(DeviceGuardHandle) {
  if (unchecked) die("an operator that ends without cudaGetLastError after its last launch");
  --guards;
  return 0;
}

}  // namespace emulated

#define aoti_torch_create_device_guard emulated::create_guard
#define aoti_torch_delete_device_guard emulated::delete_guard
#define aoti_torch_get_current_cuda_stream(device, stream) (*(stream) = nullptr, 0)

// The kernels' sources are a second copy of the headers that they share with the CPU's, in which tensors do not lie on the CPU: they may
// have float16.
#include <torch/csrc/stable/tensor.h>
#define oneflow_ext oneflow_ext_on_cuda
#define is_cpu() is_cuda()
