// Masked softmax with dropout on CUDA: one block for each row.
#include <limits>

#include "common.cuh"

namespace oneflow_ext {
namespace {

struct Rows {
  int64_t n, m, diagonal;
  double scale, fill;
  const bool* mask;
  int mask_dims;
  int64_t sizes[kMaxSoftmaxDims], strides[kMaxSoftmaxDims], mask_column;
  bool dropping;
  Drop drop;
  const int64_t* seed;
};

// The offset of a row of the mask.
__device__ inline int64_t mask_row(const Rows& r, int64_t row) {
  int64_t offset = 0;
  for (int d = r.mask_dims - 1; d >= 0; --d) {
    offset += row % r.sizes[d] * r.strides[d];
    row /= r.sizes[d];
  }
  return offset;
}
// The last column of the triangle in this row.
__device__ inline int64_t last_column(const Rows& r, int64_t row) {
  return r.mask ? 0 : row % r.m + r.diagonal;
}
__device__ inline bool keeps(const Rows& r, int64_t last, int64_t offset, int64_t i) {
  return r.mask ? r.mask[offset + i * r.mask_column] : i <= last;
}

template <class T>
__global__ void softmax_kernel(const T* x, T* y, T* dropped, Rows r, int64_t rows) {
  using A = Acc<T>;
  __shared__ A shared[33];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = x + row * r.n;
    const int64_t offset = r.mask ? mask_row(r, row) : 0, last = last_column(r, row);
    A top = -std::numeric_limits<A>::infinity();
    for (int64_t i = threadIdx.x; i < r.n; i += blockDim.x)
      top = maximum(top, keeps(r, last, offset, i) ? load(from + i) * A(r.scale) : A(r.fill));
    top = block_reduce(
        top, shared, [](A a, A b) { return maximum(a, b); }, -std::numeric_limits<A>::infinity());
    A sum = 0;
    for (int64_t i = threadIdx.x; i < r.n; i += blockDim.x)
      sum += exp((keeps(r, last, offset, i) ? load(from + i) * A(r.scale) : A(r.fill)) - top);
    sum = block_reduce(sum, shared, [](A a, A b) { return a + b; }, A(0));
    for (int64_t i = threadIdx.x; i < r.n; i += blockDim.x) {
      const A value = exp((keeps(r, last, offset, i) ? load(from + i) * A(r.scale) : A(r.fill)) - top) / sum;
      save(y + row * r.n + i, value);
      if (r.dropping)
        save(dropped + row * r.n + i,
             value * dropout_factor<A>(static_cast<uint64_t>(*r.seed), row * r.n + i, r.drop));
    }
  }
}

template <class T>
__global__ void softmax_backward_kernel(const T* y, const T* dy, const T* ddropped, T* dx, Rows r,
                                        int64_t rows) {
  using A = Acc<T>;
  __shared__ A shared[33];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t base = row * r.n, offset = r.mask ? mask_row(r, row) : 0, last = last_column(r, row);
    auto gradient = [&](int64_t i) {
      A g = dy ? load(dy + base + i) : A(0);
      if (ddropped && r.dropping)
        g += load(ddropped + base + i) * dropout_factor<A>(static_cast<uint64_t>(*r.seed), base + i, r.drop);
      return g;
    };
    A sum = 0;
    for (int64_t i = threadIdx.x; i < r.n; i += blockDim.x) sum += gradient(i) * load(y + base + i);
    sum = block_reduce(sum, shared, [](A a, A b) { return a + b; }, A(0));
    for (int64_t i = threadIdx.x; i < r.n; i += blockDim.x)
      save(dx + base + i,
           keeps(r, last, offset, i) ? (gradient(i) - sum) * load(y + base + i) * A(r.scale) : A(0));
  }
}

Rows rows_of(const Tensor& x, const std::optional<Tensor>& mask, int64_t diagonal, double scale, double fill,
             double p, const std::optional<Tensor>& seed) {
  const int64_t dims = x.dim();
  Rows r{};
  r.n = x.size(dims - 1), r.m = dims > 1 ? x.size(dims - 2) : 1;
  r.scale = scale, r.fill = fill, r.diagonal = diagonal;
  r.dropping = p > 0, r.drop = drop_of(p), r.seed = p > 0 ? data<int64_t>(seed.value()) : nullptr;
  if (mask.has_value()) {
    auto step = [&](int64_t d) { return mask->size(d) == 1 ? 0 : mask->stride(d); };
    r.mask = data<bool>(*mask), r.mask_column = step(dims - 1), r.mask_dims = static_cast<int>(dims - 1);
    for (int64_t d = 0; d + 1 < dims; ++d) r.sizes[d] = x.size(d), r.strides[d] = step(d);
  }
  return r;
}
unsigned grid_for(int64_t rows) { return static_cast<unsigned>(std::min<int64_t>(rows, 1 << 20)); }
unsigned threads_for(int64_t n) { return n >= 1024 ? 256 : n >= 256 ? 128 : 32; }

std::tuple<Tensor, Tensor> masked_softmax(const Tensor& x, std::optional<Tensor> mask, int64_t diagonal,
                                          double scale, double fill, double p, std::optional<Tensor> seed) {
  check_masked_softmax(x, mask, diagonal, p, seed);
  const OnDevice guard(x);
  const Tensor xd = dense(x), y = fresh_like(x), dropped = p > 0 ? fresh_like(x) : fresh(x, {0});
  const Rows r = rows_of(x, mask, diagonal, scale, fill, p, seed);
  const int64_t rows = r.n ? x.numel() / r.n : 0;
  if (!rows) return {y, dropped};
  floating("masked_softmax", x, [&](auto t) {
    using T = decltype(t);
    softmax_kernel<T><<<grid_for(rows), threads_for(r.n), 0, stream_of(x)>>>(
        data<T>(xd), mutable_data<T>(y), mutable_data<T>(dropped), r, rows);
  });
  check_launch("masked_softmax");
  return {y, dropped};
}

Tensor masked_softmax_backward(std::optional<Tensor> dy, std::optional<Tensor> ddropped, const Tensor& y,
                               std::optional<Tensor> mask, int64_t diagonal, double scale, double p,
                               std::optional<Tensor> seed) {
  check_masked_softmax_backward(dy, ddropped, y, mask, diagonal, p, seed);
  const OnDevice guard(y);
  const Tensor yd = dense(y), dx = fresh_like(y), g = dy.has_value() ? dense(*dy) : yd,
               gd = ddropped.has_value() ? dense(*ddropped) : yd;
  const Rows r = rows_of(y, mask, diagonal, scale, 0, p, seed);
  const int64_t rows = r.n ? y.numel() / r.n : 0;
  if (!rows) return dx;
  floating("masked_softmax_backward", y, [&](auto t) {
    using T = decltype(t);
    softmax_backward_kernel<T><<<grid_for(rows), threads_for(r.n), 0, stream_of(y)>>>(
        data<T>(yd), dy.has_value() ? data<T>(g) : nullptr, ddropped.has_value() ? data<T>(gd) : nullptr,
        mutable_data<T>(dx), r, rows);
  });
  check_launch("masked_softmax_backward");
  return dx;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CUDA, m) {
  m.impl("masked_softmax", TORCH_BOX(&masked_softmax));
  m.impl("masked_softmax_backward", TORCH_BOX(&masked_softmax_backward));
}

}  // namespace oneflow_ext
