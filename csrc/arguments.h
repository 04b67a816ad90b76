// The argument checks of each operator. The CPU and CUDA entry points call the same function, so both refuse
// the same calls with the same errors. Values inside tensors are checked by the CPU kernels only.
#pragma once
#include "checks.h"
#include "cpu/kernels.h"

namespace oneflow_ext {

// --------------------------------------------------------------------------- elementwise
inline void check_pointwise(int64_t op, const std::vector<Tensor>& inputs, int64_t outputs,
                            const std::vector<double>& scalars) {
  const Checks check("pointwise");
  check.range<int64_t>("op", op, 0, static_cast<int64_t>(oneflow_cpu::Point::count) - 1);
  const oneflow_cpu::PointOperands operands = oneflow_cpu::kPointOperands[op];
  check.length("inputs", inputs.size(), operands.inputs);
  check.range<int64_t>("outputs", outputs, operands.outputs, operands.outputs);
  check.length("scalars", scalars.size(), operands.scalars, oneflow_cpu::kMaxScalars);
  check.floating({"inputs", 0}, inputs[0]);
  for (size_t i = 1; i < inputs.size(); ++i)
    check.alike({"inputs", static_cast<int64_t>(i)}, inputs[i], "inputs[0]", inputs[0]);
}

inline void check_fake_quantize(const Tensor& x, const Tensor& scale, const Tensor& zero_point, double low,
                                double high) {
  const Checks check("fake_quantize");
  check.floating("x", x);
  check.same_device("scale", scale, "x", x), check.wide("scale", scale), check.elements("scale", scale, 1);
  check.same_options("zero_point", zero_point, "scale", scale), check.elements("zero_point", zero_point, 1);
  if (!(low <= high)) check.refuse("low", "be at most high, ", high, ", found ", low);
}

// --------------------------------------------------------------------------- bias with gelu or dropout
inline void check_bias(const Checks& check, const Tensor& x, const Tensor& bias, int64_t axis) {
  check.floating("x", x), check.axis("axis", axis, "x", x);
  check.same_options("bias", bias, "x", x), check.shape("bias", bias, {x.size(axis)});
}
inline void check_bias_gelu(const Tensor& x, const Tensor& bias, int64_t axis) {
  check_bias(Checks("bias_gelu"), x, bias, axis);
}
inline void check_bias_gelu_backward(const char* op, const Tensor& dy, const Tensor& x, const Tensor& bias,
                                     int64_t axis) {
  const Checks check(op);
  check_bias(check, x, bias, axis), check.alike("dy", dy, "x", x);
}
inline void check_bias_dropout(const Tensor& x, const Tensor& bias, int64_t axis, double p,
                               const Tensor& seed) {
  const Checks check("bias_dropout");
  check_bias(check, x, bias, axis), check.dropout(p, seed, "x", x);
}
inline void check_bias_dropout_backward(const Tensor& dy, double p, const Tensor& seed) {
  const Checks check("bias_dropout_backward");
  check.floating("dy", dy), check.dropout(p, seed, "dy", dy);
}
inline void check_bias_dropout_backward_sums(const Tensor& dy, int64_t axis, double p, const Tensor& seed) {
  const Checks check("bias_dropout_backward_sums");
  check.floating("dy", dy), check.axis("axis", axis, "dy", dy), check.dropout(p, seed, "dy", dy);
}

// --------------------------------------------------------------------------- softmax, lower triangle
constexpr int64_t kMaxSoftmaxDims = 12;

// The mask has as many dimensions as x. A dimension of size 1 is broadcast.
inline void check_softmax_rows(const Checks& check, const char* name, const Tensor& x,
                               const std::optional<Tensor>& mask, int64_t diagonal, double p,
                               const std::optional<Tensor>& seed) {
  check.floating(name, x), check.dims(name, x, 1, kMaxSoftmaxDims);
  check.range<int64_t>("diagonal", diagonal, -kMaxOffset, kMaxOffset);
  check.dropout(p, seed, name, x);
  if (!mask.has_value()) return;
  check.same_device("mask", *mask, name, x), check.dtype("mask", *mask, {ScalarType::Bool}),
      check.dims("mask", *mask, x.dim());
  const auto sizes = x.sizes(), found = mask->sizes();
  for (size_t d = 0; d < sizes.size(); ++d)
    if (found[d] != sizes[d] && found[d] != 1)
      check.refuse("mask", "have the sizes of ", name, ", ", shape_text(x), ", or 1, found ",
                   shape_text(*mask));
}
inline void check_masked_softmax(const Tensor& x, const std::optional<Tensor>& mask, int64_t diagonal,
                                 double p, const std::optional<Tensor>& seed) {
  check_softmax_rows(Checks("masked_softmax"), "x", x, mask, diagonal, p, seed);
}
inline void check_masked_softmax_backward(const std::optional<Tensor>& dy,
                                          const std::optional<Tensor>& ddropped, const Tensor& y,
                                          const std::optional<Tensor>& mask, int64_t diagonal, double p,
                                          const std::optional<Tensor>& seed) {
  const Checks check("masked_softmax_backward");
  check_softmax_rows(check, "y", y, mask, diagonal, p, seed);
  if (dy.has_value()) check.alike("dy", *dy, "y", y);
  if (ddropped.has_value() && p > 0)
    check.alike("ddropped", *ddropped, "y", y);  // not read without dropout
}
inline void check_scale_tril(const Tensor& x, int64_t diagonal) {
  const Checks check("scale_tril");
  check.floating("x", x), check.dims("x", x, 2, std::numeric_limits<int64_t>::max());
  check.range<int64_t>("diagonal", diagonal, -kMaxOffset, kMaxOffset);
}

// --------------------------------------------------------------------------- rotary embedding, dot products
inline void check_rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t parts,
                         const std::vector<int64_t>& order) {
  const Checks check("rotary");
  check.floating("x", x), check.dims("x", x, 4);
  check.same_device("cos", cos, "x", x);
  check.dtype("cos", cos, {x.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float});
  check.shape("cos", cos, {kAny, x.size(1), kAny});
  if (cos.size(0) != 1 && cos.size(0) != x.size(0))
    check.refuse("cos", "have 1 or ", x.size(0), " tables along dimension 0, found ", cos.size(0));
  check.alike("sin", sin, "cos", cos);
  const int64_t size = cos.size(2);
  if (size > x.size(3))
    check.refuse("cos", "have at most ", x.size(3), " columns, as x has along dimension 3, found ", size);
  check.at_least("parts", parts, 1);
  if (size % parts || size / parts % 2)
    check.refuse("parts", "part the ", size, " columns of cos into parts of one even length, found ", parts);
  check.length("order", order.size(), 4);
  bool seen[4] = {};
  for (size_t i = 0; i < 4; ++i) {
    check.range<int64_t>({"order", static_cast<int64_t>(i)}, order[i], 0, 3);
    if (seen[order[i]]) check.refuse("order", "name each dimension once, found ", order[i], " twice");
    seen[order[i]] = true;
  }
  if (order[3] != 3) check.refuse({"order", 3}, "be 3, found ", order[3]);
}

// The number of pairs of f rows; `self` includes the pair of each row with itself.
inline int64_t pair_count(int64_t f, bool self) { return f * (f + (self ? 1 : -1)) / 2; }
inline void check_features(const Checks& check, const Tensor& x) {
  check.floating("x", x), check.dims("x", x, 3);
  if (x.size(1) > kMaxSize)
    check.refuse("x", "have at most ", kMaxSize, " rows along dimension 1, found ", x.size(1));
}
inline void check_pair_dots(const Tensor& x) { check_features(Checks("pair_dots"), x); }
inline void check_pair_dots_backward(const Tensor& dout, const Tensor& x, bool self) {
  const Checks check("pair_dots_backward");
  check_features(check, x);
  check.same_options("dout", dout, "x", x),
      check.shape("dout", dout, {x.size(0), pair_count(x.size(1), self)});
}

// --------------------------------------------------------------------------- optimizer steps
struct TensorList {
  const char* name;
  const std::vector<Tensor>& tensors;
  bool written;
};
// model[i], its gradient and its state have one shape, dtype and device. Tensors written in place are
// contiguous.
inline void check_update(const char* op, const std::vector<Tensor>& model,
                         std::initializer_list<TensorList> others, const std::vector<double>& scalars,
                         size_t scalar_count) {
  const Checks check(op);
  check.length("scalars", scalars.size(), scalar_count);
  for (const TensorList& list : others) check.length(list.name, list.tensors.size(), model.size());
  for (size_t i = 0; i < model.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    check.floating({"model", at}, model[i]), check.contiguous({"model", at}, model[i]);
    const TensorFacts facts(model[i]);
    for (const TensorList& list : others) {
      check.alike({list.name, at}, list.tensors[i], "model's tensor", facts);
      if (list.written) check.contiguous({list.name, at}, list.tensors[i]);
    }
  }
}
inline void check_adam(const std::vector<Tensor>& model, const std::vector<Tensor>& diff,
                       const std::vector<Tensor>& m, const std::vector<Tensor>& v,
                       const std::vector<double>& scalars) {
  check_update("adam_", model, {{"diff", diff, false}, {"m", m, true}, {"v", v, true}}, scalars, 8);
}
inline void check_momentum(const std::vector<Tensor>& model, const std::vector<Tensor>& diff,
                           const std::vector<Tensor>& buffer, const std::vector<double>& scalars) {
  check_update("momentum_", model, {{"diff", diff, false}, {"buffer", buffer, true}}, scalars, 6);
}
inline void check_sgd(const std::vector<Tensor>& model, const std::vector<Tensor>& diff,
                      const std::vector<double>& scalars) {
  check_update("sgd_", model, {{"diff", diff, false}}, scalars, 3);
}

// --------------------------------------------------------------------------- images
inline void check_crop_mirror_normalize(const Tensor& images, const std::optional<Tensor>& mirror,
                                        int64_t top, int64_t left, const std::vector<double>& mean,
                                        const std::vector<double>& scale, const Tensor& out) {
  const Checks check("crop_mirror_normalize");
  check.dtype("images", images, {ScalarType::Byte}), check.dims("images", images, 4);
  const int64_t channels = images.size(3);
  if (channels != 1 && channels != 3)
    check.refuse("images", "have 1 or 3 channels along dimension 3, found shape ", shape_text(images));
  check.same_device("out", out, "images", images), check.dtype("out", out, {ScalarType::Float}),
      check.contiguous("out", out);
  check.shape("out", out, {images.size(0), channels, kAny, kAny});
  const int64_t height = out.size(2), width = out.size(3);
  if (height > images.size(1) || width > images.size(2))
    check.refuse("out", "be a window of images of ", images.size(1), " x ", images.size(2), " pixels, found ",
                 height, " x ", width);
  check.range<int64_t>("top", top, 0, images.size(1) - height),
      check.range<int64_t>("left", left, 0, images.size(2) - width);
  check.length("mean", mean.size(), channels), check.length("scale", scale.size(), channels);
  if (!mirror.has_value()) return;
  check.same_device("mirror", *mirror, "images", images), check.dtype("mirror", *mirror, {ScalarType::Char});
  check.shape("mirror", *mirror, {images.size(0)}), check.contiguous("mirror", *mirror);
}

// --------------------------------------------------------------------------- detection
inline void check_nms_mask(const Tensor& boxes) {
  const Checks check("nms_mask");
  check.wide("boxes", boxes), check.shape("boxes", boxes, {kAny, 4});
}

// A larger sampling_ratio would take hours, and float32 could not tell the points of a bin apart.
constexpr int64_t kMaxSamplingRatio = 1024;
inline void check_regions(const Checks& check, const Tensor& rois, const char* like_name, const Tensor& like,
                          int64_t sampling_ratio) {
  check.same_options("rois", rois, like_name, like), check.shape("rois", rois, {kAny, 5});
  check.range<int64_t>("sampling_ratio", sampling_ratio, std::numeric_limits<int64_t>::min(),
                       kMaxSamplingRatio);
}
inline void check_roi_align(const Tensor& x, const Tensor& rois, int64_t pooled_h, int64_t pooled_w,
                            int64_t sampling_ratio) {
  const Checks check("roi_align");
  check.wide("x", x), check.dims("x", x, 4), check_regions(check, rois, "x", x, sampling_ratio);
  check.range<int64_t>("pooled_h", pooled_h, 0, kMaxSize),
      check.range<int64_t>("pooled_w", pooled_w, 0, kMaxSize);
}
inline void check_roi_align_backward(const Tensor& dy, const Tensor& rois,
                                     const std::vector<int64_t>& x_shape, int64_t sampling_ratio) {
  const Checks check("roi_align_backward");
  check.wide("dy", dy), check.length("x_shape", x_shape.size(), 4);
  for (size_t d = 0; d < 4; ++d) check.at_least({"x_shape", static_cast<int64_t>(d)}, x_shape[d], 0);
  check_regions(check, rois, "dy", dy, sampling_ratio);
  check.shape("dy", dy, {rois.size(0), x_shape[1], kAny, kAny});
}

// The output size of a convolution along `size` pixels; below 1 if the kernel does not fit.
inline int64_t places_along(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  return (room >= 0 ? room / stride : -((-room + stride - 1) / stride)) + 1;
}
struct ImageWindowSteps {
  const std::vector<int64_t>&kernel, &stride, &padding, &dilation;
};
inline void check_deform_columns(const Checks& check, const Tensor& x, const Tensor& offset,
                                 const std::optional<Tensor>& mask, const ImageWindowSteps& steps,
                                 int64_t groups) {
  check.wide("x", x), check.dims("x", x, 4);
  for (int64_t d = 2; d < 4; ++d)
    if (x.size(d) > kMaxSize)
      check.refuse("x", "have images of at most ", kMaxSize, " pixels along a dimension, found shape ",
                   shape_text(x));
  check.length("kernel", steps.kernel.size(), 2), check.length("stride", steps.stride.size(), 2);
  check.length("padding", steps.padding.size(), 2), check.length("dilation", steps.dilation.size(), 2);
  for (size_t d = 0; d < 2; ++d) {
    const int64_t at = static_cast<int64_t>(d);
    check.range<int64_t>({"kernel", at}, steps.kernel[d], 1, 1 << 15),
        check.range<int64_t>({"stride", at}, steps.stride[d], 1, kMaxSize);
    check.range<int64_t>({"padding", at}, steps.padding[d], 0, kMaxSize),
        check.range<int64_t>({"dilation", at}, steps.dilation[d], 1, kMaxSize);
  }
  check.range<int64_t>("offset_groups", groups, 1, kMaxSize);
  if (x.size(1) % groups)
    check.refuse("offset_groups", "divide the ", x.size(1), " channels of x, found ", groups);
  const int64_t taps = steps.kernel[0] * steps.kernel[1];
  const int64_t oh =
      places_along(x.size(2), steps.kernel[0], steps.stride[0], steps.padding[0], steps.dilation[0]);
  const int64_t ow =
      places_along(x.size(3), steps.kernel[1], steps.stride[1], steps.padding[1], steps.dilation[1]);
  if (oh < 0 || ow < 0)
    check.refuse("kernel", "fit the padded images of shape ", shape_text(x), ", found ", steps.kernel[0],
                 " x ", steps.kernel[1]);
  check.same_options("offset", offset, "x", x),
      check.shape("offset", offset, {x.size(0), 2 * groups * taps, oh, ow});
  if (mask.has_value())
    check.same_options("mask", *mask, "x", x), check.shape("mask", *mask, {x.size(0), groups * taps, oh, ow});
}
inline void check_deform_columns_backward(const Tensor& dcolumns, const Tensor& x, const Tensor& offset,
                                          const std::optional<Tensor>& mask, const ImageWindowSteps& steps,
                                          int64_t groups) {
  const Checks check("deform_columns_backward");
  check_deform_columns(check, x, offset, mask, steps, groups);
  check.same_options("dcolumns", dcolumns, "x", x);
  check.shape("dcolumns", dcolumns,
              {x.size(0), x.size(1), steps.kernel[0] * steps.kernel[1], offset.size(2), offset.size(3)});
}

// --------------------------------------------------------------------------- ctc, unique
inline void check_ctc_greedy_decode(const Tensor& log_probs, const Tensor& input_lengths) {
  const Checks check("ctc_greedy_decode");
  check.wide("log_probs", log_probs), check.dims("log_probs", log_probs, 3);
  if (log_probs.size(2) == 0 && log_probs.size(0) && log_probs.size(1))
    check.refuse("log_probs", "have a class along dimension 2, found shape ", shape_text(log_probs));
  check.same_device("input_lengths", input_lengths, "log_probs", log_probs),
      check.dtype("input_lengths", input_lengths, {ScalarType::Long});
  check.shape("input_lengths", input_lengths, {log_probs.size(1)});
}
inline void check_unique_pairs(const Tensor& keys, const Tensor& values) {
  const Checks check("unique_pairs");
  check.dtype("keys", keys, {ScalarType::Long}), check.dims("keys", keys, 1), check.dims("values", values, 1);
  check.same_device("values", values, "keys", keys), check.elements("values", values, keys.numel());
  if (keys.numel() > kMaxSize)
    check.refuse("keys", "have at most ", kMaxSize, " elements, as their indices are int32, found ",
                 keys.numel());
}

}  // namespace oneflow_ext
