// Products of float32 matrices in blocks that oneDNN multiplies, through the kernel that libtorch_cpu exports for inductor's own
// templates. torch multiplies float32 with MKL, which has no AVX-512 for processors that are not Intel's.
#include "operands.h"

namespace at::native::cpublas {
// C (M, N) = A (M, K) B (K, N), or C += with add_C; rows of ld_a, ld_b, ld_c numbers. Absent from torch without oneDNN.
__attribute__((weak)) void brgemm(int64_t M, int64_t N, int64_t K, int64_t ld_a, int64_t ld_b, int64_t ld_c, const bool add_C, const float* A, const float* B, float* C, bool is_vnni);
}  // namespace at::native::cpublas

namespace oneflow_ext {
namespace {

using torch::stable::parallel_for;

constexpr int64_t kRows = 64, kColumns = 256, kDepth = 256;  // of a block: B's part, 256 KB, stays in the second cache
constexpr int64_t kTile = 16;  // columns that are turned together

// A matrix in memory: element (i, j) at i * row + j * column, one of which is 1.
struct Matrix {
  const float* data;
  int64_t rows, columns, row, column;
  Matrix turned() const { return {data, columns, rows, column, row}; }
  int64_t size() const { return rows * columns; }
};

// to (columns, rows) = the rows of `from`, `step` numbers apart, turned.
void transpose(const float* from, int64_t step, int64_t rows, int64_t columns, float* to) {
  parallel_for(0, (columns + kTile - 1) / kTile, std::max<int64_t>(1, 65536 / (kTile * std::max<int64_t>(rows, 1))), [&](int64_t first, int64_t last) {
    const int64_t begin = first * kTile, end = std::min(columns, last * kTile);
    oneflow_cpu::best().transpose(from + begin, step, rows, end - begin, to + begin * rows, rows);
  });
}

// The matrix row by row: itself, or a copy that `held` keeps.
Matrix by_rows(const Matrix& m, const Tensor& like, std::optional<Tensor>& held) {
  if (m.column == 1) return m;
  held = fresh(like, {m.rows, m.columns});
  float* to = static_cast<float*>(held->data_ptr());
  transpose(m.data, m.column, m.columns, m.rows, to);
  return {to, m.rows, m.columns, m.columns, 1};
}

// out (a.rows, b.columns), dense.
void multiply(const Matrix& a, const Matrix& b, float* out) {
  const int64_t m = a.rows, n = b.columns, k = a.columns;
  const int64_t down = (m + kRows - 1) / kRows, across = (n + kColumns - 1) / kColumns;
  parallel_for(0, down * across, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t i = task % down * kRows, j = task / down * kColumns;
      for (int64_t p = 0; p < k; p += kDepth)
        at::native::cpublas::brgemm(std::min(kRows, m - i), std::min(kColumns, n - j), std::min(kDepth, k - p), a.row, b.row, n, p > 0, a.data + i * a.row + p,
                                    b.data + p * b.row + j, out + i * n + j, false);
    }
  });
}

// The tensor as a matrix; one that lies neither row by row nor column by column is copied into `held`.
Matrix matrix_of(const Tensor& x, Tensor& held) {
  held = x;
  const int64_t rows = x.size(0), columns = x.size(1);
  int64_t row = x.stride(0), column = columns == 1 ? 1 : x.stride(1);
  if (rows == 1) row = column == 1 ? columns : 1;
  if (!(column == 1 && row >= columns) && !(row == 1 && column >= rows)) held = torch::stable::contiguous(x), row = columns, column = 1;
  return {static_cast<const float*>(held.data_ptr()), rows, columns, row, column};
}

Tensor mm(const Tensor& a, const Tensor& b) {
  STD_TORCH_CHECK(at::native::cpublas::brgemm, "oneflow::mm: this torch has no oneDNN");
  STD_TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "oneflow::mm: two matrices that fit, found ", a.dim(), " and ", b.dim(), " dimensions, ",
                  a.dim() == 2 ? a.size(1) : -1, " columns and ", b.dim() == 2 ? b.size(0) : -1, " rows");
  STD_TORCH_CHECK(a.scalar_type() == ScalarType::Float && b.scalar_type() == ScalarType::Float, "oneflow::mm: float32, found ", toString(a.scalar_type()), " and ", toString(b.scalar_type()));
  const Tensor out = fresh(a, {a.size(0), b.size(1)});
  float* y = static_cast<float*>(out.data_ptr());
  if (a.size(1) == 0) std::fill(y, y + out.numel(), 0.0f);
  if (a.size(1) == 0 || out.numel() == 0) return out;
  Tensor held_a, held_b;
  const Matrix x = matrix_of(a, held_a), w = matrix_of(b, held_b);
  std::optional<Tensor> copy_x, copy_w;
  const int64_t direct = (x.column != 1) * x.size() + (w.column != 1) * w.size(), turned = (x.row != 1) * x.size() + (w.row != 1) * w.size() + out.numel();
  if (direct <= turned) {
    multiply(by_rows(x, a, copy_x), by_rows(w, a, copy_w), y);
    return out;
  }
  const Tensor other = fresh(a, {b.size(1), a.size(0)});  // (b' a')', where turning the result is less than turning a factor
  multiply(by_rows(w.turned(), a, copy_w), by_rows(x.turned(), a, copy_x), static_cast<float*>(other.data_ptr()));
  transpose(static_cast<const float*>(other.data_ptr()), a.size(0), b.size(1), a.size(0), y);
  return out;
}

}  // namespace
}  // namespace oneflow_ext

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) { m.impl("mm", TORCH_BOX(&oneflow_ext::mm)); }
