// Transpose a matrix, one square of vectors at a time.
#pragma once
#include "vec.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// Transpose a square of vectors: log2(size) perfect shuffles of its rows give the transpose.
template <class A>
inline void transpose_square(Vec<A> (&rows)[Vec<A>::size()]) {
  constexpr int size = Vec<A>::size();
  for (int round = 1; round < size; round *= 2) {
    Vec<A> next[size];
    for (int i = 0; i < size / 2; ++i)
      std::tie(next[2 * i], next[2 * i + 1]) = at::vec::interleave2(rows[i], rows[i + size / 2]);
    std::copy(next, next + size, rows);
  }
}

// to (columns, rows) = transpose of from (rows, columns); `step` and `to_step` are row strides in elements.
template <class A>
inline void transpose(const A* from, int64_t step, int64_t rows, int64_t columns, A* to, int64_t to_step) {
  constexpr int64_t size = Vec<A>::size();
  for (int64_t j = 0; j < columns; j += size) {
    const int64_t across = std::min(size, columns - j);
    for (int64_t i = 0; i < rows; i += size) {
      const int64_t down = std::min(size, rows - i);
      Vec<A> square[size];
      if (down == size && across == size) {
        for (int64_t r = 0; r < size; ++r) square[r] = Vec<A>::loadu(from + (i + r) * step + j);
        transpose_square<A>(square);
        for (int64_t r = 0; r < size; ++r) square[r].store(to + (j + r) * to_step + i);
      } else {
        for (int64_t r = 0; r < size; ++r)
          square[r] = r < down ? Vec<A>::loadu(from + (i + r) * step + j, across) : Vec<A>(A(0));
        transpose_square<A>(square);
        for (int64_t r = 0; r < across; ++r) square[r].store(to + (j + r) * to_step + i, down);
      }
    }
  }
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
