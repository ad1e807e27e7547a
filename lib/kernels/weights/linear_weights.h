// The weights of a `linear` call (matmul.h) as one matrix whose rows are the columns of y, and
// blocks of it as floats. Private to this room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "lib/kernels/matmul.h"
#include "lib/kernels/products/blocked_product.h"

namespace lumen::kernels {

inline int64_t total_rows(std::span<const Weight> weights) {
  int64_t total = 0;
  for (const Weight& w : weights) total += w.rows;
  return total;
}

// Calls body(weight, begin, end, column) for the rows of the weights that make up columns [begin,
// end) of y, in order; `column` is where they start in y.
template <class Body>
void for_each_part(std::span<const Weight> weights, int64_t begin, int64_t end, Body&& body) {
  int64_t first = 0;  // column of the weight's row 0
  for (const Weight& w : weights) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + w.rows);
    if (from < to) body(w, from - first, to - first, from);
    first += w.rows;
  }
}

// Rows [row, row + rows) of weights in rows, columns [k, k + depth), as floats [rows, depth].
// noexcept.
void expand_weights(std::span<const Weight> weights, int64_t row, int64_t rows, int64_t k,
                    int64_t depth, float* to);

// Packs rows of float weights in panels, which hold their columns as a product wants them.
// noexcept.
void pack_panels(std::span<const Weight> weights, const StripRequest& want);

}  // namespace lumen::kernels
