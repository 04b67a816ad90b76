// Select the kernel table of the widest instruction set of this machine, or a narrower one if torch's
// variable ATEN_CPU_CAPABILITY names it. Compiled without instruction-set flags.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace oneflow_cpu {

const Kernels& best() {
#if defined(__x86_64__)
  static const Kernels& chosen = []() -> const Kernels& {
    __builtin_cpu_init();
    const char* wanted = std::getenv("ATEN_CPU_CAPABILITY");
    const bool narrow = wanted && !std::strcmp(wanted, "default"),
               middle = narrow || (wanted && !std::strcmp(wanted, "avx2"));
    if (!middle && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      return avx512_kernels();
    if (!narrow && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_kernels();
    return default_kernels();
  }();
  return chosen;
#else
  return default_kernels();
#endif
}

}  // namespace oneflow_cpu
