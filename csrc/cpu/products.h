// Blocked float32 matrix products, with the oneDNN kernel that libtorch_cpu exports for inductor's templates.
// torch multiplies float32 with MKL, which does not use AVX-512 on processors of other vendors than Intel.
#pragma once
#include <memory>

#include "operands.h"

namespace at::native::cpublas {
// C (M, N) = A (M, K) B (K, N), or C += if add_C is set; ld_a, ld_b and ld_c are row strides in elements. The
// symbol is missing if torch is built without oneDNN.
__attribute__((weak)) void brgemm(int64_t M, int64_t N, int64_t K, int64_t ld_a, int64_t ld_b, int64_t ld_c,
                                  const bool add_C, const float* A, const float* B, float* C, bool is_vnni);
}  // namespace at::native::cpublas

namespace oneflow_ext {

constexpr int64_t kRows = 64, kColumns = 256,
                  kDepth = 256;  // of a block: B's block of 256 KB fits in the L2 cache
constexpr int64_t kTile = 16;    // columns transposed together

// c (m, n) += a (m, k) b (k, n), or = if `first` is set.
inline void block(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_step, const float* b,
                  int64_t b_step, float* c, int64_t c_step, bool first) {
  at::native::cpublas::brgemm(m, n, k, a_step, b_step, c_step, !first, a, b, c, false);
}

// to (columns, rows) = transpose of `from`, whose rows are `step` elements apart.
inline void transpose(const float* from, int64_t step, int64_t rows, int64_t columns, float* to) {
  torch::stable::parallel_for(
      0, (columns + kTile - 1) / kTile, std::max<int64_t>(1, 65536 / (kTile * std::max<int64_t>(rows, 1))),
      [&](int64_t first, int64_t last) {
        const int64_t begin = first * kTile, end = std::min(columns, last * kTile);
        oneflow_cpu::best().transpose(from + begin, step, rows, end - begin, to + begin * rows, rows);
      });
}

// A matrix in memory: element (i, j) is at i * row + j * column; one of the two strides is 1.
struct Matrix {
  const float* data;
  int64_t rows, columns, row, column;
  Matrix transposed() const { return {data, columns, rows, column, row}; }
  Matrix at(const float* address) const { return {address, rows, columns, row, column}; }
  int64_t size() const { return rows * columns; }
};

using Numbers = std::unique_ptr<float[]>;
inline Numbers numbers(int64_t count) { return Numbers(new float[count]); }

// Check that the operands are float32 tensors on one device with `dims` dimensions.
inline void check_floats(const Checks& check, const char* a_name, const Tensor& a, const char* b_name,
                         const Tensor& b, int64_t dims) {
  check.dtype(a_name, a, {ScalarType::Float}), check.dims(a_name, a, dims);
  check.same_options(b_name, b, a_name, a), check.dims(b_name, b, dims);
}

// The same, and that torch has oneDNN.
inline void check_operands(const Checks& check, const char* a_name, const Tensor& a, const char* b_name,
                           const Tensor& b, int64_t dims) {
  check_floats(check, a_name, a, b_name, b, dims);
  if (!at::native::cpublas::brgemm) check.refuse(a_name, "be multiplied by oneDNN, found a torch without it");
}

// The shape of the product of two matrices, or of two batches of matrices if `dims` is 3.
inline std::vector<int64_t> shape_of_product(const Checks& check, const Tensor& a, const Tensor& b,
                                             int64_t dims) {
  if (dims == 2)
    check.shape("b", b, {a.size(1), kAny});
  else
    check.shape("b", b, {a.size(0), a.size(2), kAny});
  std::vector<int64_t> sizes = shape(a);
  sizes.back() = b.size(dims - 1);
  return sizes;
}

}  // namespace oneflow_ext
