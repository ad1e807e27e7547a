#include "lib/graph/views.h"

#include <algorithm>
#include <tuple>

#include "lib/base/error.h"
#include "lib/kernels/copy.h"

namespace lumen::graph {
namespace {

const Node& in(const Node& node) {
  return *node.inputs[0];
}

void require(bool condition, const Node& node, const std::string& why) {
  if (condition) return;
  fail(ErrorKind::kMalformed, node.op->name, " of ", to_string(in(node).shape), ": ", why);
}

// Quantised rows are opaque blocks: only whole-tensor reshapes that keep the last axis make sense.
void require_plain(const Node& node) {
  require(!is_quantized(in(node).dtype), node, "not possible on a quantised tensor");
}

TypedShape infer_reshape(const Node& node) {
  const Shape shape(node.attrs.integers("shape"));
  check_extents(node.op->name, shape);
  require(shape.elements() == in(node).shape.elements(), node,
          str("cannot become ", to_string(shape)));
  if (is_quantized(in(node).dtype)) {
    require(shape.rank() > 0 && shape[-1] == in(node).shape[-1], node,
            "a quantised tensor keeps its last axis");
  }
  return {in(node).dtype, shape};
}

// NumPy's rule: axes of extent 1 aside, both shapes split into runs with equal products; the input
// axes of one run must lie at mergeable strides (stride[k] = extent[k+1] · stride[k+1]).
bool view_reshape(const Node& node, const Shape& from, const Strides& in_strides, Strides& out,
                  int64_t& offset) {
  offset = 0;
  const Shape& to = node.shape;
  out = contiguous_strides(to);
  if (from.elements() == 0) return true;
  Shape old;
  Strides stride{};
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] == 1) continue;
    stride[old.rank()] = in_strides[i];
    old.push_back(from[i]);
  }
  int old_begin = 0, new_begin = 0;
  while (new_begin < to.rank() && old_begin < old.rank()) {
    int old_end = old_begin + 1, new_end = new_begin + 1;
    int64_t old_product = old[old_begin], new_product = to[new_begin];
    while (old_product != new_product) {
      if (new_product < old_product) {
        new_product *= to[new_end++];
      } else {
        old_product *= old[old_end++];
      }
    }
    for (int k = old_begin; k + 1 < old_end; ++k) {
      if (stride[k] != old[k + 1] * stride[k + 1]) return false;
    }
    out[new_end - 1] = stride[old_end - 1];
    for (int k = new_end - 1; k > new_begin; --k) out[k - 1] = out[k] * to[k];
    old_begin = old_end;
    new_begin = new_end;
  }
  return true;
}

TypedShape infer_permute(const Node& node) {
  require_plain(node);
  const auto& order = node.attrs.integers("order");
  const Shape& from = in(node).shape;
  std::vector<bool> seen(from.rank(), false);
  Shape shape;
  require(static_cast<int>(order.size()) == from.rank(), node, "the order names too few axes");
  for (int64_t axis : order) {
    require(axis >= 0 && axis < from.rank() && !seen[axis], node, "not a permutation of the axes");
    seen[axis] = true;
    shape.push_back(from[static_cast<int>(axis)]);
  }
  return {in(node).dtype, shape};
}

bool view_permute(const Node& node, const Shape&, const Strides& in_strides, Strides& out,
                  int64_t& offset) {
  offset = 0;
  const auto& order = node.attrs.integers("order");
  for (size_t i = 0; i < order.size(); ++i) out[i] = in_strides[order[i]];
  return true;
}

TypedShape infer_expand(const Node& node) {
  require_plain(node);
  const Shape to(node.attrs.integers("shape"));
  const Shape& from = in(node).shape;
  bool fits = from.rank() <= to.rank();
  for (int i = 1; fits && i <= from.rank(); ++i) fits = from[-i] == to[-i] || from[-i] == 1;
  require(fits, node, str("cannot be expanded to ", to_string(to)));
  return {in(node).dtype, to};
}

bool view_expand(const Node& node, const Shape& from, const Strides& in_strides, Strides& out,
                 int64_t& offset) {
  offset = 0;
  const Shape& to = node.shape;
  const int added = to.rank() - from.rank();
  for (int i = 0; i < to.rank(); ++i) {
    out[i] = i < added || (from[i - added] == 1 && to[i] != 1) ? 0 : in_strides[i - added];
  }
  return true;
}

TypedShape infer_slice(const Node& node) {
  const auto axis = static_cast<int>(node.attrs.integer("axis"));
  const int64_t begin = node.attrs.integer("begin"), end = node.attrs.integer("end");
  Shape shape = in(node).shape;
  require(begin >= 0 && begin <= end && end <= shape[axis], node,
          str("no elements ", begin, "..", end, " on axis ", axis));
  require(!is_quantized(in(node).dtype) || axis < shape.rank() - 1, node,
          "a quantised tensor keeps its last axis");
  shape[axis] = end - begin;
  return {in(node).dtype, shape};
}

bool view_slice(const Node& node, const Shape&, const Strides& in_strides, Strides& out,
                int64_t& offset) {
  out = in_strides;
  offset = node.attrs.integer("begin") * in_strides[node.attrs.integer("axis")];
  return true;
}

TypedShape infer_pad(const Node& node) {
  require_plain(node);
  const int64_t before = node.attrs.integer("before"), after = node.attrs.integer("after");
  for (int64_t zeros : {before, after}) {
    require(zeros >= 0 && zeros <= Shape::kMaxElements, node, str("no padding of ", zeros));
  }
  Shape shape = in(node).shape;
  shape[static_cast<int>(node.attrs.integer("axis"))] += before + after;
  return {in(node).dtype, shape};
}

void run_pad(const KernelCall& call) {
  const Operand& x = call.inputs[0];
  Shape before(std::vector<int64_t>(static_cast<size_t>(x.shape.rank())));
  before[static_cast<int>(call.node->attrs.integer("axis"))] = call.node->attrs.integer("before");
  kernels::pad(*call.pool, info(x.dtype).block_bytes, x.data, x.shape, before, call.output.shape,
               call.output.data);
}

TypedShape infer_pad_axes(const Node& node) {
  require_plain(node);
  const auto &before = node.attrs.integers("before"), &after = node.attrs.integers("after");
  Shape shape = in(node).shape;
  for (size_t i = 0; i < before.size(); ++i) shape[static_cast<int>(i)] += before[i] + after[i];
  return {in(node).dtype, shape};
}

void run_pad_axes(const KernelCall& call) {
  const Operand& x = call.inputs[0];
  kernels::pad(*call.pool, info(x.dtype).block_bytes, x.data, x.shape,
               Shape(call.node->attrs.integers("before")), call.output.shape, call.output.data);
}

// One axis after the other.
Tensor pad_axes_meaning(const Node& node, std::span<const Tensor> inputs) {
  const auto &before = node.attrs.integers("before"), &after = node.attrs.integers("after");
  Tensor y = inputs[0];
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] + after[i] > 0) y = pad(y, static_cast<int>(i), before[i], after[i]);
  }
  return y;
}

std::vector<OpCase> pad_axes_cases() {
  std::vector<OpCase> cases;
  for (const auto& [shape, before, after] :
       std::vector<std::tuple<Shape, std::vector<int64_t>, std::vector<int64_t>>>{
           {{5}, {2}, {1}},
           {{3, 4}, {1, 0}, {0, 2}},
           {{2, 3, 20}, {0, 1, 1}, {0, 1, 1}},
           {{2, 3, 4, 5}, {1, 0, 2, 0}, {0, 3, 1, 0}},
           {{3, 5, 70}, {1, 0, 20}, {1, 0, 3}},
           {{2, 2, 20000}, {1, 0, 7}, {1, 1, 3}},
           {{2, 0, 3}, {1, 2, 0}, {0, 1, 1}}}) {
    cases.push_back({to_string(shape),
                     {{DType::kF32, shape}},
                     [before = before, after = after](std::span<const Tensor> x) {
                       return record(kPadAxes, {x[0]}, {{"before", before}, {"after", after}});
                     }});
  }
  return cases;
}

TypedShape infer_contiguous(const Node& node) {
  const auto to = static_cast<DType>(node.attrs.integer("dtype"));
  require(to == in(node).dtype || !is_quantized(to) || to == DType::kQ8_0, node,
          str("cannot be converted to ", name(to)));
  return {to, in(node).shape};
}

void run_contiguous(const KernelCall& call) {
  const Operand& x = call.inputs[0];
  kernels::copy(*call.pool, x.dtype, x.data, x.strides, x.shape, call.output.dtype,
                call.output.data);
}

std::vector<int64_t> list(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

std::vector<Tensor> grad_reshape(const GradCall& call) {
  return {reshape(call.dy, call.inputs[0].shape())};
}

std::vector<Tensor> grad_permute(const GradCall& call) {
  const auto& order = call.node.attrs.integers("order");
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return {permute(call.dy, inverse)};
}

std::vector<Tensor> grad_pad(const GradCall& call) {
  const auto axis = static_cast<int>(call.node.attrs.integer("axis"));
  const int64_t before = call.node.attrs.integer("before");
  return {slice(call.dy, axis, before, before + call.inputs[0].dim(axis))};
}

std::vector<Tensor> grad_after(const GradCall& call) {
  return {call.dy, Tensor()};
}

// Rounding is treated as the identity (straight through); integers have no gradient.
std::vector<Tensor> grad_contiguous(const GradCall& call) {
  if (!is_float(call.inputs[0].dtype()) || !is_float(call.node.dtype)) return {Tensor()};
  return {call.dy};
}

}  // namespace

const OpDef kReshape = {.name = "reshape",
                        .kind = OpKind::kView,
                        .infer = infer_reshape,
                        .view = view_reshape,
                        .grad = grad_reshape};
const OpDef kPermute = {.name = "permute",
                        .kind = OpKind::kView,
                        .infer = infer_permute,
                        .view = view_permute,
                        .grad = grad_permute};
// Its gradient is a sum, which is arithmetic: see sum_to in lib/autograd.
const OpDef kExpand = {
    .name = "expand", .kind = OpKind::kView, .infer = infer_expand, .view = view_expand};
// The gradients of all slices of a value are put together at once: see Contributions in
// lib/autograd.
const OpDef kSlice = {
    .name = "slice", .kind = OpKind::kView, .infer = infer_slice, .view = view_slice};
const OpDef kPad = {.name = "pad",
                    .kind = OpKind::kOpaque,
                    .infer = infer_pad,
                    .kernel = run_pad,
                    .grad = grad_pad};
const OpDef kPadAxes = {.name = "pad_axes",
                        .kind = OpKind::kOpaque,
                        .infer = infer_pad_axes,
                        .kernel = run_pad_axes,
                        .meaning = pad_axes_meaning,
                        .cases = pad_axes_cases};
const OpDef kContiguous = {.name = "contiguous",
                           .kind = OpKind::kOpaque,
                           .infer = infer_contiguous,
                           .kernel = run_contiguous,
                           .layout = InputLayout::kAny,
                           .grad = grad_contiguous,
                           .copies = true};

const OpDef kAfter = {.name = "after",
                      .kind = OpKind::kView,
                      .infer = infer_first,
                      .view = view_first,
                      .grad = grad_after};

TypedShape infer_first(const Node& node) {
  return {in(node).dtype, in(node).shape};
}

bool view_first(const Node&, const Shape&, const Strides& in_strides, Strides& out,
                int64_t& offset) {
  out = in_strides;
  offset = 0;
  return true;
}

Tensor after(const Tensor& x, const Tensor& other) {
  return record(kAfter, {x, other});
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined(x, kReshape.name, "x");
  Shape to = shape;
  const auto open = static_cast<int>(std::find(to.begin(), to.end(), -1) - to.begin());
  if (open < to.rank()) {
    to[open] = 1;
    check_extents(kReshape.name, to);
    const int64_t known = to.elements();
    to[open] = known > 0 ? x.shape().elements() / known : 0;
  }
  return record(kReshape, {x}, {{"shape", list(to)}});
}

Tensor permute(const Tensor& x, std::span<const int64_t> order) {
  check_defined(x, kPermute.name, "x");
  std::vector<int64_t> axes;
  for (int64_t axis : order) axes.push_back(axis < 0 ? axis + x.rank() : axis);
  return record(kPermute, {x}, {{"order", std::move(axes)}});
}

Tensor transpose(const Tensor& x, int a, int b) {
  check_defined(x, "transpose", "x");
  std::vector<int64_t> order(x.rank());
  for (int i = 0; i < x.rank(); ++i) order[i] = i;
  std::swap(order[checked_axis("transpose", x.shape(), a)],
            order[checked_axis("transpose", x.shape(), b)]);
  return permute(x, order);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check_defined(x, kExpand.name, "x");
  Shape to = shape;
  for (int i = 1; i <= std::min(x.rank(), to.rank()); ++i) {
    if (to[-i] == -1) to[-i] = x.dim(-i);
  }
  if (x.shape() == to) return x;
  return record(kExpand, {x}, {{"shape", list(to)}});
}

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end) {
  check_defined(x, kSlice.name, "x");
  const int from_start = checked_axis("slice", x.shape(), axis);
  // What unpacking does to a gradient that unpacking made: the padded part comes back as it was,
  // and of another part there are only zeros.
  const Node& node = *x.node();
  if (node.op == &kPad && node.attrs.integer("axis") == from_start && begin <= end) {
    const Tensor inner(node.inputs[0]);
    const int64_t before = node.attrs.integer("before"), after = before + inner.dim(from_start);
    if (begin == before && end == after) return inner;
    const bool zeros =
        (begin >= 0 && end <= before) || (begin >= after && end <= x.dim(from_start));
    if (zeros && !x.requires_grad()) {  // those of a constant would depend on nothing
      Shape shape = x.shape();
      shape[from_start] = end - begin;
      return expand(constant(Array::zeros(x.dtype(), {})), shape);
    }
  }
  return record(kSlice, {x}, {{"axis", int64_t{from_start}}, {"begin", begin}, {"end", end}});
}

Tensor pad(const Tensor& x, int axis, int64_t before, int64_t after) {
  check_defined(x, kPad.name, "x");
  return record(kPad, {x},
                {{"axis", int64_t{checked_axis("pad", x.shape(), axis)}},
                 {"before", before},
                 {"after", after}});
}

std::vector<Tensor> unpack(const Tensor& flat, std::span<const Shape> shapes) {
  check_defined(flat, "unpack", "flat");
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const Shape& shape : shapes) {
    const int64_t end = begin + shape.elements();
    parts.push_back(reshape(slice(flat, 0, begin, end), shape));
    begin = end;
  }
  return parts;
}

Tensor contiguous(const Tensor& x, DType dtype) {
  return record(kContiguous, {x}, {{"dtype", static_cast<int64_t>(dtype)}});
}

Shape broadcast(std::string_view op, const Shape& a, const Shape& b) {
  Shape shape = a.rank() >= b.rank() ? a : b;
  const int common = std::min(a.rank(), b.rank());
  for (int i = 1; i <= common; ++i) {
    if (a[-i] != b[-i] && a[-i] != 1 && b[-i] != 1) {
      fail(ErrorKind::kMalformed, op, ": shapes ", to_string(a), " and ", to_string(b),
           " do not broadcast");
    }
    shape[-i] = a[-i] == 1 ? b[-i] : a[-i];
  }
  return shape;
}

int checked_axis(std::string_view op, const Shape& shape, int axis) {
  const int from_start = axis < 0 ? axis + shape.rank() : axis;
  if (from_start < 0 || from_start >= shape.rank()) {
    fail(ErrorKind::kMalformed, op, ": axis ", axis, " is not an axis of ", to_string(shape));
  }
  return from_start;
}

}  // namespace lumen::graph
