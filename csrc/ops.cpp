// The schemas of every operator of oneflow._ext. The kernels are in cpu/ and cuda/. Fake kernels, autograd
// and the plain-torch reference functions are in oneflow_compat/_kernels/.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(oneflow, m) {
  // Elementwise: `op` is enum Point of cpu/kernels.h; all inputs of one shape and dtype, contiguous. Returns
  // the outputs.
  m.def("pointwise(int op, Tensor[] inputs, int outputs, float[] scalars) -> Tensor[]");

  // x + bias, where the 1-d bias lies along dimension `axis`. keep is sampled from the int64 tensor `seed`.
  m.def("bias_gelu(Tensor x, Tensor bias, int axis) -> Tensor");
  m.def("bias_gelu_backward(Tensor dy, Tensor x, Tensor bias, int axis) -> Tensor");
  // The same, and partial sums of the bias gradient (parts, channels) in the compute dtype. The caller sums
  // them over dimension 0. CPU only.
  m.def("bias_gelu_backward_sums(Tensor dy, Tensor x, Tensor bias, int axis) -> (Tensor, Tensor)");
  m.def("bias_dropout(Tensor x, Tensor bias, int axis, float p, Tensor seed) -> Tensor");
  m.def("bias_dropout_backward(Tensor dy, float p, Tensor seed) -> Tensor");
  m.def("bias_dropout_backward_sums(Tensor dy, int axis, float p, Tensor seed) -> (Tensor, Tensor)");

  // (clamp(round(x / scale + zero_point), low, high) - zero_point) * scale; scale and zero_point have one
  // element.
  m.def("fake_quantize(Tensor x, Tensor scale, Tensor zero_point, float low, float high) -> Tensor");

  // Softmax of `keep ? scale * x : fill` over the last dimension, and its dropout. keep is a bool mask that
  // broadcasts to x; without a mask it is the lower triangle up to `diagonal`. If p is 0, the second result
  // is the first.
  m.def(
      "masked_softmax(Tensor x, Tensor? mask, int diagonal, float scale, float fill, float p, Tensor? seed) "
      "-> (Tensor, Tensor)");
  m.def(
      "masked_softmax_backward(Tensor? dy, Tensor? ddropped, Tensor y, Tensor? mask, int diagonal, float "
      "scale, float p, Tensor? seed) -> Tensor");
  m.def("scale_tril(Tensor x, int diagonal, float scale, float fill) -> Tensor");

  // x (B, M, H, K) has stride 1 along K and any other strides. cos and sin (B or 1, M, R) have the compute
  // dtype. The result has the shape of x; its memory is contiguous in the dimension order `order`.
  m.def(
      "rotary(Tensor x, Tensor cos, Tensor sin, int parts, bool interval, int[] order, bool backward) -> "
      "Tensor");

  // x (B, F, E) -> (B, pairs), and its gradient.
  m.def("pair_dots(Tensor x, bool self_interaction) -> Tensor");
  m.def("pair_dots_backward(Tensor dout, Tensor x, bool self_interaction) -> Tensor");

  // One layer and direction of an LSTM, after the product of its input and weight; see RecurrentLayer in
  // cpu/kernels.h. given (T, B, 4 H), weight (4 H, H), h0 and c0 (B, H) -> hidden (T, B, H), last hidden,
  // last cell, work (5, T, B, H): the gates, then the cells. CPU only, float32 and float64.
  m.def(
      "lstm(Tensor given, Tensor weight, Tensor h0, Tensor c0, bool reverse) -> (Tensor, Tensor, Tensor, "
      "Tensor)");
  // -> gradients of given, h0, c0.
  m.def(
      "lstm_backward(Tensor? dhidden, Tensor? dlast, Tensor? dcell, Tensor work, Tensor c0, Tensor weight, "
      "bool reverse) -> (Tensor, Tensor, Tensor)");
  // The same for an RNN. bias (H) is the recurrent bias.
  m.def("rnn(Tensor given, Tensor weight, Tensor? bias, Tensor h0, bool relu, bool reverse) -> Tensor");
  m.def(
      "rnn_backward(Tensor? dhidden, Tensor? dlast, Tensor hidden, Tensor weight, bool relu, bool reverse) "
      "-> Tensor");
  // The same for a GRU, with 3 H instead of 4 H, and work (T, B, 4 H).
  m.def("gru(Tensor given, Tensor weight, Tensor? bias, Tensor h0, bool reverse) -> (Tensor, Tensor)");
  // -> gradients of given, of (h w + bias), and of h0 without its part through that product.
  m.def(
      "gru_backward(Tensor? dhidden, Tensor? dlast, Tensor hidden, Tensor work, Tensor h0, Tensor weight, "
      "bool reverse) -> (Tensor, Tensor, Tensor)");

  // In place; scalars as in cpu/optimizer.h.
  m.def("adam_(Tensor(a!)[] model, Tensor[] diff, Tensor(b!)[] m, Tensor(c!)[] v, float[] scalars) -> ()");
  m.def("momentum_(Tensor(a!)[] model, Tensor[] diff, Tensor(b!)[] buffer, float[] scalars) -> ()");
  m.def("sgd_(Tensor(a!)[] model, Tensor[] diff, float[] scalars) -> ()");
  // Elementwise steps in place, on `lanes` lists of tensors. The tensors of a lane have one shape and dtype
  // (float32 or float64); those written have one dense layout. `code` holds the six fields of each BlockStep
  // (cpu/kernels.h). A step numbers the written tensors of its lane first, then those read; and the scalars
  // of `common` first, then the lane's share of `own`. CPU only.
  m.def(
      "blocks_(Tensor(a!)[] written, Tensor[] read, int lanes, int[] code, float[] common, float[] own) -> "
      "()");
  // The results of such steps on tensors of one shape and dtype, in new contiguous tensors. A step numbers
  // the results first, then the tensors of `read`. CPU only.
  m.def("blocks(Tensor[] read, int results, int[] code, float[] scalars) -> Tensor[]");

  // a (M, K) @ b (K, N) in float32, with oneDNN's block kernels. CPU only.
  m.def("mm(Tensor a, Tensor b) -> Tensor");
  m.def("bmm(Tensor a, Tensor b) -> Tensor");  // (B, M, K) @ (B, K, N)
  // aten::mm, addmm, bmm or baddbmm of float32, with ATen's bits: in blocks of oneDNN if these have ATen's
  // bits and are faster, else in ATen (cpu/exact_matmul.cpp). CPU only.
  m.def("exact_product(Tensor? addend, Tensor a, Tensor b) -> Tensor");
  // The same in blocks of `depth` elements of K, whatever ATen's bits are.
  m.def("product_in_blocks(Tensor? addend, Tensor a, Tensor b, int depth) -> Tensor");
  // -> depth of the blocks that have ATen's bits (0: none), and whether exact_product uses them, for operands
  // of this shape, layout and place in a cache line. Their values are not read.
  m.def("product_blocks(Tensor? addend, Tensor a, Tensor b) -> int[]");
  // Replace the rules of blocks to try (none: the built-in ones), and forget all trials. For tests.
  m.def("product_rules(Tensor like, int[] candidates) -> ()");
  // aten::convolution without bias and groups, and its gradients, for float32 images (N, C, H, W) and a
  // weight (O, C, kh, kw). The gradient of the images (h x w pixels) requires a stride of 1. Arguments are
  // integers instead of lists: for lists, inductor includes headers whose templates took a third of the
  // compile time of ResNet-50.
  m.def(
      "convolution(Tensor x, Tensor weight, int stride_h, int stride_w, int padding_h, int padding_w, int "
      "dilation_h, int dilation_w) -> Tensor");
  m.def(
      "convolution_backward_input(Tensor dy, Tensor weight, int h, int w, int padding_h, int padding_w, int "
      "dilation_h, int dilation_w) -> Tensor");
  m.def(
      "convolution_backward_weight(Tensor dy, Tensor x, int kh, int kw, int stride_h, int stride_w, int "
      "padding_h, int padding_w, int dilation_h, int dilation_w) -> Tensor");

  // out (N, C, h, w) float32 = (window of the uint8 images (N, H, W, C) at top, left - mean) * scale;
  // mirrored if `mirror` (int8 [N]) is not 0.
  m.def(
      "crop_mirror_normalize(Tensor images, Tensor? mirror, int top, int left, float[] mean, float[] scale, "
      "Tensor(a!) out) -> ()");

  // boxes (N, 4), sorted best first -> int8 [N], 1 for each box kept.
  m.def("nms_mask(Tensor boxes, float iou_threshold, int keep_n) -> Tensor");
  m.def(
      "roi_align(Tensor x, Tensor rois, float spatial_scale, int pooled_h, int pooled_w, int sampling_ratio, "
      "bool aligned) -> Tensor");
  m.def(
      "roi_align_backward(Tensor dy, Tensor rois, int[] x_shape, float spatial_scale, int sampling_ratio, "
      "bool aligned) -> Tensor");
  // (N, C, kh * kw, oh, ow) and the gradients of (input, offset, mask).
  m.def(
      "deform_columns(Tensor x, Tensor offset, Tensor? mask, int[] kernel, int[] stride, int[] padding, "
      "int[] dilation, int offset_groups) -> Tensor");
  m.def(
      "deform_columns_backward(Tensor dcolumns, Tensor x, Tensor offset, Tensor? mask, int[] kernel, int[] "
      "stride, int[] padding, int[] dilation, int offset_groups) -> (Tensor, Tensor, Tensor)");

  // log_probs (T, N, C) -> decoded (N, T), -sum (N, 1).
  m.def("ctc_greedy_decode(Tensor log_probs, Tensor input_lengths, bool merge_repeated) -> (Tensor, Tensor)");
  // 1-d int64 keys and values -> count int32 [1], unique keys, their values, inverse int32. Results are in
  // order of first occurrence and padded with zeros.
  m.def("unique_pairs(Tensor keys, Tensor values) -> (Tensor, Tensor, Tensor, Tensor)");
}
