// Convolutions of float32 images (N, C, H, W) and their gradients, as blocked matrix products. im2col gathers
// 256 pixels by 256 (channel, tap) rows at a time, so that the gathered block is still in the cache when it
// is multiplied.
#include "products.h"

namespace oneflow_ext {
namespace {

using torch::stable::parallel_for;

struct Images {
  int64_t n, channels, h, w;
  int64_t plane() const { return h * w; }
  int64_t pixels() const { return n * h * w; }
};

// Which image pixels an output pixel reads: output pixel (y, x) reads for kernel tap (a, b) the image at (y *
// stride + first + a * step, ...).
struct Window {
  int64_t kh, kw, stride_h, stride_w, first_h, first_w, step_h, step_w;
  bool by_channel;  // rows of the gathered matrix: channel * taps + tap, or tap * channels + channel
  int64_t taps() const { return kh * kw; }
  bool plain() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && first_h == 0 && first_w == 0;
  }  // the image itself
};

// A run of output pixels in one row of one image; `at` is its offset among the gathered pixels.
struct Run {
  int64_t at, image, y, x, count;
};
std::vector<Run> runs(const Images& out, int64_t first, int64_t count) {
  std::vector<Run> found;
  for (int64_t i = 0; i < count;) {
    const int64_t pixel = (first + i) % out.plane(), x = pixel % out.w, n = std::min(out.w - x, count - i);
    found.push_back({i, (first + i) / out.plane(), pixel / out.w, x, n});
    i += n;
  }
  return found;
}

// im2col: write rows [begin, last) of the gathered matrix for the given pixels to `to` (last - begin, count).
void gather(const float* from, const Images& in, const Window& window, const std::vector<Run>& pixels,
            int64_t count, int64_t begin, int64_t last, float* to) {
  const int64_t taps = window.taps();
  for (int64_t row = begin; row < last; ++row, to += count) {
    const int64_t channel = window.by_channel ? row / taps : row % in.channels,
                  tap = window.by_channel ? row % taps : row / in.channels;
    const int64_t dy = window.first_h + tap / window.kw * window.step_h,
                  dx = window.first_w + tap % window.kw * window.step_w;
    for (const Run& run : pixels) {
      float* out = to + run.at;
      const int64_t y = run.y * window.stride_h + dy, x = run.x * window.stride_w + dx;
      if (y < 0 || y >= in.h) {
        std::fill(out, out + run.count, 0.0f);
        continue;
      }
      const float* line = from + ((run.image * in.channels + channel) * in.h + y) * in.w;
      const int64_t s = window.stride_w;
      const int64_t low = std::clamp<int64_t>(x >= 0 ? 0 : (-x + s - 1) / s, 0, run.count),
                    high = std::clamp<int64_t>(x >= in.w ? 0 : (in.w - 1 - x) / s + 1, low, run.count);
      for (int64_t i = 0; i < low; ++i) out[i] = 0.0f;
      if (s == 1)
        for (int64_t i = low; i < high; ++i) out[i] = line[x + i];
      else
        for (int64_t i = low; i < high; ++i) out[i] = line[x + i * s];
      for (int64_t i = high; i < run.count; ++i) out[i] = 0.0f;
    }
  }
}

// to (N, rows, pixels of an image) = matrix (rows, depth) times the gathered matrix of `from`. A block of
// pixels lies in one image. If images are small, a block spans several images, and its results are scattered
// afterwards.
void apply(const float* from, const Images& in, const Window& window, const float* matrix, int64_t rows,
           const Images& out, float* to) {
  const int64_t depth = in.channels * window.taps(), plane = out.plane();
  const int64_t together = plane < kColumns / 2 ? std::min(out.n, kColumns / plane) : 1,
                width = together == 1 ? kColumns : together * plane;
  const int64_t across = together == 1 ? (plane + kColumns - 1) / kColumns : 1,
                groups = (out.n + together - 1) / together, blocks = groups * across;
  const int64_t threads = torch::stable::get_num_threads(),
                parts = std::clamp<int64_t>(threads / blocks, 1, (rows + kRows - 1) / kRows);
  const int64_t share = ((rows + parts - 1) / parts + kRows - 1) / kRows * kRows;
  parallel_for(0, blocks * parts, 1, [&](int64_t first_task, int64_t last_task) {
    const Numbers gathered = numbers(kDepth * width), apart = numbers(together == 1 ? 0 : share * width);
    for (int64_t task = first_task; task < last_task; ++task) {
      const int64_t part = task % parts, group = task / parts / across,
                    begin = together == 1 ? task / parts % across * kColumns : 0;
      const int64_t images = std::min(together, out.n - group * together),
                    count = together == 1 ? std::min(kColumns, plane - begin) : images * plane;
      const int64_t top = part * share, bottom = std::min(rows, top + share);
      const std::vector<Run> pixels = window.plain() && images == 1
                                          ? std::vector<Run>()
                                          : runs(out, group * together * plane + begin, count);
      float* result = images == 1 ? to + group * together * rows * plane + begin : apart.get() - top * count;
      const int64_t step = images == 1 ? plane : count;
      for (int64_t k = 0; k < depth; k += kDepth) {
        const int64_t last = std::min(depth, k + kDepth);
        const float* b = gathered.get();
        int64_t b_step = count;
        if (window.plain() && images == 1)
          b = from + (group * together * in.channels + k) * plane + begin, b_step = plane;
        else
          gather(from, in, window, pixels, count, k, last, gathered.get());
        for (int64_t i = top; i < bottom; i += kRows)
          block(std::min(kRows, bottom - i), count, last - k, matrix + i * depth + k, depth, b, b_step,
                result + i * step, step, k == 0);
      }
      if (images > 1)
        for (int64_t n = 0; n < images; ++n)
          for (int64_t i = top; i < bottom; ++i) {
            const float* line = result + i * step + n * plane;
            std::copy(line, line + plane, to + ((group * together + n) * rows + i) * plane);
          }
    }
  });
}

// to (channels * taps of `from`, channels of `other`) = the gathered matrix of `from` times `other` (N,
// channels, pixels), summed over the pixels.
void sum(const float* from, const Images& in, const Window& window, const float* other, const Images& out,
         float* to) {
  const int64_t depth = in.channels * window.taps(), plane = out.plane(), pixels = out.pixels(),
                columns = out.channels;
  const Numbers transposed = numbers(pixels * columns);  // (N, pixels, channels)
  for (int64_t n = 0; n < out.n; ++n)
    transpose(other + n * columns * plane, plane, columns, plane, transposed.get() + n * plane * columns);
  const bool direct = window.plain() && plane >= kDepth / 4;
  const int64_t width =
      direct ? plane : pixels;  // without a copy, a block of pixels cannot span two images
  parallel_for(0, (depth + kRows - 1) / kRows, 1, [&](int64_t first_task, int64_t last_task) {
    const int64_t top = first_task * kRows, bottom = std::min(depth, last_task * kRows);
    const Numbers gathered = numbers(direct ? 0 : kRows * kDepth);
    for (int64_t start = 0; start < pixels; start += width)
      for (int64_t q = start; q < start + width; q += kDepth) {
        const int64_t count = std::min(kDepth, start + width - q);
        const std::vector<Run> places = direct ? std::vector<Run>() : runs(out, q, count);
        for (int64_t i = top; i < bottom; i += kRows) {
          const int64_t last = std::min(bottom, i + kRows);
          const float* a = gathered.get();
          if (direct)
            a = from + (q / plane * in.channels + i) * plane + q % plane;
          else
            gather(from, in, window, places, count, i, last, gathered.get());
          for (int64_t j = 0; j < columns; j += kColumns)
            block(last - i, std::min(kColumns, columns - j), count, a, direct ? plane : count,
                  transposed.get() + q * columns + j, columns, to + i * columns + j, columns, q == 0);
        }
      }
  });
}

Images images_of(const Tensor& x) { return {x.size(0), x.size(1), x.size(2), x.size(3)}; }
float* data(const Tensor& x) { return static_cast<float*>(x.data_ptr()); }

struct Sizes {  // one entry for each dimension of the image
  int64_t h, w;
};

void check_step(const Checks& check, const char* h_name, const char* w_name, const Sizes& step, int64_t low) {
  check.range<int64_t>(h_name, step.h, low, kMaxSize), check.range<int64_t>(w_name, step.w, low, kMaxSize);
}
void check_steps(const Checks& check, const Sizes& stride, const Sizes& padding, const Sizes& dilation) {
  check_step(check, "stride_h", "stride_w", stride, 1),
      check_step(check, "padding_h", "padding_w", padding, 0),
      check_step(check, "dilation_h", "dilation_w", dilation, 1);
}
// Sizes of images and kernels are bounded, because they are multiplied by the steps.
void check_image(const Checks& check, const char* name, const Tensor& x) {
  if (x.size(2) > kMaxSize || x.size(3) > kMaxSize)
    check.refuse(name, "have at most ", kMaxSize, " along dimensions 2 and 3, found shape ", shape_text(x));
}

// The output size along a dimension.
int64_t pixels_along(const Checks& check, const char* kernel_name, int64_t size, int64_t kernel,
                     int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  if (kernel <= 0 || room < 0)
    check.refuse(kernel_name, "fit ", size, " pixels with a padding of ", padding, " and a dilation of ",
                 dilation, ", found a kernel of ", kernel);
  return room / stride + 1;
}

Tensor convolution(const Tensor& x, const Tensor& weight, int64_t stride_h, int64_t stride_w,
                   int64_t padding_h, int64_t padding_w, int64_t dilation_h, int64_t dilation_w) {
  const Sizes stride = {stride_h, stride_w}, padding = {padding_h, padding_w},
              dilation = {dilation_h, dilation_w};
  const Checks check("convolution");
  check_operands(check, "x", x, "weight", weight, 4), check_steps(check, stride, padding, dilation),
      check_image(check, "x", x), check_image(check, "weight", weight);
  check.shape("weight", weight, {kAny, x.size(1), kAny, kAny});
  const Images in = images_of(x);
  const int64_t kh = weight.size(2), kw = weight.size(3);
  const Images out = {in.n, weight.size(0),
                      pixels_along(check, "weight", in.h, kh, stride.h, padding.h, dilation.h),
                      pixels_along(check, "weight", in.w, kw, stride.w, padding.w, dilation.w)};
  const Tensor images = dense(x), kernel = dense(weight),
               result = fresh(x, {out.n, out.channels, out.h, out.w});
  if (result.numel() == 0) return result;
  if (in.channels == 0)
    std::fill(data(result), data(result) + result.numel(), 0.0f);
  else
    apply(data(images), in,
          {kh, kw, stride.h, stride.w, -padding.h, -padding.w, dilation.h, dilation.w, true}, data(kernel),
          out.channels, out, data(result));
  return result;
}

// The gradient of the images, for a stride of 1.
Tensor convolution_backward_input(const Tensor& dy, const Tensor& weight, int64_t h, int64_t w,
                                  int64_t padding_h, int64_t padding_w, int64_t dilation_h,
                                  int64_t dilation_w) {
  const Sizes padding = {padding_h, padding_w}, dilation = {dilation_h, dilation_w};
  const Checks check("convolution_backward_input");
  check_operands(check, "dy", dy, "weight", weight, 4), check_steps(check, {1, 1}, padding, dilation),
      check_image(check, "weight", weight);
  check.range<int64_t>("h", h, 0, kMaxSize), check.range<int64_t>("w", w, 0, kMaxSize);
  const int64_t kh = weight.size(2), kw = weight.size(3), channels = weight.size(1);
  check.shape("dy", dy,
              {kAny, weight.size(0), pixels_along(check, "weight", h, kh, 1, padding.h, dilation.h),
               pixels_along(check, "weight", w, kw, 1, padding.w, dilation.w)});
  const Images in = images_of(dy), out = {in.n, channels, h, w};
  const Tensor gradient = dense(dy), kernel = dense(weight),
               result = fresh(dy, {out.n, out.channels, out.h, out.w});
  if (result.numel() == 0) return result;
  if (dy.numel() == 0) {
    std::fill(data(result), data(result) + result.numel(), 0.0f);
    return result;
  }
  const int64_t depth = channels * kh * kw;
  const Numbers transposed = numbers(in.channels * depth);  // (channels, taps, channels of dy)
  transpose(data(kernel), depth, in.channels, depth, transposed.get());
  apply(data(gradient), in, {kh, kw, 1, 1, padding.h, padding.w, -dilation.h, -dilation.w, false},
        transposed.get(), channels, out, data(result));
  return result;
}

// The gradient of the weight, for a kernel of size (kh, kw).
Tensor convolution_backward_weight(const Tensor& dy, const Tensor& x, int64_t kh, int64_t kw,
                                   int64_t stride_h, int64_t stride_w, int64_t padding_h, int64_t padding_w,
                                   int64_t dilation_h, int64_t dilation_w) {
  const Sizes stride = {stride_h, stride_w}, padding = {padding_h, padding_w},
              dilation = {dilation_h, dilation_w};
  const Checks check("convolution_backward_weight");
  check_operands(check, "dy", dy, "x", x, 4), check_steps(check, stride, padding, dilation),
      check_image(check, "x", x);
  check.range<int64_t>("kh", kh, 1, kMaxSize), check.range<int64_t>("kw", kw, 1, kMaxSize);
  const Images in = images_of(x), out = images_of(dy);
  check.shape("dy", dy,
              {in.n, kAny, pixels_along(check, "kh", in.h, kh, stride.h, padding.h, dilation.h),
               pixels_along(check, "kw", in.w, kw, stride.w, padding.w, dilation.w)});
  const Tensor gradient = dense(dy), images = dense(x),
               result = fresh(x, {out.channels, in.channels, kh, kw});
  if (result.numel() == 0) return result;
  if (out.pixels() == 0) {
    std::fill(data(result), data(result) + result.numel(), 0.0f);
    return result;
  }
  const Window window = {kh, kw, stride.h, stride.w, -padding.h, -padding.w, dilation.h, dilation.w, true};
  if (window.plain()) {
    sum(data(gradient), out, window, data(images), in, data(result));
    return result;
  }
  const int64_t depth = in.channels * kh * kw;
  const Numbers transposed = numbers(depth * out.channels);
  sum(data(images), in, window, data(gradient), out, transposed.get());
  transpose(transposed.get(), out.channels, depth, out.channels, data(result));
  return result;
}

}  // namespace
}  // namespace oneflow_ext

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("convolution", TORCH_BOX(&oneflow_ext::convolution));
  m.impl("convolution_backward_input", TORCH_BOX(&oneflow_ext::convolution_backward_input));
  m.impl("convolution_backward_weight", TORCH_BOX(&oneflow_ext::convolution_backward_weight));
}
