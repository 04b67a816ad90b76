// What is added to the first block of a product.
#pragma once
#include <cstdint>

#include "vec.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// c (rows, columns) = addend + c. Element (i, j) of the addend is at i * row + j * column. A null addend
// counts as +0, which turns -0 into +0.
inline void add_to_rows(float* c, int64_t step, int64_t rows, int64_t columns, const float* addend,
                        int64_t row, int64_t column) {
  for (int64_t i = 0; i < rows; ++i, c += step) {
    const float* values = addend ? addend + i * row : nullptr;
    if (!values)
      for (int64_t j = 0; j < columns; ++j) c[j] = c[j] + 0.0f;
    else if (column == 1)
      for (int64_t j = 0; j < columns; ++j) c[j] = values[j] + c[j];
    else
      for (int64_t j = 0; j < columns; ++j) c[j] = values[j * column] + c[j];
  }
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu
