// Other shapes of the same elements: views, but for flip.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/kernels/copy.h"
#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {
namespace {

using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

graph::TypedShape infer_flip(const Node& node) {
  if (is_quantized(node.inputs[0]->dtype)) shape_error(node, "quantised values");
  return {node.inputs[0]->dtype, node.inputs[0]->shape};
}

// A copy that walks the axes from their ends.
void run_flip(const graph::KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  if (x.shape.elements() == 0) return;
  Strides strides = x.strides;
  const std::byte* first = x.data;
  for (int64_t axis : call.node->attrs.integers("axes")) {
    int64_t& stride = strides[static_cast<size_t>(axis)];
    first += (x.shape[static_cast<int>(axis)] - 1) * stride * info(x.dtype).block_bytes;
    stride = -stride;
  }
  kernels::copy(*call.pool, x.dtype, first, strides, x.shape, x.dtype, call.output.data);
}

// Its slices in reverse.
Tensor flip_meaning(const Node& node, Inputs in) {
  Tensor x = in[0];
  if (node.shape.elements() == 0) return x;
  for (int64_t axis : node.attrs.integers("axes")) {
    const auto at = static_cast<int>(axis);
    std::vector<Tensor> slices;
    for (int64_t i = x.dim(at); i > 0; --i) slices.push_back(graph::slice(x, at, i - 1, i));
    x = concat(slices, at);
  }
  return x;
}

std::vector<OpCase> flip_cases() {
  std::vector<OpCase> cases;
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{-1}, Axes{0, 2}, Axes(true)}) {
    cases.push_back({str("axes ", cases.size()), {f32({3, 4, 20})}, [axes](Inputs in) {
                       return flip(in[0], axes);
                     }});
  }
  cases.push_back({"transposed", {f32({30, 20})}, [](Inputs in) {
                     return flip(graph::transpose(in[0], 0, 1), Axes{0});
                   }});
  cases.push_back({"empty", {f32({0, 2})}, [](Inputs in) { return flip(in[0], Axes{1}); }});
  return cases;
}

}  // namespace

extern const OpDef kFlip;
const OpDef kFlip = {.name = "flip",
                     .infer = infer_flip,
                     .kernel = run_flip,
                     .layout = graph::InputLayout::kAny,
                     .meaning = flip_meaning,
                     .grad = [](const graph::GradCall& call) -> Gradients {
                       return {record(kFlip, {call.dy}, call.node.attrs)};
                     },
                     .cases = flip_cases};

Tensor flip(const Tensor& x, const Axes& axes) {
  const std::vector<bool> turned = chosen_axes(kFlip.name, x.shape(), axes);
  std::vector<int64_t> list;
  for (size_t i = 0; i < turned.size(); ++i) {
    if (turned[i]) list.push_back(static_cast<int64_t>(i));
  }
  return record(kFlip, {x}, {{"axes", std::move(list)}});
}

std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int axis) {
  const int at = graph::checked_axis("split", x.shape(), axis);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    parts.push_back(graph::slice(x, at, begin, begin + size));
    begin += size;
  }
  if (begin != x.dim(at)) {
    fail(ErrorKind::kMalformed, "split of ", to_string(x.shape()), ": the parts have ", begin,
         " elements, axis ", at, " has ", x.dim(at));
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int axis) {
  const int at = graph::checked_axis("split", x.shape(), axis);
  if (size <= 0) fail(ErrorKind::kMalformed, "split: parts of ", size, " elements");
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < x.dim(at); begin += size) {
    sizes.push_back(std::min(size, x.dim(at) - begin));
  }
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, at);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int axis) {
  const int at = graph::checked_axis("chunk", x.shape(), axis);
  if (count <= 0) fail(ErrorKind::kMalformed, "chunk: ", count, " parts");
  const int64_t n = x.dim(at);
  if (n == 0) return split(x, std::vector<int64_t>(static_cast<size_t>(count), 0), at);
  return split(x, n / count + (n % count != 0), at);
}

Tensor squeeze(const Tensor& x) {
  Shape shape;
  for (int64_t dim : x.shape()) {
    if (dim != 1) shape.push_back(dim);
  }
  return graph::reshape(x, shape);
}

Tensor squeeze(const Tensor& x, int axis) {
  const int at = graph::checked_axis("squeeze", x.shape(), axis);
  if (x.dim(at) != 1) return x;
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != at) shape.push_back(x.dim(i));
  }
  return graph::reshape(x, shape);
}

Tensor unsqueeze(const Tensor& x, int axis) {
  Shape shape;
  const int at = axis < 0 ? axis + x.rank() + 1 : axis;
  if (at < 0 || at > x.rank()) {
    fail(ErrorKind::kMalformed, "unsqueeze: no place for an axis ", axis, " in ",
         to_string(x.shape()));
  }
  for (int i = 0; i <= x.rank(); ++i) {
    if (i == at) shape.push_back(1);
    if (i < x.rank()) shape.push_back(x.dim(i));
  }
  return graph::reshape(x, shape);
}

Tensor flatten(const Tensor& x, int first, int last) {
  if (x.rank() == 0) return graph::reshape(x, {1});
  const int from = graph::checked_axis("flatten", x.shape(), first);
  const int to = graph::checked_axis("flatten", x.shape(), last);
  if (from > to) {
    fail(ErrorKind::kMalformed, "flatten of ", to_string(x.shape()), ": axis ", first,
         " comes after axis ", last);
  }
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > from && i <= to) {
      shape[-1] *= x.dim(i);
    } else {
      shape.push_back(x.dim(i));
    }
  }
  return graph::reshape(x, shape);
}

Tensor movedim(const Tensor& x, int from, int to) {
  const int source = graph::checked_axis("movedim", x.shape(), from);
  const int target = graph::checked_axis("movedim", x.shape(), to);
  std::vector<int64_t> order;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != source) order.push_back(i);
  }
  order.insert(order.begin() + target, source);
  return graph::permute(x, order);
}

Tensor roll(const Tensor& x, int64_t shift, int axis) {
  const int at = graph::checked_axis("roll", x.shape(), axis);
  const int64_t n = x.dim(at);
  if (n == 0) return x;
  const int64_t by = ((shift % n) + n) % n;
  if (by == 0) return x;
  const Tensor parts[] = {graph::slice(x, at, n - by, n), graph::slice(x, at, 0, n - by)};
  return concat(parts, at);
}

Tensor repeat_interleave(const Tensor& x, int64_t count, int axis) {
  const int at = graph::checked_axis("repeat_interleave", x.shape(), axis);
  if (count < 0) fail(ErrorKind::kMalformed, "repeat_interleave: ", count, " times");
  // [before, n, 1, behind], however many axes there are before and behind.
  Shape apart = {1, x.dim(at), 1, 1}, shape = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    if (i != at) apart[i < at ? 0 : 3] *= x.dim(i);
  }
  Shape repeated = apart;
  repeated[2] = count;
  const Tensor y = graph::expand(graph::reshape(x, apart), repeated);
  shape[at] *= count;
  return graph::reshape(y, shape);
}

Tensor tile(const Tensor& x, std::span<const int64_t> counts) {
  const auto rank = static_cast<int>(counts.size());
  if (rank < x.rank() || rank > Shape::kMaxRank) {
    fail(ErrorKind::kMalformed, "tile of ", to_string(x.shape()), ": ", rank,
         " counts; there must be at least one per axis, at most ", Shape::kMaxRank);
  }
  for (int64_t count : counts) {
    if (count < 0) fail(ErrorKind::kMalformed, "tile: ", count, " times");
  }
  Shape shape;
  for (int i = x.rank(); i < rank; ++i) shape.push_back(1);
  for (int64_t dim : x.shape()) shape.push_back(dim);
  // [n] as [1, n], repeated to [count, n], as [count · n]. Where that makes too many axes, three of
  // them at a time, those before and those behind them being one.
  const int at_once = 2 * rank <= Shape::kMaxRank ? rank : 3;
  Tensor y = x;
  for (int end = rank; end > 0; end -= std::min(end, at_once)) {
    const int begin = std::max(0, end - at_once);
    Shape apart, repeated;
    auto push = [&](int64_t count, int64_t n) {
      apart.push_back(1), apart.push_back(n);
      repeated.push_back(count), repeated.push_back(n);
    };
    auto push_merged = [&](int from, int to) {
      int64_t n = 1;
      for (int i = from; i < to; ++i) n *= shape[i];
      if (from < to) apart.push_back(n), repeated.push_back(n);
    };
    push_merged(0, begin);
    for (int i = begin; i < end; ++i) push(counts[static_cast<size_t>(i)], shape[i]);
    push_merged(end, rank);
    y = graph::expand(graph::reshape(y, apart), repeated);
    for (int i = begin; i < end; ++i) shape[i] *= counts[static_cast<size_t>(i)];
  }
  return graph::reshape(y, shape);
}

namespace {

// Where column − row < limit of the last two axes. In float32, which fuses, where it is exact.
Tensor below(const Tensor& x, int64_t limit) {
  const int64_t last = std::max(x.dim(-2), x.dim(-1));
  const bool exact = last <= int64_t{1} << 24;
  const Tensor rows = exact ? graph::iota(x.dim(-2)) : arange(0, x.dim(-2));
  const Tensor columns = exact ? graph::iota(x.dim(-1)) : arange(0, x.dim(-1));
  return lt(sub(columns, unsqueeze(rows, -1)), std::clamp(limit, -last, last + 1));
}

void require_matrix(std::string_view op, const Tensor& x) {
  if (x.rank() < 2) fail(ErrorKind::kMalformed, op, " of ", to_string(x.shape()), ": not a matrix");
}

}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) {
  require_matrix("tril", x);
  return where(below(x, diagonal + 1), x, zeros({}, x.dtype()));
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  require_matrix("triu", x);
  return where(below(x, diagonal), zeros({}, x.dtype()), x);
}

}  // namespace lumen::ops
