// Elements by index, and their order, along one axis of any plain type. Plain loops over lines; the
// result of a line never depends on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/typed.h"

namespace lumen::kernels {

// The first of `index` (i32 or i64, any strides) that is not in [0, limit), or −1 if all are; its
// value goes to `bad`.
int64_t find_out_of_range(ThreadPool& pool, const TypedOperand& index, const Shape& shape,
                          int64_t limit, int64_t& bad);

// y[.., i, ..] = x[.., index[.., i, ..], ..] over `shape`, the shape of index and y (contiguous, of
// the type of x); x has `x_length` elements along the axis. False if an index is not in range: y
// means nothing then.
bool take_along(ThreadPool& pool, const TypedOperand& x, const TypedOperand& index,
                int64_t x_length, const Shape& shape, int axis, std::byte* y);

// y[.., index[.., i, ..], ..] = src[.., i, ..] over `shape`, the shape of index, in the order of i;
// `add`: += instead, in the type of y (f32, f64, integers, bool: or). y has the type of src and is
// contiguous under `y_shape`. False as above.
bool scatter(ThreadPool& pool, const TypedOperand& index, const TypedOperand& src,
             const Shape& shape, int axis, bool add, const Shape& y_shape, std::byte* y);

// Along `axis` of x, the index of the largest, or with `least` the smallest (first of equals; NaN
// comes before all others): y has one per line.
void argmax_lines(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis, bool least,
                  int64_t* y);

// Along `axis` of x, the indices of the first `count` in ascending (or descending) order; equals
// keep theirs, NaN is largest. y has extent `count` along the axis and is contiguous. `workspace`:
// argsort_workspace bytes.
void argsort_lines(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis,
                   int64_t count, bool descending, std::byte* workspace, int64_t* y);
size_t argsort_workspace(int64_t line, int threads);

}  // namespace lumen::kernels
