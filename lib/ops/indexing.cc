// Indexing as Python writes it: ranges with steps, lists of indices, masks.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/ops/axes.h"

namespace lumen::ops {

namespace {

// `count` slices along `axis`, `step` apart from `first` on: one of each group of `step`, as a view
// unless the last group is not whole.
Tensor every(const Tensor& x, int axis, int64_t first, int64_t count, int64_t step) {
  const Shape shape = x.shape();
  std::vector<int64_t> result(shape.begin(), shape.end());
  result[axis] = count;
  if (shape.rank() == Shape::kMaxRank) {  // which leaves no axis for the groups
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
    const Tensor joined = graph::reshape(x, {outer, shape[axis], inner});
    return graph::reshape(every(joined, 1, first, count, step), Shape(result));
  }
  // Groups begin before their slices if that lets the last one end within x.
  const int64_t before = std::max<int64_t>(0, first + count * step - shape[axis]);
  if (before > first) {
    const int64_t last = first + (count - 1) * step;
    const Tensor parts[] = {every(x, axis, first, count - 1, step),
                            graph::slice(x, axis, last, last + 1)};
    return concat(parts, axis);
  }
  std::vector<int64_t> groups = result;
  groups.insert(groups.begin() + axis + 1, step);
  const Tensor whole = graph::slice(x, axis, first - before, first - before + count * step);
  const Tensor slices =
      graph::slice(graph::reshape(whole, Shape(groups)), axis + 1, before, before + 1);
  return graph::reshape(slices, Shape(result));
}

}  // namespace

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
  if (up) return every(x, at, first, count, by);
  return flip(every(x, at, first + (count - 1) * by, count, -by), at);
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
