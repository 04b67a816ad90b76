// The CPU kernels as plain functions on pointers. They use no torch type, so they do not depend on torch's
// ABI. Each function works on a part [begin, end) of its rows or elements; register.cpp distributes the parts
// to threads. There is one table for each instruction set; best() returns the widest that this machine
// supports.
#pragma once
#include <cstddef>
#include <cstdint>

namespace oneflow_cpu {

enum class Dtype : int { f32, f64, bf16 };

// Elementwise operators. The comments read: inputs -> outputs; scalars.
enum class Point : int {
  quick_gelu,              // x -> y
  quick_gelu_backward,     // x dy -> dx
  square_relu,             // x -> y
  square_relu_backward,    // x dy -> dx
  fast_gelu_mul,           // x m -> y
  fast_gelu_mul_backward,  // x m dy -> dx dm
  boxes_coord,             // x1 y1 w1 h1 x2 y2 w2 h2 -> 8 corners
  boxes_coord_backward,    // 8 gradients -> 8
  intersection,            // 8 corners -> area
  intersection_backward,   // 8 corners dy -> 8
  iou,                     // w1 h1 w2 h2 inter -> y; eps
  iou_backward,            // 5 inputs dy -> 5; eps
  convex,                  // 8 corners -> y; eps
  convex_backward,         // 8 corners dy -> 8
  center_dist,             // 8 corners -> y
  center_dist_backward,    // 8 corners dy -> 4: gradients of b1_x, b2_x, b1_y, b2_y
  angle,                   // w1 h1 w2 h2 -> v; eps
  angle_backward,          // 4 inputs dv -> 4; eps
  ciou,                    // v iou rho2 c2 -> y alpha; eps
  ciou_backward,           // alpha rho2 c2 dy -> dv diou drho2 dc2
  fake_quantize,           // x -> y; scale, zero point, low, high
  count
};

constexpr int kMaxOperands = 9;
constexpr int kMaxScalars = 4;

// The numbers of inputs, outputs and scalars of an elementwise operator.
struct PointOperands {
  int inputs, outputs, scalars;
};
constexpr PointOperands kPointOperands[] = {
    {1, 1, 0}, {2, 1, 0},  // quick_gelu
    {1, 1, 0}, {2, 1, 0},  // square_relu
    {2, 1, 0}, {3, 2, 0},  // fast_gelu_mul
    {8, 8, 0}, {8, 8, 0},  // boxes_coord
    {8, 1, 0}, {9, 8, 0},  // intersection
    {5, 1, 1}, {6, 5, 1},  // iou
    {8, 1, 1}, {9, 8, 0},  // convex
    {8, 1, 0}, {9, 4, 0},  // center_dist
    {4, 1, 1}, {5, 4, 1},  // angle
    {4, 2, 1}, {4, 4, 0},  // ciou
    {1, 1, 4},             // fake_quantize
};
static_assert(sizeof(kPointOperands) / sizeof(*kPointOperands) == static_cast<size_t>(Point::count));
constexpr int64_t kSumRows = 64;  // rows of a bias gradient summed into one float

// A step over blocks (blocks.h): to = op(a, b, c; scalar). `to`, a, b and c are indices into the tensors
// followed by the temporaries, `scalar` is an index into the scalars; -1 means none.
enum class Block : int {
  copy,
  neg,
  abs,
  sqrt,
  reciprocal,
  add_number,
  mul_number,
  div_number,
  add,
  mul,
  div,
  maximum,
  minimum,
  lerp,
  addcmul,
  addcdiv,
  relu,
  tanh,
  exp,
  log,
  erf,
  sin,
  cos,
  tanh_backward,       // dy y -> dx
  sigmoid_backward,    // dy y -> dx
  threshold_backward,  // dy x -> dx, 0 where x is at most the scalar
  count
};
constexpr int kBlockOperands[] = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3,  // copy to addcdiv
                                  1, 1, 1, 1, 1, 1, 1, 2, 2, 2};
static_assert(sizeof(kBlockOperands) / sizeof(*kBlockOperands) == static_cast<size_t>(Block::count));
struct BlockStep {
  Block op;
  int64_t to, a, b, c, scalar;
};
constexpr int kBlockTemporaries = 8;

// MKL's functions, which torch calls where it is built with MKL: y = f(x) of n elements. Null: torch has no
// MKL.
template <class T>
using BlockFunction = void (*)(int n, const T* x, T* y);
template <class T>
struct BlockFunctionsOf {
  BlockFunction<T> sqrt, tanh, exp, log, erf, sin, cos;
};
struct BlockFunctions {
  BlockFunctionsOf<float> f32;
  BlockFunctionsOf<double> f64;
};

// Softmax over rows of n columns: t = keep ? scale * x : fill. keep is a byte mask or the lower triangle.
struct SoftmaxRows {
  int64_t n;  // columns
  int64_t m;  // rows of each matrix, for the triangle
  double scale, fill;
  const uint8_t* mask;  // or null
  int mask_dims;        // dimensions of the mask, without the columns
  int64_t sizes[12], strides[12];
  int64_t mask_column;  // stride of the mask along the columns, 0 or 1
  bool tril;
  int64_t diagonal;
  double p;  // dropout probability; 0 means no dropout
  uint64_t seed;
};

// One layer and direction of an RNN, LSTM (gates in the order input, forget, cell, output) or GRU (reset,
// update, new): tensors are (steps, batch, columns).
struct RecurrentLayer {
  int64_t steps, batch, hidden;
  bool reverse;
};

// A window of a uint8 image (height, width, channels) with 1 or 3 channels. `row` is the number of bytes from
// one row to the next.
struct ImageWindow {
  int64_t height, width, channels, row;
  bool mirror;
  float mean[3], scale[3];
};

struct Kernels {
  const char* name;
  void (*pointwise)(Point, Dtype, const void* const* in, void* const* out, const double* scalars,
                    int64_t begin, int64_t end);
  // y = gelu(x + bias), for rows of length n. The bias is one row of n values (per_row = 0) or one value for
  // each row: bias[row % per_row].
  void (*bias_gelu)(Dtype, const void* x, const void* bias, void* y, int64_t n, int64_t per_row,
                    int64_t begin, int64_t end);
  // sums (or null) receives partial sums of the bias gradient in the compute dtype; see bias_rows.
  void (*bias_gelu_backward)(Dtype, const void* x, const void* bias, const void* dy, void* dx, void* sums,
                             int64_t n, int64_t per_row, int64_t begin, int64_t end);
  // y = (x + bias) * keep / (1 - p). A null bias counts as 0.
  void (*bias_dropout)(Dtype, const void* x, const void* bias, void* y, void* sums, int64_t n,
                       int64_t per_row, double p, uint64_t seed, int64_t begin, int64_t end);
  // softmax into y and, when p > 0, its dropout into dropped.
  void (*softmax)(Dtype, const SoftmaxRows&, const void* x, void* y, void* dropped, int64_t begin,
                  int64_t end);
  // dx from dy (the gradient of y, or null) and ddropped (the gradient of dropped, or null).
  void (*softmax_backward)(Dtype, const SoftmaxRows&, const void* y, const void* dy, const void* ddropped,
                           void* dx, int64_t begin, int64_t end);
  // y = keep ? scale * x : fill, where keep is the lower triangle of (rows, m, n).
  void (*scale_tril)(Dtype, const void* x, void* y, int64_t m, int64_t n, int64_t diagonal, double scale,
                     double fill, int64_t begin, int64_t end);
  // adam, momentum and sgd on one tensor; see optimizer.h
  void (*adam)(Dtype, void* model, const void* diff, void* m, void* v, const double* s, int64_t begin,
               int64_t end);
  void (*momentum)(Dtype, void* model, const void* diff, void* buffer, const double* s, int64_t begin,
                   int64_t end);
  void (*sgd)(Dtype, void* model, const void* diff, const double* s, int64_t begin, int64_t end);
  // f32 and f64. Run the steps on `given` tensors, followed by the temporaries.
  void (*blocks)(Dtype, const BlockFunctions&, const BlockStep*, int64_t count, void* const* tensors,
                 int64_t given, const double* scalars, int64_t begin, int64_t end);
  // one (B, M, H) row of K elements: pairs rotated by cos and sin; see rotary.h
  void (*rotary)(Dtype, const void* x, const void* cos, const void* sin, void* y, int64_t k, int64_t size,
                 int64_t part, bool interval, bool backward);
  // out[pair(i, j)] = x_i . x_j for j < i + self; one sample (f, e), and its gradient
  void (*dots)(Dtype, const void* x, void* out, int64_t f, int64_t e, bool self);
  void (*dots_backward)(Dtype, const void* x, const void* dout, void* dx, int64_t f, int64_t e, bool self);
  // f32 and f64. Pack the weight (gates * hidden, hidden) for the forward or backward pass. If `to` is null,
  // only return the number of elements needed.
  int64_t (*recurrent_pack)(Dtype, const void* weight, int64_t gates, int64_t hidden, bool backward,
                            void* to);
  // given: the input's part of the gates; packed: the packed weight; gates: receives the gates after their
  // activation functions.
  void (*lstm)(Dtype, const RecurrentLayer&, const void* given, const void* packed, const void* h0,
               const void* c0, void* gates, void* cells, void* hidden, int64_t begin, int64_t end);
  // dhidden may be null. On entry dh and dc hold the gradients of the final state; on return, those of the
  // initial state.
  void (*lstm_backward)(Dtype, const RecurrentLayer&, const void* dhidden, const void* gates,
                        const void* cells, const void* c0, const void* packed, void* dgates, void* dh,
                        void* dc, int64_t begin, int64_t end);
  // bias and dhidden may be null. On entry dh holds the gradient of the final state. On return it lacks the
  // product of the first step: rnn leaves the gradient of the first result, gru the direct part of the
  // initial state's gradient.
  void (*rnn)(Dtype, const RecurrentLayer&, bool relu, const void* given, const void* packed,
              const void* bias, const void* h0, void* hidden, int64_t begin, int64_t end);
  void (*rnn_backward)(Dtype, const RecurrentLayer&, bool relu, const void* dhidden, const void* hidden,
                       const void* packed, void* dgates, void* dh, int64_t begin, int64_t end);
  // kept: four rows of `hidden` values for each row, see gru_rows; drecurrent: the gradient of bias + h w.
  void (*gru)(Dtype, const RecurrentLayer&, const void* given, const void* packed, const void* bias,
              const void* h0, void* kept, void* hidden, int64_t begin, int64_t end);
  void (*gru_backward)(Dtype, const RecurrentLayer&, const void* dhidden, const void* hidden,
                       const void* kept, const void* h0, const void* packed, void* dgiven, void* drecurrent,
                       void* dh, int64_t begin, int64_t end);
  // planes (channels, height, width) = (image - mean) * scale, flipped left to right if `mirror`.
  void (*image_planes)(const ImageWindow&, const uint8_t* image, float* planes);
  // to (columns, rows) = transpose of from (rows, columns); step and to_step are row strides in elements.
  void (*transpose)(const float* from, int64_t step, int64_t rows, int64_t columns, float* to,
                    int64_t to_step);
  // c = addend + c; see addend.h
  void (*add_to_rows)(float* c, int64_t step, int64_t rows, int64_t columns, const float* addend, int64_t row,
                      int64_t column);
};

const Kernels& default_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& best();

}  // namespace oneflow_cpu
