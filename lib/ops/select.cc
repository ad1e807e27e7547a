// Elements by index.
#include "lib/kernels/select.h"

#include "lib/base/error.h"
#include "lib/kernels/copy.h"
#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {

void require_in_range(ThreadPool& pool, const graph::Node& node, const graph::Operand& index,
                      int64_t limit) {
  int64_t bad = 0;
  const int64_t at = kernels::find_out_of_range(pool, typed(index), index.shape, limit, bad);
  if (at < 0) return;
  fail(ErrorKind::kMalformed, node.op->name, ": index ", bad, " (element ", at, " of ",
       to_string(index.shape), ") is out of range; there are ", limit, " elements");
}

Tensor in_int32(const Tensor& index, const char* caller) {
  if (index.dtype(caller) != DType::kI64) return index;
  return graph::contiguous(clamp(index, int64_t{INT32_MIN}, int64_t{INT32_MAX}), DType::kI32);
}

namespace {

using graph::GradCall;
using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

// index has the rank of x and, but along the axis, at most its extents.
void check_index(const Node& node, const Node& x, const Node& index) {
  if (index.dtype != DType::kI32 && index.dtype != DType::kI64) {
    shape_error(node, "indices must be int32 or int64");
  }
  if (is_quantized(x.dtype)) shape_error(node, "quantised values");
  bool fits = index.shape.rank() == x.shape.rank() && x.shape.rank() > 0;
  for (int i = 0; fits && i < x.shape.rank(); ++i) {
    fits = i == axis_of(node) || index.shape[i] <= x.shape[i];
  }
  if (!fits) {
    shape_error(node, str("the index must have the axes of x and fit into it but for axis ",
                          axis_of(node)));
  }
}

// --- take_along --------------------------------------------------------------------------------

graph::TypedShape infer_take(const Node& node) {
  check_index(node, *node.inputs[0], *node.inputs[1]);
  return {node.inputs[0]->dtype, node.inputs[1]->shape};
}

void run_take(const KernelCall& call) {
  const graph::Operand &x = call.inputs[0], &index = call.inputs[1];
  const int axis = axis_of(*call.node);
  const bool done = kernels::take_along(*call.pool, typed(x), typed(index), x.shape[axis],
                                        index.shape, axis, call.output.data);
  if (!done) require_in_range(*call.pool, *call.node, index, x.shape[axis]);
}

// The part of x that an index of this shape reaches.
Tensor reached(const Tensor& x, const Shape& shape, int axis) {
  Tensor part = x;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis && shape[i] != x.dim(i)) part = graph::slice(part, i, 0, shape[i]);
  }
  return part;
}

// Σⱼ [index = j] · x[j].
Tensor take_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  const Tensor x = reached(in[0], node.shape, axis);
  const Tensor index = graph::contiguous(in[1], DType::kF32);
  Tensor y = constant_like(0, index);
  for (int64_t j = 0; j < x.dim(axis); ++j) {
    const Tensor chosen = equal(index, constant_like(static_cast<double>(j), index));
    y = add(y, mul(chosen, graph::slice(x, axis, j, j + 1)));
  }
  return y;
}

Gradients grad_take(const GradCall& call) {
  const Tensor& x = call.inputs[0];
  const DType dtype = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return {scatter_add(zeros(x.shape(), dtype), axis_of(call.node), call.inputs[1], call.dy),
          Tensor()};
}

std::vector<OpCase> take_cases() {
  std::vector<OpCase> cases;
  cases.push_back(
      {"rows", {f32({4, 6}), i32({2, 6})}, [](Inputs in) { return take_along(in[0], in[1], 0); }});
  cases.push_back({"columns", {f32({3, 4, 5}), i32({3, 9, 2})}, [](Inputs in) {
                     return take_along(in[0], in[1], 1);
                   }});
  cases.push_back(
      {"views", {f32({5, 4}), i32({1, 3})}, [](Inputs in) {
         return take_along(graph::transpose(in[0], 0, 1), graph::expand(in[1], Shape{4, 3}), 1);
       }});
  for (int axis : {0, 1}) {  // of which slices are copied in runs
    cases.push_back({str("slices of axis ", axis), {f32({4, 5, 12}), i32({3})}, [axis](Inputs in) {
                       return index_select(in[0], axis, in[1]);
                     }});
  }
  cases.push_back({"no indices", {f32({4, 6}), i32({0, 6})}, [](Inputs in) {
                     return take_along(in[0], in[1], 0);
                   }});
  return cases;
}

// --- scatter, scatter_add ----------------------------------------------------------------------
// Inputs: x, index, src; src covers index.

graph::TypedShape infer_scatter(const Node& node) {
  const Node &x = *node.inputs[0], &index = *node.inputs[1], &src = *node.inputs[2];
  check_index(node, x, index);
  if (src.dtype != x.dtype) shape_error(node, "x and src must be of one type");
  bool fits = src.shape.rank() == index.shape.rank();
  for (int i = 0; fits && i < src.shape.rank(); ++i) fits = index.shape[i] <= src.shape[i];
  if (!fits) shape_error(node, "src must have an element for every index");
  return {x.dtype, x.shape};
}

template <bool kAdd>
void run_scatter(const KernelCall& call) {
  const graph::Operand &x = call.inputs[0], &index = call.inputs[1], &src = call.inputs[2];
  const int axis = axis_of(*call.node);
  if (x.shape.elements() == 0) {
    return require_in_range(*call.pool, *call.node, index, x.shape[axis]);
  }
  kernels::copy(*call.pool, x.dtype, x.data, x.strides, x.shape, x.dtype, call.output.data);
  const bool done = kernels::scatter(*call.pool, typed(index), typed(src), index.shape, axis, kAdd,
                                     x.shape, call.output.data);
  if (!done) require_in_range(*call.pool, *call.node, index, x.shape[axis]);
}

// One index after the other: where it is j, x[j] takes src or adds it.
template <bool kAdd>
Tensor scatter_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  const Shape& shape = in[1].shape();
  const Tensor index = graph::contiguous(in[1], DType::kF32);
  const Tensor src = graph::slice(reached(in[2], shape, axis), axis, 0, shape[axis]);
  Shape along;
  for (int i = 0; i < node.shape.rank(); ++i) along.push_back(i == axis ? node.shape[axis] : 1);
  const Tensor numbers = graph::reshape(graph::iota(node.shape[axis]), along);
  // Beyond the index's extents nothing is hit: −1 there.
  auto padded = [&](Tensor t, bool is_index) {
    if (is_index) t = add(t, 1.0);
    for (int i = 0; i < node.shape.rank(); ++i) {
      if (i != axis && t.dim(i) < node.shape[i]) t = graph::pad(t, i, 0, node.shape[i] - t.dim(i));
    }
    return is_index ? sub(t, 1.0) : t;
  };
  Tensor y = in[0];
  for (int64_t i = 0; i < shape[axis]; ++i) {
    const Tensor hit = equal(padded(graph::slice(index, axis, i, i + 1), true), numbers);
    const Tensor value = padded(graph::slice(src, axis, i, i + 1), false);
    y = add(kAdd ? y : mul(y, sub(1.0, hit)), mul(hit, value));
  }
  return y;
}

// The gradient of src: dy where it went, 0 beyond the index.
Tensor grad_src(const GradCall& call) {
  const Tensor& src = call.inputs[2];
  Tensor taken = take_along(call.dy, call.inputs[1], axis_of(call.node));
  for (int i = 0; i < src.rank(); ++i) {
    if (taken.dim(i) < src.dim(i)) taken = graph::pad(taken, i, 0, src.dim(i) - taken.dim(i));
  }
  return taken;
}

Gradients grad_scatter_add(const GradCall& call) {
  return {call.dy, Tensor(), grad_src(call)};
}

// What is overwritten has no gradient; exact for src where no index repeats, as in torch.
Gradients grad_scatter(const GradCall& call) {
  const Tensor& index = call.inputs[1];
  const Tensor nothing = zeros(index.shape(), call.dy.dtype());
  return {scatter(call.dy, axis_of(call.node), index, nothing), Tensor(), grad_src(call)};
}

// Indices are the row's own numbers, so that none repeats.
std::vector<OpCase> scatter_cases() {
  std::vector<OpCase> cases;
  cases.push_back({"distinct", {f32({4, 6}), f32({3, 2})}, [](Inputs in) {
                     const Tensor index = graph::expand(unsqueeze(arange(3, 0, -1), -1), {3, 2});
                     return scatter(in[0], 0, index, in[1]);
                   }});
  cases.push_back({"views", {f32({5, 4}), f32({3, 4})}, [](Inputs in) {
                     const Tensor index = graph::expand(arange(0, 3), {4, 3});
                     return scatter(graph::transpose(in[0], 0, 1), 1, index,
                                    graph::transpose(in[1], 0, 1));
                   }});
  return cases;
}

std::vector<OpCase> scatter_add_cases() {
  std::vector<OpCase> cases;
  cases.push_back({"rows", {f32({4, 6}), i32({9, 6}), f32({9, 6})}, [](Inputs in) {
                     return scatter_add(in[0], 0, in[1], in[2]);
                   }});
  cases.push_back({"whole rows", {f32({4, 40}), i32({9, 1}), f32({9, 40})}, [](Inputs in) {
                     return scatter_add(in[0], 0, graph::expand(in[1], {9, 40}), in[2]);
                   }});
  cases.push_back({"one column", {f32({4, 1}), f32({4, 1})}, [](Inputs in) {
                     return scatter_add(in[0], 1, zeros({4, 1}, DType::kI32), in[1]);
                   }});
  cases.push_back({"smaller", {f32({3, 4, 5}), i32({2, 7, 3}), f32({3, 8, 3})}, [](Inputs in) {
                     return scatter_add(in[0], 1, in[1], in[2]);
                   }});
  return cases;
}

}  // namespace

extern const OpDef kTakeAlong, kScatter, kScatterAdd;
const OpDef kTakeAlong = {.name = "take_along",
                          .kind = graph::OpKind::kGather,
                          .infer = infer_take,
                          .kernel = run_take,
                          .layout = graph::InputLayout::kAny,
                          .meaning = take_meaning,
                          .grad = grad_take,
                          .cases = take_cases};
const OpDef kScatter = {.name = "scatter",
                        .infer = infer_scatter,
                        .kernel = run_scatter<false>,
                        .layout = graph::InputLayout::kAny,
                        .meaning = scatter_meaning<false>,
                        .grad = grad_scatter,
                        .cases = scatter_cases};
const OpDef kScatterAdd = {.name = "scatter_add",
                           .infer = infer_scatter,
                           .kernel = run_scatter<true>,
                           .layout = graph::InputLayout::kAny,
                           .meaning = scatter_meaning<true>,
                           .grad = grad_scatter_add,
                           .cases = scatter_add_cases};

Tensor take_along(const Tensor& x, const Tensor& index, int axis) {
  const int at = graph::checked_axis(kTakeAlong.name, x.shape(), axis);
  return record(kTakeAlong, {x, index}, {{"axis", int64_t{at}}});
}

Tensor scatter(const Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  const int at = graph::checked_axis(kScatter.name, x.shape(), axis);
  return record(kScatter, {x, index, src}, {{"axis", int64_t{at}}});
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  const int at = graph::checked_axis(kScatterAdd.name, x.shape(), axis);
  const DType dtype = x.dtype();
  if (!is_narrow(dtype)) {
    return record(kScatterAdd, {x, index, src}, {{"axis", int64_t{at}}});
  }
  const Tensor wide[] = {graph::contiguous(x, DType::kF32), index,
                         graph::contiguous(src, DType::kF32)};
  return graph::contiguous(record(kScatterAdd, wide, {{"axis", int64_t{at}}}), dtype);
}

Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
  const int at = graph::checked_axis("index_select", x.shape(), axis);
  if (index.rank() != 1) {
    fail(ErrorKind::kMalformed, "index_select: the index must be [n], not ",
         to_string(index.shape()));
  }
  Shape along, shape = x.shape();
  for (int i = 0; i < x.rank(); ++i) along.push_back(i == at ? index.dim(0) : 1);
  shape[at] = index.dim(0);
  return take_along(x, graph::expand(graph::reshape(index, along), shape), at);
}

Tensor one_hot(const Tensor& ids, int64_t n) {
  if (n < 0) fail(ErrorKind::kMalformed, "one_hot: there cannot be ", n, " classes");
  Shape shape = ids.shape();
  shape.push_back(n);
  const Tensor index = unsqueeze(ids, -1);
  return scatter(zeros(shape, DType::kI64), -1, index, ones(index.shape(), DType::kI64));
}

}  // namespace lumen::ops
