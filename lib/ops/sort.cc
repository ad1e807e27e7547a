// Order: where the largest are, and all of them in a row.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/kernels/select.h"
#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {
namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

// --- argmax ------------------------------------------------------------------------------------

graph::TypedShape infer_argmax(const Node& node) {
  const Node& x = *node.inputs[0];
  if (is_quantized(x.dtype)) shape_error(node, "quantised values");
  if (x.shape[axis_of(node)] == 0) shape_error(node, "no elements along the axis");
  Shape shape = x.shape;
  shape[axis_of(node)] = 1;
  return {DType::kI64, shape};
}

bool is_least(const Node& node) {
  return node.attrs.integer("least") != 0;
}

void run_argmax(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  kernels::argmax_lines(*call.pool, typed(x), x.shape, axis_of(*call.node), is_least(*call.node),
                        call.output.as<int64_t>());
}

// 0, 1, … along `axis` of a shape with as many axes.
Tensor positions(const Shape& shape, int axis) {
  Shape along;
  for (int i = 0; i < shape.rank(); ++i) along.push_back(i == axis ? shape[axis] : 1);
  return graph::reshape(graph::iota(shape[axis]), along);
}

// n − 1 less the largest n − 1 − i where xᵢ is the maximum; approximate for NaN.
Tensor argmax_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  const Tensor wide = graph::contiguous(in[0], DType::kF32), x = is_least(node) ? neg(wide) : wide;
  const auto last = static_cast<double>(x.dim(axis) - 1);
  const Tensor from_end = sub(last, positions(x.shape(), axis));
  const Tensor first = max(mul(equal(x, max(x, axis)), from_end), axis);
  return graph::contiguous(sub(last, first), DType::kI64);
}

std::vector<OpCase> argmax_cases() {
  std::vector<OpCase> cases;
  for (int axis : {0, 1, 2}) {
    cases.push_back({str("axis ", axis), {f32({3, 40, 5})}, [axis](Inputs in) {
                       return argmax(in[0], axis, true);
                     }});
  }
  cases.push_back({"ties", {i32({7, 300})}, [](Inputs in) { return argmax(in[0], 1); }});
  cases.push_back({"least", {i32({90, 7})}, [](Inputs in) { return argmin(in[0], 0); }});
  cases.push_back({"short lines", {f32({90, 7})}, [](Inputs in) { return argmin(in[0], 1); }});
  cases.push_back({"transposed", {f32({7, 5})}, [](Inputs in) {
                     return argmax(graph::transpose(in[0], 0, 1), 1);
                   }});
  return cases;
}

// --- argsort -----------------------------------------------------------------------------------

graph::TypedShape infer_argsort(const Node& node) {
  const Node& x = *node.inputs[0];
  const int64_t count = node.attrs.integer("count");
  if (is_quantized(x.dtype)) shape_error(node, "quantised values");
  Shape shape = x.shape;
  if (count < 0 || count > shape[axis_of(node)]) {
    shape_error(node, str("cannot give ", count, " of ", shape[axis_of(node)], " elements"));
  }
  shape[axis_of(node)] = count;
  return {DType::kI64, shape};
}

void run_argsort(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  const graph::Attrs& attrs = call.node->attrs;
  kernels::argsort_lines(*call.pool, typed(x), x.shape, axis_of(*call.node), attrs.integer("count"),
                         attrs.integer("descending") != 0, call.workspace,
                         call.output.as<int64_t>());
}

size_t argsort_workspace(const Node& node, int threads) {
  return kernels::argsort_workspace(node.inputs[0]->shape[axis_of(node)], threads);
}

// xᵢ stands at rank Σⱼ [xⱼ < xᵢ] + Σⱼ₍ⱼ<ᵢ₎ [xⱼ = xᵢ]; the index at rank r is Σᵢ i · [rankᵢ = r].
// Approximate for NaN.
Tensor argsort_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  const bool descending = node.attrs.integer("descending") != 0;
  const Tensor x = graph::contiguous(in[0], DType::kF32);
  const Shape& shape = x.shape();
  const Tensor number = positions(shape, axis);
  Tensor rank = constant_like(0, x);
  for (int64_t j = 0; j < shape[axis]; ++j) {
    const Tensor other = graph::expand(graph::slice(x, axis, j, j + 1), shape);
    const Tensor earlier = less_than(graph::scalar(static_cast<float>(j)), number);
    rank = add(rank, descending ? less_than(x, other) : less_than(other, x));
    rank = add(rank, mul(equal(x, other), earlier));
  }
  std::vector<Tensor> found;
  for (int64_t r = 0; r < node.shape[axis]; ++r) {
    const Tensor here = equal(rank, constant_like(static_cast<double>(r), rank));
    found.push_back(sum(mul(here, number), axis));
  }
  if (found.empty()) return zeros(node.shape, DType::kI64);
  return graph::contiguous(concat(found, axis), DType::kI64);
}

std::vector<OpCase> argsort_cases() {
  std::vector<OpCase> cases;
  for (const bool descending : {false, true}) {
    cases.push_back({str("last axis ", descending), {f32({5, 33})}, [descending](Inputs in) {
                       return argsort(in[0], -1, descending);
                     }});
    cases.push_back({str("ties ", descending), {i32({3, 20})}, [descending](Inputs in) {
                       return argsort(in[0], 1, descending);
                     }});
  }
  cases.push_back({"first axis", {f32({20, 3, 2})}, [](Inputs in) { return argsort(in[0], 0); }});
  cases.push_back(
      {"the first few", {f32({4, 50})}, [](Inputs in) { return topk(in[0], 3, 1).indices; }});
  cases.push_back({"empty", {f32({4, 0})}, [](Inputs in) { return argsort(in[0], 1); }});
  return cases;
}

}  // namespace

extern const OpDef kArgmax, kArgsort;
const OpDef kArgmax = {.name = "argmax",
                       .infer = infer_argmax,
                       .kernel = run_argmax,
                       .layout = graph::InputLayout::kAny,
                       .meaning = argmax_meaning,
                       .grad = graph::no_gradient,
                       .cases = argmax_cases};
const OpDef kArgsort = {.name = "argsort",
                        .infer = infer_argsort,
                        .kernel = run_argsort,
                        .workspace = argsort_workspace,
                        .layout = graph::InputLayout::kAny,
                        .meaning = argsort_meaning,
                        .grad = graph::no_gradient,
                        .cases = argsort_cases};

namespace {

Tensor argmax_kept(const Tensor& x, int axis, bool least) {
  const int at = graph::checked_axis(kArgmax.name, x.shape(), axis);
  return record(kArgmax, {x}, {{"axis", int64_t{at}}, {"least", int64_t{least}}});
}

Tensor without(const Tensor& x, int axis, bool keepdim, const Shape& original) {
  if (original.rank() == 0) return graph::reshape(x, {});
  return keepdim ? x : squeeze(x, axis);
}

Tensor order(const Tensor& x, int axis, int64_t count, bool descending) {
  const int at = graph::checked_axis(kArgsort.name, x.shape(), axis);
  return record(kArgsort, {x},
                {{"axis", int64_t{at}}, {"count", count}, {"descending", int64_t{descending}}});
}

Found with_values(const Tensor& x, const Tensor& indices, int axis, const Shape& original) {
  const Tensor values = take_along(x, indices, axis);
  if (original.rank() == 0) return {graph::reshape(values, {}), graph::reshape(indices, {})};
  return {values, indices};
}

}  // namespace

Tensor argmax(const Tensor& x, int axis, bool keepdim) {
  return without(argmax_kept(with_axis(x), axis, false), axis, keepdim, x.shape());
}
Tensor argmin(const Tensor& x, int axis, bool keepdim) {
  return without(argmax_kept(with_axis(x), axis, true), axis, keepdim, x.shape());
}

Found max_with_index(const Tensor& x, int axis, bool keepdim) {
  const Tensor t = with_axis(x), at = argmax_kept(t, axis, false);
  return {without(take_along(t, at, axis), axis, keepdim, x.shape()),
          without(at, axis, keepdim, x.shape())};
}
Found min_with_index(const Tensor& x, int axis, bool keepdim) {
  const Tensor t = with_axis(x), at = argmax_kept(t, axis, true);
  return {without(take_along(t, at, axis), axis, keepdim, x.shape()),
          without(at, axis, keepdim, x.shape())};
}

Tensor argsort(const Tensor& x, int axis, bool descending) {
  return sort(x, axis, descending).indices;
}

Found sort(const Tensor& x, int axis, bool descending) {
  const Tensor t = with_axis(x);
  const int at = graph::checked_axis("sort", t.shape(), axis);
  return with_values(t, order(t, at, t.dim(at), descending), at, x.shape());
}

Found topk(const Tensor& x, int64_t k, int axis, bool largest) {
  const Tensor t = with_axis(x);
  const int64_t count = x.rank() == 0 && k == 0 ? 1 : k;  // as torch
  return with_values(t, order(t, axis, count, largest), axis, x.shape());
}

Tensor nonzero(const Tensor& x) {
  const Array flags = to_bool(x).eval();
  const auto values = flags.as<bool>();
  const int rank = x.rank();
  int64_t left = std::count(values.begin(), values.end(), true);
  Array found = Array::uninitialized(DType::kI64, {left, int64_t{rank}});
  if (rank == 0) return graph::constant(found);
  int64_t place[Shape::kMaxRank] = {};
  int64_t* to = found.as_mutable<int64_t>().data();
  // Each place is written, and stays where the flag is set: there is room while some are left.
  for (size_t i = 0; left > 0; ++i) {
    std::copy_n(place, rank, to);
    to += values[i] ? rank : 0;
    left -= values[i] ? 1 : 0;
    for (int axis = rank - 1; ++place[axis] == x.dim(axis) && axis > 0; --axis) place[axis] = 0;
  }
  return graph::constant(found);
}

Tensor bincount(const Tensor& x, int64_t min_length) {
  if (is_float(x.dtype()) || is_quantized(x.dtype()) || x.rank() != 1) {
    fail(ErrorKind::kMalformed, "bincount: needs integers [n], not ", name(x.dtype()), " ",
         to_string(x.shape()));
  }
  const Array numbers = graph::contiguous(x, DType::kI64).eval();
  const auto values = numbers.as<int64_t>();
  constexpr int64_t kMost = int64_t{1} << 32;
  int64_t length = min_length;
  for (int64_t value : values) {
    if (value < 0 || value >= kMost) {
      fail(ErrorKind::kMalformed, "bincount: cannot count up to ", value);
    }
    length = std::max(length, value + 1);
  }
  Array counts = Array::zeros(DType::kI64, {length});
  const auto count = counts.as_mutable<int64_t>();
  for (int64_t value : values) ++count[static_cast<size_t>(value)];
  return graph::constant(counts);
}

}  // namespace lumen::ops
