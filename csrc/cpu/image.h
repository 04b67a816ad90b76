// Convert uint8 images, channels last, to planes of floats.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// to[i] = from[n - 1 - i], eight at a time, because compilers do not vectorize this loop over single bytes.
inline void turn(const uint8_t* from, uint8_t* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t part;
    std::memcpy(&part, from + n - 8 - i, 8);
    part = __builtin_bswap64(part);
    std::memcpy(to + i, &part, 8);
  }
  for (; i < n; ++i) to[i] = from[n - 1 - i];
}

template <int64_t C>
inline void image_planes_of(const ImageWindow& w, const uint8_t* image, float* planes) {
  constexpr int64_t block = 256;
  uint8_t split[C][block], mirrored[block];
  for (int64_t y = 0; y < w.height; ++y) {
    for (int64_t begin = 0; begin < w.width; begin += block) {
      const int64_t n = std::min(block, w.width - begin);
      const uint8_t* from = image + y * w.row + begin * C;
      for (int64_t x = 0; x < n; ++x)
        for (int64_t c = 0; c < C; ++c) split[c][x] = from[x * C + c];
      const int64_t at = w.mirror ? w.width - begin - n : begin;
      for (int64_t c = 0; c < C; ++c) {
        const uint8_t* values = split[c];
        if (w.mirror) {
          turn(split[c], mirrored, n);
          values = mirrored;
        }
        const float mean = w.mean[c], scale = w.scale[c];
        float* to = planes + (c * w.height + y) * w.width + at;
        for (int64_t x = 0; x < n; ++x) to[x] = (static_cast<float>(values[x]) - mean) * scale;
      }
    }
  }
}

inline void image_planes(const ImageWindow& w, const uint8_t* image, float* planes) {
  if (w.channels == 3)
    image_planes_of<3>(w, image, planes);
  else
    image_planes_of<1>(w, image, planes);
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
