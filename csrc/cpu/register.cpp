// The CPU kernels as operators: contiguous inputs, new outputs, parts handed to torch's threads.
#include "operands.h"

#include <cstring>

// MKL's square roots where torch is built with it: libtorch_cpu computes with them, and they round otherwise than the processor's.
extern "C" {
__attribute__((weak)) void vmsSqrt(int n, const float* x, float* y, long long mode);
__attribute__((weak)) void vmdSqrt(int n, const double* x, double* y, long long mode);
}

namespace oneflow_ext {
namespace {

using oneflow_cpu::best;
using oneflow_cpu::Block;
using oneflow_cpu::BlockStep;
using oneflow_cpu::Dtype;
using oneflow_cpu::Point;
using oneflow_cpu::SoftmaxRows;
using torch::stable::parallel_for;

std::vector<Tensor> pointwise(int64_t op, std::vector<Tensor> inputs, int64_t outputs, std::vector<double> scalars) {
  STD_TORCH_CHECK(op >= 0 && op < static_cast<int64_t>(Point::count), "oneflow::pointwise: no operator ", op);
  STD_TORCH_CHECK(!inputs.empty() && inputs.size() <= oneflow_cpu::kMaxOperands, "oneflow::pointwise: ", inputs.size(), " inputs");
  std::vector<Tensor> held, out;
  const void* in[oneflow_cpu::kMaxOperands];
  void* to[oneflow_cpu::kMaxOperands];
  for (size_t i = 0; i < inputs.size(); ++i) {
    STD_TORCH_CHECK(inputs[i].numel() == inputs[0].numel() && inputs[i].scalar_type() == inputs[0].scalar_type(),
                    "oneflow::pointwise: inputs of one shape and dtype, found ", inputs[i].numel(), " and ", inputs[0].numel(), " elements");
    held.push_back(dense(inputs[i]));
    in[i] = held[i].data_ptr();
  }
  for (int64_t i = 0; i < outputs; ++i) {
    out.push_back(fresh_like(inputs[0]));
    to[i] = out[i].data_ptr();
  }
  const Dtype dtype = dtype_of(inputs[0]);
  const double none[4] = {0, 0, 0, 0};
  const double* s = scalars.empty() ? none : scalars.data();
  parallel_for(0, inputs[0].numel(), 4096, [&](int64_t a, int64_t b) { best().pointwise(static_cast<Point>(op), dtype, in, to, s, a, b); });
  return out;
}

double value_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return *static_cast<const float*>(x.data_ptr());
    case ScalarType::Double: return *static_cast<const double*>(x.data_ptr());
    default: STD_TORCH_CHECK(false, "oneflow::fake_quantize: scale and zero_point must be float32 or float64, found ", toString(x.scalar_type()));
  }
}

Tensor fake_quantize(const Tensor& x, const Tensor& scale, const Tensor& zero_point, double low, double high) {
  return pointwise(static_cast<int64_t>(Point::fake_quantize), {x}, 1, {value_of(scale), value_of(zero_point), low, high})[0];
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, int64_t axis) {
  const Tensor xd = dense(x), bd = dense(bias);
  const Tensor y = fresh_like(x);
  const BiasRows r = bias_rows(x, axis);
  parallel_for(0, r.rows, grain(r.n), [&](int64_t a, int64_t b) { best().bias_gelu(dtype_of(x), xd.data_ptr(), bd.data_ptr(), y.data_ptr(), r.n, r.per_row, a, b); });
  return y;
}

// Parts of the gradient of the bias: (outer, channels) where it has a value a row, else (blocks of kSumRows rows, channels).
Tensor fresh_sums(const Tensor& x, const BiasRows& r, int64_t axis) {
  const auto dtype = x.scalar_type() == ScalarType::BFloat16 ? ScalarType::Float : x.scalar_type();
  const int64_t blocks = r.per_row ? r.rows / std::max<int64_t>(r.per_row, 1) : (r.rows + oneflow_cpu::kSumRows - 1) / oneflow_cpu::kSumRows;
  return fresh(x, {blocks, x.size(axis)}, dtype);
}
// f(begin, end) over rows in whole blocks of kSumRows.
template <class F>
void over_blocks(const BiasRows& r, F&& f) {
  constexpr int64_t block = oneflow_cpu::kSumRows;
  parallel_for(0, (r.rows + block - 1) / block, std::max<int64_t>(1, grain(r.n) / block), [&](int64_t a, int64_t b) { f(a * block, std::min(b * block, r.rows)); });
}

Tensor bias_gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& bias, int64_t axis) {
  const Tensor gd = dense(dy), xd = dense(x), bd = dense(bias);
  const Tensor dx = fresh_like(x);
  const BiasRows r = bias_rows(x, axis);
  parallel_for(0, r.rows, grain(r.n), [&](int64_t a, int64_t b) {
    best().bias_gelu_backward(dtype_of(x), xd.data_ptr(), bd.data_ptr(), gd.data_ptr(), dx.data_ptr(), nullptr, r.n, r.per_row, a, b);
  });
  return dx;
}

std::tuple<Tensor, Tensor> bias_gelu_backward_sums(const Tensor& dy, const Tensor& x, const Tensor& bias, int64_t axis) {
  const Tensor gd = dense(dy), xd = dense(x), bd = dense(bias);
  const BiasRows r = bias_rows(x, axis);
  const Tensor dx = fresh_like(x), sums = fresh_sums(x, r, axis);
  over_blocks(r, [&](int64_t a, int64_t b) {
    best().bias_gelu_backward(dtype_of(x), xd.data_ptr(), bd.data_ptr(), gd.data_ptr(), dx.data_ptr(), sums.data_ptr(), r.n, r.per_row, a, b);
  });
  return {dx, sums};
}

Tensor bias_dropout(const Tensor& x, const Tensor& bias, int64_t axis, double p, const Tensor& seed) {
  const Tensor xd = dense(x), bd = dense(bias);
  const Tensor y = fresh_like(x);
  const BiasRows r = bias_rows(x, axis);
  const uint64_t s = seed_of(seed);
  parallel_for(0, r.rows, grain(r.n), [&](int64_t a, int64_t b) { best().bias_dropout(dtype_of(x), xd.data_ptr(), bd.data_ptr(), y.data_ptr(), nullptr, r.n, r.per_row, p, s, a, b); });
  return y;
}

Tensor bias_dropout_backward(const Tensor& dy, double p, const Tensor& seed) {
  const Tensor gd = dense(dy);
  const Tensor dx = fresh_like(dy);
  const uint64_t s = seed_of(seed);
  int64_t done = 0;  // as rows of 4096, then of 64, then of 1: each starts at a multiple of its length
  for (int64_t n : {4096, 64, 1}) {
    const int64_t rows = dy.numel() / n;
    parallel_for(done / n, rows, grain(n), [&](int64_t a, int64_t b) { best().bias_dropout(dtype_of(dy), gd.data_ptr(), nullptr, dx.data_ptr(), nullptr, n, 0, p, s, a, b); });
    done = rows * n;
  }
  return dx;
}

std::tuple<Tensor, Tensor> bias_dropout_backward_sums(const Tensor& dy, int64_t axis, double p, const Tensor& seed) {
  const Tensor gd = dense(dy);
  const BiasRows r = bias_rows(dy, axis);
  const Tensor dx = fresh_like(dy), sums = fresh_sums(dy, r, axis);
  const uint64_t s = seed_of(seed);
  over_blocks(r, [&](int64_t a, int64_t b) { best().bias_dropout(dtype_of(dy), gd.data_ptr(), nullptr, dx.data_ptr(), sums.data_ptr(), r.n, r.per_row, p, s, a, b); });
  return {dx, sums};
}

// The kernels read a row of the mask as one value, or as values beside each other.
std::optional<Tensor> in_rows(const std::optional<Tensor>& mask) {
  if (!mask.has_value() || mask->dim() == 0 || mask->size(mask->dim() - 1) < 2 || mask->stride(mask->dim() - 1) <= 1) return mask;
  return dense(*mask);
}

SoftmaxRows softmax_rows(const Tensor& x, const std::optional<Tensor>& mask, int64_t diagonal, double scale, double fill, double p, const std::optional<Tensor>& seed) {
  const int64_t dims = x.dim();
  STD_TORCH_CHECK(dims >= 1 && dims <= 12, "oneflow::masked_softmax: 1 to 12 dimensions, found ", dims);
  SoftmaxRows r{};
  r.n = x.size(dims - 1);
  r.m = dims > 1 ? x.size(dims - 2) : 1;
  r.scale = scale, r.fill = fill, r.p = p;
  r.seed = p > 0 ? seed_of(seed.value()) : 0;
  r.tril = !mask.has_value(), r.diagonal = diagonal;
  if (mask.has_value()) {
    STD_TORCH_CHECK(mask->scalar_type() == ScalarType::Bool && mask->dim() == dims, "oneflow::masked_softmax: the mask must be bool and expanded to the input's shape");
    r.mask = static_cast<const uint8_t*>(mask->data_ptr());
    r.mask_column = mask->stride(dims - 1);
    r.mask_dims = static_cast<int>(dims - 1);
    for (int64_t d = 0; d + 1 < dims; ++d) r.sizes[d] = x.size(d), r.strides[d] = mask->stride(d);
  }
  return r;
}

std::tuple<Tensor, Tensor> masked_softmax(const Tensor& x, std::optional<Tensor> mask, int64_t diagonal, double scale, double fill, double p, std::optional<Tensor> seed) {
  const Tensor xd = dense(x);
  const Tensor y = fresh_like(x), dropped = p > 0 ? fresh_like(x) : fresh(x, {0});
  mask = in_rows(mask);
  const SoftmaxRows r = softmax_rows(x, mask, diagonal, scale, fill, p, seed);
  const int64_t rows = r.n ? x.numel() / r.n : 0;
  parallel_for(0, rows, grain(r.n), [&](int64_t a, int64_t b) { best().softmax(dtype_of(x), r, xd.data_ptr(), y.data_ptr(), dropped.data_ptr(), a, b); });
  return {y, dropped};
}

Tensor masked_softmax_backward(std::optional<Tensor> dy, std::optional<Tensor> ddropped, const Tensor& y, std::optional<Tensor> mask, int64_t diagonal, double scale, double p, std::optional<Tensor> seed) {
  const Tensor yd = dense(y), dx = fresh_like(y);
  const std::optional<Tensor> g = dy.has_value() ? std::optional<Tensor>(dense(*dy)) : std::nullopt;
  const std::optional<Tensor> gd = ddropped.has_value() ? std::optional<Tensor>(dense(*ddropped)) : std::nullopt;
  mask = in_rows(mask);
  const SoftmaxRows r = softmax_rows(y, mask, diagonal, scale, 0, p, seed);
  const int64_t rows = r.n ? y.numel() / r.n : 0;
  parallel_for(0, rows, grain(r.n), [&](int64_t a, int64_t b) {
    best().softmax_backward(dtype_of(y), r, yd.data_ptr(), g.has_value() ? g->data_ptr() : nullptr, gd.has_value() ? gd->data_ptr() : nullptr, dx.data_ptr(), a, b);
  });
  return dx;
}

Tensor scale_tril(const Tensor& x, int64_t diagonal, double scale, double fill) {
  const Tensor xd = dense(x), y = fresh_like(x);
  const int64_t m = x.size(x.dim() - 2), n = x.size(x.dim() - 1), rows = n ? x.numel() / n : 0;
  parallel_for(0, rows, grain(n), [&](int64_t a, int64_t b) { best().scale_tril(dtype_of(x), xd.data_ptr(), y.data_ptr(), m, n, diagonal, scale, fill, a, b); });
  return y;
}

Tensor rotary(const Tensor& given, const Tensor& cos, const Tensor& sin, int64_t parts, bool interval, std::vector<int64_t> order, bool backward) {
  STD_TORCH_CHECK(given.dim() == 4 && cos.dim() == 3 && order.size() == 4 && order[3] == 3, "oneflow::rotary: x (B, M, H, K), cos (B or 1, M, R) and an order that ends in K");
  const Tensor x = given.stride(3) == 1 ? given : torch::stable::contiguous(given);
  const Tensor c = dense(cos), s = dense(sin);
  std::vector<int64_t> sizes;
  for (int64_t d : order) sizes.push_back(x.size(d));
  const Tensor y = fresh(x, sizes);
  int64_t strides[4];
  for (int i = 0; i < 4; ++i) strides[order[i]] = y.stride(i);
  const int64_t b = x.size(0), m = x.size(1), h = x.size(2), k = x.size(3), r = cos.size(2);
  const Dtype dtype = dtype_of(x);
  const int64_t size = static_cast<int64_t>(x.element_size()), work = static_cast<int64_t>(cos.element_size());
  const char *xp = static_cast<const char*>(x.data_ptr()), *cp = static_cast<const char*>(c.data_ptr()), *sp = static_cast<const char*>(s.data_ptr());
  char* yp = static_cast<char*>(y.data_ptr());
  parallel_for(0, b * m, grain(h * k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t ib = i / m, im = i % m, at = ((cos.size(0) == 1 ? 0 : ib) * m + im) * r * work;
      for (int64_t ih = 0; ih < h; ++ih)
        best().rotary(dtype, xp + (ib * x.stride(0) + im * x.stride(1) + ih * x.stride(2)) * size, cp + at, sp + at,
                      yp + (ib * strides[0] + im * strides[1] + ih * strides[2]) * size, k, r, r / parts, interval, backward);
    }
  });
  return y;
}

Tensor pair_dots(const Tensor& x, bool self) {
  const Tensor xd = dense(x);
  const int64_t b = x.size(0), f = x.size(1), e = x.size(2), pairs = f * (f + (self ? 1 : -1)) / 2;
  const Tensor out = fresh(x, {b, pairs});
  const int64_t size = static_cast<int64_t>(x.element_size());
  parallel_for(0, b, grain(pairs * e), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      best().dots(dtype_of(x), static_cast<const char*>(xd.data_ptr()) + i * f * e * size, static_cast<char*>(out.data_ptr()) + i * pairs * size, f, e, self);
  });
  return out;
}

Tensor pair_dots_backward(const Tensor& dout, const Tensor& x, bool self) {
  const Tensor xd = dense(x), gd = dense(dout), dx = fresh_like(x);
  const int64_t b = x.size(0), f = x.size(1), e = x.size(2), pairs = dout.size(1);
  const int64_t size = static_cast<int64_t>(x.element_size());
  parallel_for(0, b, grain(2 * pairs * e), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      best().dots_backward(dtype_of(x), static_cast<const char*>(xd.data_ptr()) + i * f * e * size, static_cast<const char*>(gd.data_ptr()) + i * pairs * size,
                           static_cast<char*>(dx.data_ptr()) + i * f * e * size, f, e, self);
  });
  return dx;
}

void in_place(const char* name, const std::vector<Tensor>& list) {
  for (const Tensor& t : list) STD_TORCH_CHECK(t.is_contiguous(), "oneflow::", name, " updates contiguous tensors, found one that is not");
}

void adam(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> m, std::vector<Tensor> v, std::vector<double> s) {
  in_place("adam_", model), in_place("adam_", m), in_place("adam_", v);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) { best().adam(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), m[i].data_ptr(), v[i].data_ptr(), s.data(), a, b); });
  }
}

void momentum(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> buffer, std::vector<double> s) {
  in_place("momentum_", model), in_place("momentum_", buffer);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) { best().momentum(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), buffer[i].data_ptr(), s.data(), a, b); });
  }
}

void sgd(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<double> s) {
  in_place("sgd_", model);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) { best().sgd(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), s.data(), a, b); });
  }
}

oneflow_cpu::SquareRoots roots() {
  constexpr long long mode = 0x2 | 0x140000 | 0x100;  // VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE, as ATen/cpu/vml.h
  return {vmsSqrt ? +[](int n, const float* x, float* y) { vmsSqrt(n, x, y, mode); } : nullptr,
          vmdSqrt ? +[](int n, const double* x, double* y) { vmdSqrt(n, x, y, mode); } : nullptr};
}

std::vector<BlockStep> steps_of(const std::vector<int64_t>& code, int64_t given, int64_t scalars) {
  std::vector<BlockStep> steps;
  STD_TORCH_CHECK(code.size() % 6 == 0, "oneflow::blocks_: six numbers a step, found ", code.size());
  for (size_t i = 0; i < code.size(); i += 6) {
    const int64_t* n = code.data() + i;
    const bool known = n[0] >= 0 && n[0] < static_cast<int64_t>(Block::count);
    const int operands = !known ? 0 : n[0] < static_cast<int64_t>(Block::add) ? 1 : n[0] < static_cast<int64_t>(Block::addcmul) ? 2 : 3;
    bool right = known && n[1] >= 0 && n[1] < given + oneflow_cpu::kBlockTemporaries && n[5] >= -1 && n[5] < scalars;
    for (int k = 2; k < 5; ++k) right = right && n[k] >= (k - 2 < operands ? 0 : -1) && n[k] < given + oneflow_cpu::kBlockTemporaries;
    STD_TORCH_CHECK(right, "oneflow::blocks_: step ", i / 6, " asks for an operator, a tensor or a scalar that is not there");
    steps.push_back({static_cast<Block>(n[0]), n[1], n[2], n[3], n[4], n[5]});
  }
  return steps;
}

// Every element has its place, and all places together have no hole.
bool is_dense(const Tensor& x) {
  if (x.is_contiguous()) return true;
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (int64_t d = 0; d < x.dim(); ++d)
    if (x.size(d) != 1) dims.emplace_back(x.stride(d), x.size(d));
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

bool same_strides(const Tensor& x, const Tensor& y) {
  for (int64_t d = 0; d < x.dim(); ++d)
    if (x.size(d) != 1 && x.stride(d) != y.stride(d)) return false;
  return true;
}

void blocks(std::vector<Tensor> written, std::vector<Tensor> read, int64_t lanes, std::vector<int64_t> code, std::vector<double> common, std::vector<double> own) {
  STD_TORCH_CHECK(lanes > 0 && !written.empty() && written.size() % lanes == 0 && read.size() % lanes == 0 && own.size() % lanes == 0, "oneflow::blocks_: ",
                  written.size(), " + ", read.size(), " tensors and ", own.size(), " scalars do not part into ", lanes, " lanes");
  const size_t w = written.size() / lanes, r = read.size() / lanes, o = own.size() / lanes;
  const auto steps = steps_of(code, static_cast<int64_t>(w + r), static_cast<int64_t>(common.size() + o));
  for (int64_t lane = 0; lane < lanes; ++lane) {
    std::vector<void*> tensors;
    std::vector<Tensor> copies;
    const Tensor& first = written[lane * w];
    STD_TORCH_CHECK(is_dense(first) && (first.scalar_type() == ScalarType::Float || first.scalar_type() == ScalarType::Double), "oneflow::blocks_ takes dense tensors of float32 or float64");
    for (size_t k = 0; k < w + r; ++k) {
      const Tensor& t = k < w ? written[lane * w + k] : read[lane * r + k - w];
      const bool same = t.scalar_type() == first.scalar_type() && shape(t) == shape(first), dense = same && same_strides(t, first);
      STD_TORCH_CHECK(same && (dense || k >= w), "oneflow::blocks_: the tensors of lane ", lane, " that are written have one shape, dtype and layout, those read its shape and dtype");
      if (!dense) {
        copies.push_back(fresh_strided(first, shape(first), {first.strides().begin(), first.strides().end()}));
        torch::stable::copy_(copies.back(), t);
      }
      tensors.push_back((dense ? t : copies.back()).data_ptr());
    }
    std::vector<double> scalars = common;
    scalars.insert(scalars.end(), own.begin() + lane * o, own.begin() + (lane + 1) * o);
    parallel_for(0, first.numel(), 32768, [&](int64_t a, int64_t b) {
      best().blocks(dtype_of(first), roots(), steps.data(), static_cast<int64_t>(steps.size()), tensors.data(), static_cast<int64_t>(tensors.size()), scalars.data(), a, b);
    });
  }
}

// An image is one thread's work: readers call this in threads of their own.
void crop_mirror_normalize(const Tensor& images, std::optional<Tensor> mirror, int64_t top, int64_t left, std::vector<double> mean, std::vector<double> scale, const Tensor& out) {
  check_crop_mirror_normalize(images, mirror, top, left, mean, scale, out);
  const int64_t channels = images.size(3), height = out.size(2), width = out.size(3);
  const Tensor from = images.stride(3) == 1 && images.stride(2) == channels ? images : dense(images);
  oneflow_cpu::ImageWindow window{height, width, channels, from.stride(1), false, {}, {}};
  for (int64_t c = 0; c < channels; ++c) window.mean[c] = static_cast<float>(mean[c]), window.scale[c] = static_cast<float>(scale[c]);
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
  m.impl("adam_", TORCH_BOX(&adam));
  m.impl("blocks_", TORCH_BOX(&blocks));
  m.impl("momentum_", TORCH_BOX(&momentum));
  m.impl("sgd_", TORCH_BOX(&sgd));
  m.impl("crop_mirror_normalize", TORCH_BOX(&crop_mirror_normalize));
}

}  // namespace oneflow_ext
