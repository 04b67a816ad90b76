// Products of float32 matrices in the order of summation of MKL, which torch calls.
//
// MKL sums an element as one chain of fused multiply-adds over k, from +0, inside blocks of K. It adds the
// blocks in their order. The addend of addmm is added to the sum of the first block. oneDNN's block kernels
// sum a block in the same chain, so the bits are equal if the blocks are. The size of MKL's blocks depends on
// the processor and is found by trial (exact_matmul.cpp).
#pragma once
#include <array>

#include "products.h"

namespace oneflow_ext {

// What addmm adds: element (i, j) is at i * row + j * column. Without data nothing is added.
struct Addend {
  const float* data;
  int64_t row, column;
  Addend transposed() const { return {data, column, row}; }
};

struct Product {
  Matrix a, b;
  Addend addend;
  int64_t depth;  // of a block of K
  float* out;     // dense, row-major: a.rows x b.columns, or the transpose if is_turned
  bool is_turned;
};

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// A part of a matrix in row-major order.
struct Rows {
  const float* data;
  int64_t step;
};

constexpr int64_t kScratch = 1 << 18;  // elements of a transposed part, at most, if it has enough rows

// The largest block below `most` that cuts `size` into even blocks; a multiple of 16 if there are several.
inline int64_t even_block(int64_t size, int64_t most) {
  const int64_t blocks = (size + most - 1) / most;
  return blocks <= 1 ? std::max<int64_t>(size, 1) : ((size + blocks - 1) / blocks + 15) / 16 * 16;
}

// Memory of a thread that is used again in each call.
inline float* scratch(int which, int64_t count) {
  static thread_local std::array<std::pair<Numbers, int64_t>, 3> kept;
  auto& [memory, size] = kept[static_cast<size_t>(which)];
  if (size < count) memory = numbers(count), size = count;
  return memory.get();
}

// A part of the matrix in row-major order: in place, or transposed into the scratch memory `which`.
inline Rows rows_of(const Matrix& m, Range rows, Range columns, int which) {
  if (m.column == 1) return {m.data + rows.begin * m.row + columns.begin, m.row};
  float* to = scratch(which, rows.size() * columns.size());
  oneflow_cpu::best().transpose(m.data + rows.begin + columns.begin * m.column, m.column, columns.size(),
                                rows.size(), to, columns.size());
  return {to, columns.size()};
}

// One block of the result, for all of K.
inline void multiply_block(const Product& p, const Rows& a, const Rows& b, Range rows, Range columns) {
  const int64_t m = rows.size(), n = columns.size(), k = p.a.columns;
  const int64_t step = p.is_turned ? n : p.b.columns;
  float* c = p.is_turned ? scratch(2, m * n) : p.out + rows.begin * step + columns.begin;
  for (int64_t q = 0; q < k; q += p.depth) {
    block(m, n, std::min(p.depth, k - q), a.data + q, a.step, b.data + q * b.step, b.step, c, step, q == 0);
    if (q) continue;
    const Addend& addend = p.addend;
    const float* values = addend.data;
    if (values) values += rows.begin * addend.row + columns.begin * addend.column;
    oneflow_cpu::best().add_to_rows(c, step, m, n, values, addend.row, addend.column);
  }
  if (p.is_turned)
    oneflow_cpu::best().transpose(c, n, m, n, p.out + columns.begin * p.a.rows + rows.begin, p.a.rows);
}

// A part of the result, on one thread.
inline void multiply_part(const Product& p, Range rows, Range columns) {
  const int64_t k = p.a.columns, fits = std::max<int64_t>(32, kScratch / k / 16 * 16);
  const int64_t tall = p.a.column == 1 ? rows.size() : std::min(rows.size(), fits);
  const int64_t wide = p.b.column == 1 ? kColumns : std::min(kColumns, fits);
  const int64_t row_step = even_block(std::min(tall, rows.size()), kRows),
                column_step = even_block(columns.size(), wide);
  for (int64_t top = rows.begin; top < rows.end; top += tall) {
    const Range band{top, std::min(top + tall, rows.end)};
    const Rows a = rows_of(p.a, band, {0, k}, 0);
    for (int64_t j = columns.begin; j < columns.end; j += column_step) {
      const Range across{j, std::min(j + column_step, columns.end)};
      const Rows b = rows_of(p.b, {0, k}, across, 1);
      for (int64_t i = band.begin; i < band.end; i += row_step)
        multiply_block(p, {a.data + (i - top) * a.step, a.step}, b,
                       {i, std::min(i + row_step, band.end)}, across);
    }
  }
}

// The threads share the result: whole blocks of rows, or of columns if there are more of them.
inline void multiply_on(int64_t threads, const Product& p) {
  const int64_t down = (p.a.rows + kRows - 1) / kRows, across = (p.b.columns + 15) / 16;
  const bool by_rows = p.b.column == 1 ? down >= threads : down > across;
  const int64_t size = by_rows ? p.a.rows : p.b.columns, unit = by_rows ? kRows : 16;
  const int64_t share = ((size + unit - 1) / unit + threads - 1) / threads * unit;
  if (threads == 1 || share >= size) return multiply_part(p, {0, p.a.rows}, {0, p.b.columns});
  torch::stable::parallel_for(0, (size + share - 1) / share, 1, [&](int64_t begin, int64_t end) {
    const Range part{begin * share, std::min(end * share, size)};
    if (by_rows)
      multiply_part(p, part, {0, p.b.columns});
    else
      multiply_part(p, {0, p.a.rows}, part);
  });
}

// out (a.rows, b.columns) = addend + a b. If fewer elements are transposed so, out' = addend' + b' a'.
inline void multiply_exactly(int64_t threads, const Matrix& a, const Matrix& b, const Addend& addend,
                             int64_t depth, float* out) {
  const int64_t direct = (a.column != 1) * a.size() + (b.column != 1) * b.size(),
                turned = (a.row != 1) * a.size() + (b.row != 1) * b.size() + a.rows * b.columns;
  if (direct <= turned) return multiply_on(threads, {a, b, addend, depth, out, false});
  multiply_on(threads, {b.transposed(), a.transposed(), addend.transposed(), depth, out, true});
}

}  // namespace oneflow_ext
