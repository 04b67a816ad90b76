// Register the CPU kernels as operators: make inputs contiguous, allocate outputs, distribute the work to
// torch's threads.
#include "operands.h"

namespace oneflow_ext {
namespace {

using oneflow_cpu::best;
using oneflow_cpu::Dtype;
using oneflow_cpu::Point;
using oneflow_cpu::SoftmaxRows;
using torch::stable::parallel_for;

std::vector<Tensor> pointwise(int64_t op, std::vector<Tensor> inputs, int64_t outputs,
                              std::vector<double> scalars) {
  check_pointwise(op, inputs, outputs, scalars);
  std::vector<Tensor> dense_inputs, out;
  const void* in[oneflow_cpu::kMaxOperands];
  void* to[oneflow_cpu::kMaxOperands];
  for (size_t i = 0; i < inputs.size(); ++i) {
    dense_inputs.push_back(dense(inputs[i]));
    in[i] = dense_inputs[i].data_ptr();
  }
  for (int64_t i = 0; i < outputs; ++i) {
    out.push_back(fresh_like(inputs[0]));
    to[i] = out[i].data_ptr();
  }
  const Dtype dtype = dtype_of(inputs[0]);
  const double none[4] = {0, 0, 0, 0};
  const double* s = scalars.empty() ? none : scalars.data();
  parallel_for(0, inputs[0].numel(), 4096, [&](int64_t a, int64_t b) {
    best().pointwise(static_cast<Point>(op), dtype, in, to, s, a, b);
  });
  return out;
}

double value_of(const Tensor& x) {
  return x.scalar_type() == ScalarType::Float ? *static_cast<const float*>(x.data_ptr())
                                              : *static_cast<const double*>(x.data_ptr());
}

Tensor fake_quantize(const Tensor& x, const Tensor& scale, const Tensor& zero_point, double low,
                     double high) {
  check_fake_quantize(x, scale, zero_point, low, high);
  return pointwise(static_cast<int64_t>(Point::fake_quantize), {x}, 1,
                   {value_of(scale), value_of(zero_point), low, high})[0];
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, int64_t axis) {
  check_bias_gelu(x, bias, axis);
  const Tensor xd = dense(x), bd = dense(bias);
  const Tensor y = fresh_like(x);
  if (x.numel() == 0) return y;
  const BiasRows r = bias_rows(x, axis);
  parallel_for(0, r.rows, grain(r.n), [&](int64_t a, int64_t b) {
    best().bias_gelu(dtype_of(x), xd.data_ptr(), bd.data_ptr(), y.data_ptr(), r.n, r.per_row, a, b);
  });
  return y;
}

// Partial sums of the bias gradient: (outer, channels) if the bias has one value a row, else (blocks of
// kSumRows rows, channels).
Tensor fresh_sums(const Tensor& x, const BiasRows& r, int64_t axis) {
  const auto dtype = x.scalar_type() == ScalarType::BFloat16 ? ScalarType::Float : x.scalar_type();
  const int64_t blocks = r.in_row ? (r.rows + oneflow_cpu::kSumRows - 1) / oneflow_cpu::kSumRows : r.outer;
  return fresh(x, {blocks, x.size(axis)}, dtype);
}
// Call f(begin, end) over rows, in whole blocks of kSumRows.
template <class F>
void over_blocks(const BiasRows& r, F&& f) {
  constexpr int64_t block = oneflow_cpu::kSumRows;
  parallel_for(0, (r.rows + block - 1) / block, std::max<int64_t>(1, grain(r.n) / block),
               [&](int64_t a, int64_t b) { f(a * block, std::min(b * block, r.rows)); });
}

Tensor bias_gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& bias, int64_t axis) {
  check_bias_gelu_backward("bias_gelu_backward", dy, x, bias, axis);
  const Tensor gd = dense(dy), xd = dense(x), bd = dense(bias);
  const Tensor dx = fresh_like(x);
  if (x.numel() == 0) return dx;
  const BiasRows r = bias_rows(x, axis);
  parallel_for(0, r.rows, grain(r.n), [&](int64_t a, int64_t b) {
    best().bias_gelu_backward(dtype_of(x), xd.data_ptr(), bd.data_ptr(), gd.data_ptr(), dx.data_ptr(),
                              nullptr, r.n, r.per_row, a, b);
  });
  return dx;
}

std::tuple<Tensor, Tensor> bias_gelu_backward_sums(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                                   int64_t axis) {
  check_bias_gelu_backward("bias_gelu_backward_sums", dy, x, bias, axis);
  const Tensor gd = dense(dy), xd = dense(x), bd = dense(bias);
  const BiasRows r = bias_rows(x, axis);
  const Tensor dx = fresh_like(x), sums = fresh_sums(x, r, axis);
  if (sums.numel() == 0) return {dx, sums};
  over_blocks(r, [&](int64_t a, int64_t b) {
    best().bias_gelu_backward(dtype_of(x), xd.data_ptr(), bd.data_ptr(), gd.data_ptr(), dx.data_ptr(),
                              sums.data_ptr(), r.n, r.per_row, a, b);
  });
  return {dx, sums};
}

Tensor bias_dropout(const Tensor& x, const Tensor& bias, int64_t axis, double p, const Tensor& seed) {
  check_bias_dropout(x, bias, axis, p, seed);
  const Tensor xd = dense(x), bd = dense(bias);
  const Tensor y = fresh_like(x);
  if (x.numel() == 0) return y;
  const BiasRows r = bias_rows(x, axis);
  const uint64_t s = seed_of(seed);
  parallel_for(0, r.rows, grain(r.n), [&](int64_t a, int64_t b) {
    best().bias_dropout(dtype_of(x), xd.data_ptr(), bd.data_ptr(), y.data_ptr(), nullptr, r.n, r.per_row, p,
                        s, a, b);
  });
  return y;
}

Tensor bias_dropout_backward(const Tensor& dy, double p, const Tensor& seed) {
  check_bias_dropout_backward(dy, p, seed);
  const Tensor gd = dense(dy);
  const Tensor dx = fresh_like(dy);
  const uint64_t s = seed_of(seed);
  int64_t done = 0;  // rows of 4096, then 64, then 1 elements: each row starts at a multiple of its length
  for (int64_t n : {4096, 64, 1}) {
    const int64_t rows = dy.numel() / n;
    parallel_for(done / n, rows, grain(n), [&](int64_t a, int64_t b) {
      best().bias_dropout(dtype_of(dy), gd.data_ptr(), nullptr, dx.data_ptr(), nullptr, n, 0, p, s, a, b);
    });
    done = rows * n;
  }
  return dx;
}

std::tuple<Tensor, Tensor> bias_dropout_backward_sums(const Tensor& dy, int64_t axis, double p,
                                                      const Tensor& seed) {
  check_bias_dropout_backward_sums(dy, axis, p, seed);
  const Tensor gd = dense(dy);
  const BiasRows r = bias_rows(dy, axis);
  const Tensor dx = fresh_like(dy), sums = fresh_sums(dy, r, axis);
  if (sums.numel() == 0) return {dx, sums};
  const uint64_t s = seed_of(seed);
  over_blocks(r, [&](int64_t a, int64_t b) {
    best().bias_dropout(dtype_of(dy), gd.data_ptr(), nullptr, dx.data_ptr(), sums.data_ptr(), r.n, r.per_row,
                        p, s, a, b);
  });
  return {dx, sums};
}

// The kernels need mask rows of one value (stride 0) or of adjacent values (stride 1).
std::optional<Tensor> in_rows(const std::optional<Tensor>& mask) {
  if (!mask.has_value() || mask->dim() == 0 || mask->size(mask->dim() - 1) < 2 ||
      mask->stride(mask->dim() - 1) <= 1)
    return mask;
  return dense(*mask);
}

SoftmaxRows softmax_rows(const Tensor& x, const std::optional<Tensor>& mask, int64_t diagonal, double scale,
                         double fill, double p, const std::optional<Tensor>& seed) {
  const int64_t dims = x.dim();
  SoftmaxRows r{};
  r.n = x.size(dims - 1);
  r.m = dims > 1 ? x.size(dims - 2) : 1;
  r.scale = scale, r.fill = fill, r.p = p;
  r.seed = p > 0 ? seed_of(seed.value()) : 0;
  r.tril = !mask.has_value(), r.diagonal = diagonal;
  if (mask.has_value()) {
    const auto step = [&](int64_t d) { return mask->size(d) == 1 ? 0 : mask->stride(d); };
    r.mask = static_cast<const uint8_t*>(mask->data_ptr());
    r.mask_column = step(dims - 1);
    r.mask_dims = static_cast<int>(dims - 1);
    for (int64_t d = 0; d + 1 < dims; ++d) r.sizes[d] = x.size(d), r.strides[d] = step(d);
  }
  return r;
}

std::tuple<Tensor, Tensor> masked_softmax(const Tensor& x, std::optional<Tensor> mask, int64_t diagonal,
                                          double scale, double fill, double p, std::optional<Tensor> seed) {
  check_masked_softmax(x, mask, diagonal, p, seed);
  const Tensor xd = dense(x);
  const Tensor y = fresh_like(x), dropped = p > 0 ? fresh_like(x) : fresh(x, {0});
  mask = in_rows(mask);
  const SoftmaxRows r = softmax_rows(x, mask, diagonal, scale, fill, p, seed);
  const int64_t rows = r.n ? x.numel() / r.n : 0;
  parallel_for(0, rows, grain(r.n), [&](int64_t a, int64_t b) {
    best().softmax(dtype_of(x), r, xd.data_ptr(), y.data_ptr(), dropped.data_ptr(), a, b);
  });
  return {y, dropped};
}

Tensor masked_softmax_backward(std::optional<Tensor> dy, std::optional<Tensor> ddropped, const Tensor& y,
                               std::optional<Tensor> mask, int64_t diagonal, double scale, double p,
                               std::optional<Tensor> seed) {
  check_masked_softmax_backward(dy, ddropped, y, mask, diagonal, p, seed);
  const Tensor yd = dense(y), dx = fresh_like(y);
  const std::optional<Tensor> g = dy.has_value() ? std::optional<Tensor>(dense(*dy)) : std::nullopt;
  const std::optional<Tensor> gd =
      ddropped.has_value() && p > 0 ? std::optional<Tensor>(dense(*ddropped)) : std::nullopt;
  mask = in_rows(mask);
  const SoftmaxRows r = softmax_rows(y, mask, diagonal, scale, 0, p, seed);
  const int64_t rows = r.n ? y.numel() / r.n : 0;
  parallel_for(0, rows, grain(r.n), [&](int64_t a, int64_t b) {
    best().softmax_backward(dtype_of(y), r, yd.data_ptr(), g.has_value() ? g->data_ptr() : nullptr,
                            gd.has_value() ? gd->data_ptr() : nullptr, dx.data_ptr(), a, b);
  });
  return dx;
}

Tensor scale_tril(const Tensor& x, int64_t diagonal, double scale, double fill) {
  check_scale_tril(x, diagonal);
  const Tensor xd = dense(x), y = fresh_like(x);
  const int64_t m = x.size(x.dim() - 2), n = x.size(x.dim() - 1), rows = n ? x.numel() / n : 0;
  parallel_for(0, rows, grain(n), [&](int64_t a, int64_t b) {
    best().scale_tril(dtype_of(x), xd.data_ptr(), y.data_ptr(), m, n, diagonal, scale, fill, a, b);
  });
  return y;
}

Tensor rotary(const Tensor& given, const Tensor& cos, const Tensor& sin, int64_t parts, bool interval,
              std::vector<int64_t> order, bool backward) {
  check_rotary(given, cos, sin, parts, order);
  const Tensor x = given.stride(3) == 1 ? given : dense(given);
  const Tensor c = dense(cos), s = dense(sin);
  std::vector<int64_t> sizes;
  for (int64_t d : order) sizes.push_back(x.size(d));
  const Tensor y = fresh(x, sizes);
  if (y.numel() == 0) return y;
  int64_t strides[4];
  for (int i = 0; i < 4; ++i) strides[order[i]] = y.stride(i);
  const int64_t b = x.size(0), m = x.size(1), h = x.size(2), k = x.size(3), r = cos.size(2);
  const Dtype dtype = dtype_of(x);
  const int64_t size = static_cast<int64_t>(x.element_size()),
                work = static_cast<int64_t>(cos.element_size());
  const char *xp = static_cast<const char*>(x.data_ptr()), *cp = static_cast<const char*>(c.data_ptr()),
             *sp = static_cast<const char*>(s.data_ptr());
  char* yp = static_cast<char*>(y.data_ptr());
  parallel_for(0, b * m, grain(h * k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t ib = i / m, im = i % m, at = ((cos.size(0) == 1 ? 0 : ib) * m + im) * r * work;
      for (int64_t ih = 0; ih < h; ++ih)
        best().rotary(dtype, xp + (ib * x.stride(0) + im * x.stride(1) + ih * x.stride(2)) * size, cp + at,
                      sp + at, yp + (ib * strides[0] + im * strides[1] + ih * strides[2]) * size, k, r,
                      r / parts, interval, backward);
    }
  });
  return y;
}

Tensor pair_dots(const Tensor& x, bool self) {
  check_pair_dots(x);
  const Tensor xd = dense(x);
  const int64_t b = x.size(0), f = x.size(1), e = x.size(2), pairs = pair_count(f, self);
  const Tensor out = fresh(x, {b, pairs});
  if (out.numel() == 0) return out;
  const int64_t size = static_cast<int64_t>(x.element_size());
  parallel_for(0, b, grain(pairs * e), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      best().dots(dtype_of(x), static_cast<const char*>(xd.data_ptr()) + i * f * e * size,
                  static_cast<char*>(out.data_ptr()) + i * pairs * size, f, e, self);
  });
  return out;
}

Tensor pair_dots_backward(const Tensor& dout, const Tensor& x, bool self) {
  check_pair_dots_backward(dout, x, self);
  const Tensor xd = dense(x), gd = dense(dout), dx = fresh_like(x);
  if (dx.numel() == 0) return dx;
  const int64_t b = x.size(0), f = x.size(1), e = x.size(2), pairs = dout.size(1);
  const int64_t size = static_cast<int64_t>(x.element_size());
  parallel_for(0, b, grain(2 * pairs * e), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      best().dots_backward(dtype_of(x), static_cast<const char*>(xd.data_ptr()) + i * f * e * size,
                           static_cast<const char*>(gd.data_ptr()) + i * pairs * size,
                           static_cast<char*>(dx.data_ptr()) + i * f * e * size, f, e, self);
  });
  return dx;
}

// One thread handles a whole image, because data readers call this function from their own threads.
void crop_mirror_normalize(const Tensor& images, std::optional<Tensor> mirror, int64_t top, int64_t left,
                           std::vector<double> mean, std::vector<double> scale, const Tensor& out) {
  check_crop_mirror_normalize(images, mirror, top, left, mean, scale, out);
  if (out.numel() == 0) return;
  const int64_t channels = images.size(3), height = out.size(2), width = out.size(3);
  const Tensor from = images.stride(3) == 1 && images.stride(2) == channels ? images : dense(images);
  oneflow_cpu::ImageWindow window{height, width, channels, from.stride(1), false, {}, {}};
  for (int64_t c = 0; c < channels; ++c)
    window.mean[c] = static_cast<float>(mean[c]), window.scale[c] = static_cast<float>(scale[c]);
  const auto* first = static_cast<const uint8_t*>(from.data_ptr()) + top * window.row + left * channels;
  const auto* flips = mirror.has_value() ? static_cast<const int8_t*>(mirror->data_ptr()) : nullptr;
  auto* to = static_cast<float*>(out.data_ptr());
  parallel_for(0, out.size(0), 1, [&](int64_t a, int64_t b) {
    auto w = window;
    for (int64_t i = a; i < b; ++i) {
      w.mirror = flips && flips[i];
      best().image_planes(w, first + i * from.stride(0), to + i * channels * height * width);
    }
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("pointwise", TORCH_BOX(&pointwise));
  m.impl("fake_quantize", TORCH_BOX(&fake_quantize));
  m.impl("bias_gelu", TORCH_BOX(&bias_gelu));
  m.impl("bias_gelu_backward", TORCH_BOX(&bias_gelu_backward));
  m.impl("bias_gelu_backward_sums", TORCH_BOX(&bias_gelu_backward_sums));
  m.impl("bias_dropout", TORCH_BOX(&bias_dropout));
  m.impl("bias_dropout_backward", TORCH_BOX(&bias_dropout_backward));
  m.impl("bias_dropout_backward_sums", TORCH_BOX(&bias_dropout_backward_sums));
  m.impl("masked_softmax", TORCH_BOX(&masked_softmax));
  m.impl("masked_softmax_backward", TORCH_BOX(&masked_softmax_backward));
  m.impl("scale_tril", TORCH_BOX(&scale_tril));
  m.impl("rotary", TORCH_BOX(&rotary));
  m.impl("pair_dots", TORCH_BOX(&pair_dots));
  m.impl("pair_dots_backward", TORCH_BOX(&pair_dots_backward));
  m.impl("crop_mirror_normalize", TORCH_BOX(&crop_mirror_normalize));
}

}  // namespace oneflow_ext
