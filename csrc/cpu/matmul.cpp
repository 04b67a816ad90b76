// Products of float32 matrices and of batches of them.
#include "products.h"

namespace oneflow_ext {
namespace {

using torch::stable::parallel_for;

// The matrix in row-major order: itself, or a copy owned by `copy`.
Matrix by_rows(const Matrix& m, Numbers& copy) {
  if (m.column == 1) return m;
  copy = numbers(m.size());
  transpose(m.data, m.column, m.columns, m.rows, copy.get());
  return {copy.get(), m.rows, m.columns, m.columns, 1};
}

// out (a.rows, b.columns), dense, from row-major matrices.
void multiply_rows(const Matrix& a, const Matrix& b, float* out) {
  const int64_t m = a.rows, n = b.columns, k = a.columns;
  const int64_t down = (m + kRows - 1) / kRows, across = (n + kColumns - 1) / kColumns;
  parallel_for(0, down * across, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t i = task % down * kRows, j = task / down * kColumns;
      for (int64_t p = 0; p < k; p += kDepth)
        block(std::min(kRows, m - i), std::min(kColumns, n - j), std::min(kDepth, k - p),
              a.data + i * a.row + p, a.row, b.data + p * b.row + j, b.row, out + i * n + j, n, p == 0);
    }
  });
}

// out (a.rows, b.columns), dense. Column-major operands are transposed first; if transposing the result is
// cheaper, (b' a')' is computed instead.
void multiply(const Matrix& a, const Matrix& b, float* out) {
  Numbers copy_a, copy_b;
  const int64_t results = a.rows * b.columns;
  const int64_t direct = (a.column != 1) * a.size() + (b.column != 1) * b.size(),
                via_transpose = (a.row != 1) * a.size() + (b.row != 1) * b.size() + results;
  if (direct <= via_transpose) return multiply_rows(by_rows(a, copy_a), by_rows(b, copy_b), out);
  const Numbers other = numbers(results);
  multiply_rows(by_rows(b.transposed(), copy_b), by_rows(a.transposed(), copy_a), other.get());
  transpose(other.get(), a.rows, b.columns, a.rows, out);
}

// The last two dimensions of the tensor as a matrix, without its address. A tensor that is neither row-major
// nor column-major is copied into `copy`.
Matrix matrix_of(const Tensor& x, Tensor& copy) {
  copy = x;
  const int64_t d = x.dim() - 2, rows = x.size(d), columns = x.size(d + 1);
  int64_t row = x.stride(d), column = columns == 1 ? 1 : x.stride(d + 1);
  if (rows == 1) row = column == 1 ? columns : 1;
  if (!(column == 1 && row >= columns) && !(row == 1 && column >= rows))
    copy = dense(x), row = columns, column = 1;
  return {nullptr, rows, columns, row, column};
}

// The product of matrices or of batches of matrices, over the last two dimensions.
Tensor product(const char* name, int64_t dims, const Tensor& a, const Tensor& b) {
  const Checks check(name);
  check_operands(check, "a", a, "b", b, dims);
  const std::vector<int64_t> sizes = shape_of_product(check, a, b, dims);
  const Tensor out = fresh(a, sizes);
  float* y = static_cast<float*>(out.data_ptr());
  if (out.numel() == 0) return out;
  if (a.size(dims - 1) == 0) {
    std::fill(y, y + out.numel(), 0.0f);
    return out;
  }
  Tensor copy_a, copy_b;
  const Matrix x = matrix_of(a, copy_a), w = matrix_of(b, copy_b);
  const int64_t batch = dims == 2 ? 1 : a.size(0), step_a = dims == 2 ? 0 : copy_a.stride(0),
                step_b = dims == 2 ? 0 : copy_b.stride(0);
  const auto some = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      multiply(x.at(static_cast<const float*>(copy_a.data_ptr()) + i * step_a),
               w.at(static_cast<const float*>(copy_b.data_ptr()) + i * step_b), y + i * x.rows * w.columns);
  };
  if (batch < torch::stable::get_num_threads())
    some(0, batch);  // the threads share each product
  else
    parallel_for(0, batch, 1, some);
  return out;
}

Tensor mm(const Tensor& a, const Tensor& b) { return product("mm", 2, a, b); }
Tensor bmm(const Tensor& a, const Tensor& b) { return product("bmm", 3, a, b); }

}  // namespace
}  // namespace oneflow_ext

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("mm", TORCH_BOX(&oneflow_ext::mm)), m.impl("bmm", TORCH_BOX(&oneflow_ext::bmm));
}
