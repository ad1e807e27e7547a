// Copies: strided to contiguous with type conversion, and row gathers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/shape.h"

namespace lumen::kernels {

// y (contiguous, `to`) = x (`from`, element strides, 0 for broadcast axes). Quantised types: only
// whole contiguous rows (last stride 1) of `from`. Floats are rounded to nearest even, floats to
// integers truncated; integers wrap (typed.h, cast).
void copy(ThreadPool& pool, DType from, const std::byte* x, const Strides& strides,
          const Shape& shape, DType to, std::byte* y);

// y[i] = x[i] for n bytes that do not overlap. (On Zen 3 glibc's memcpy of 4 KiB takes ten times as
// long where y lies a few bytes behind x, modulo the size of a page.) noexcept.
void copy_bytes(const std::byte* x, int64_t n, std::byte* y);

// y (contiguous, shape `to`) = x (contiguous, `shape`, rank ≥ 1) behind `before` zeros along each
// axis and with zeros behind it, up to `to`.
void pad(ThreadPool& pool, int64_t element_bytes, const std::byte* x, const Shape& shape,
         const Shape& before, const Shape& to, std::byte* y);

// y[i] = float(table[ids[i]]) for rows of `dim` elements of any type, or as they are stored if that
// is y's type, `to`, too. Ids must be in range.
void gather_rows(ThreadPool& pool, DType dtype, const std::byte* table, int64_t dim,
                 const int32_t* ids, int64_t count, DType to, std::byte* y);

// y [rows, dim] = Σ of the rows dy[i], float32 or bfloat16, with ids[i] = row, added in float32 in
// the order of i. Ids must be in range. `epilogue`, if not null, changes pieces of rows that are
// finished (matmul.h), and wants scatter_rows_workspace_bytes of workspace.
void scatter_rows(ThreadPool& pool, DType dtype, const std::byte* dy, int64_t dim,
                  const int32_t* ids, int64_t count, int64_t rows, float* y,
                  const Epilogue* epilogue = nullptr, std::byte* workspace = nullptr);
size_t scatter_rows_workspace_bytes(int64_t count, int64_t rows);

}  // namespace lumen::kernels
