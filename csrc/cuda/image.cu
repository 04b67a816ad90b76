// Convert uint8 images, channels last, to planes of floats: one thread for each output element.
#include "common.cuh"

namespace oneflow_ext {
namespace {

struct Window {
  int64_t channels, height, width, top, left, image, row, column,
      channel;  // sizes of the result, start of the window, strides
  float mean[3], scale[3];
};

__global__ void planes_kernel(const uint8_t* images, const int8_t* mirror, float* out, Window w,
                              int64_t total) {
  GRID_LOOP(i, total) {
    const int64_t x = i % w.width, y = i / w.width % w.height, c = i / (w.width * w.height) % w.channels,
                  n = i / (w.width * w.height * w.channels);
    const int64_t column = w.left + (mirror && mirror[n] ? w.width - 1 - x : x);
    const float value = images[n * w.image + (w.top + y) * w.row + column * w.column + c * w.channel];
    out[i] = (value - w.mean[c]) * w.scale[c];
  }
}

void crop_mirror_normalize(const Tensor& images, std::optional<Tensor> mirror, int64_t top, int64_t left,
                           std::vector<double> mean, std::vector<double> scale, const Tensor& out) {
  check_crop_mirror_normalize(images, mirror, top, left, mean, scale, out);
  const OnDevice guard(images);
  Window w{out.size(1),      out.size(2),      out.size(3),      top, left, images.stride(0),
           images.stride(1), images.stride(2), images.stride(3), {},  {}};
  for (int64_t c = 0; c < w.channels; ++c)
    w.mean[c] = static_cast<float>(mean[c]), w.scale[c] = static_cast<float>(scale[c]);
  const int64_t total = out.numel();
  if (!total) return;
  planes_kernel<<<blocks_for(total), kThreads, 0, stream_of(images)>>>(
      data<uint8_t>(images), mirror.has_value() ? data<int8_t>(*mirror) : nullptr, mutable_data<float>(out),
      w, total);
  check_launch("crop_mirror_normalize");
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CUDA, m) {
  m.impl("crop_mirror_normalize", TORCH_BOX(&crop_mirror_normalize));
}

}  // namespace oneflow_ext
