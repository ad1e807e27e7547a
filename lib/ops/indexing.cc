// Indexing as Python writes it: ranges with steps, lists of indices, masks.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/ops/axes.h"

namespace lumen::ops {

Tensor strided_slice(const Tensor& x, int axis, std::optional<int64_t> begin,
                     std::optional<int64_t> end, int64_t step) {
  const int at = graph::checked_axis("strided_slice", x.shape(), axis);
  if (step == 0) fail(ErrorKind::kMalformed, "strided_slice: the step is 0");
  const int64_t n = x.dim(at);
  const bool up = step > 0;
  const int64_t low = up ? 0 : -1, high = up ? n : n - 1;
  auto place = [&](std::optional<int64_t> index, int64_t absent) {
    if (!index) return absent;
    return std::clamp(*index < 0 ? *index + n : *index, low, high);
  };
  const int64_t first = place(begin, up ? low : high), last = place(end, up ? high : low);
  const int64_t by = std::clamp(step, -n - 1, n + 1);  // beyond that only the first is left
  const int64_t count = std::max<int64_t>(0, (last - first + by - (up ? 1 : -1)) / by);
  if (by == 1 || count <= 1) {
    return graph::slice(x, at, count == 0 ? 0 : first, count == 0 ? 0 : first + count);
  }
  return index_select(x, at, arange(first, first + count * by, by));
}

namespace {

// Which of `extent` elements each index means, int64: negative ones count from the end. What is out
// of range stays as it is.
Tensor from_start(const Tensor& index, int64_t extent) {
  if (index.dtype() != DType::kI32 && index.dtype() != DType::kI64) {
    fail(ErrorKind::kMalformed, "index: indices of type ", name(index.dtype()),
         "; they must be int32 or int64 (of bool: masked_select)");
  }
  const Tensor i = graph::contiguous(index, DType::kI64);
  const Tensor negative = logical_and(lt(i, 0), ge(i, -extent));
  return where(negative, add(i, extent), i);
}

// What indices of the first axes of x mean: x with these as one axis, and places on it.
struct Places {
  Tensor rows;   // x as [elements of the first axes, …]
  Tensor at;     // int64 [n]
  Shape result;  // of x at these places: that of the indices, then the other axes
};

Places places(const Tensor& x, std::span<const Tensor> indices) {
  const auto count = static_cast<int>(indices.size());
  if (count == 0 || count > x.rank()) {
    fail(ErrorKind::kMalformed, "index of ", to_string(x.shape()), ": ", count,
         " indices; there must be 1 to one per axis");
  }
  graph::check_defined(indices, "index");
  Places p;
  for (const Tensor& index : indices) {
    p.result = graph::broadcast("index", p.result, index.shape());
  }
  int64_t total = 1;
  Tensor at;
  for (int i = 0; i < count; ++i) {
    const int64_t extent = x.dim(i);
    Tensor place = from_start(graph::expand(indices[static_cast<size_t>(i)], p.result), extent);
    place = graph::reshape(place, {p.result.elements()});
    // One that is out of range must not reach another row: found among 0, 1, …, it is checked.
    if (count > 1) place = index_select(arange(0, extent), 0, place);
    at = i == 0 ? place : add(mul(at, extent), place);
    total *= extent;
  }
  p.at = at;
  Shape rows = {total};
  for (int i = count; i < x.rank(); ++i) {
    rows.push_back(x.dim(i));
    p.result.push_back(x.dim(i));
  }
  p.rows = graph::reshape(x, rows);
  return p;
}

}  // namespace

Tensor index(const Tensor& x, std::span<const Tensor> indices) {
  const Places p = places(x, indices);
  return graph::reshape(index_select(p.rows, 0, p.at), p.result);
}

Tensor index_put(const Tensor& x, std::span<const Tensor> indices, const Tensor& values,
                 bool accumulate) {
  const Places p = places(x, indices);
  Shape shape = p.rows.shape(), along = {p.at.dim(0)};
  shape[0] = p.at.dim(0);
  for (int i = 1; i < shape.rank(); ++i) along.push_back(1);
  const Tensor at = graph::expand(graph::reshape(p.at, along), shape);
  const Tensor src = graph::reshape(graph::expand(values, p.result), shape);
  const Tensor y = accumulate ? scatter_add(p.rows, 0, at, src) : scatter(p.rows, 0, at, src);
  return graph::reshape(y, x.shape());
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  const Shape shape = graph::broadcast("masked_select", x.shape(), mask.shape());
  const Tensor flat = graph::reshape(graph::expand(x, shape), {shape.elements()});
  const Tensor chosen = graph::reshape(graph::expand(mask, shape), {shape.elements()});
  return index_select(flat, 0, graph::reshape(nonzero(chosen), {-1}));
}

}  // namespace lumen::ops
