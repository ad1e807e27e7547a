// Rows by index, and joining.
#include <algorithm>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/round_up.h"
#include "lib/graph/mixed_precision.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/copy.h"
#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/lookup_product.h"

namespace lumen::ops {
namespace {

using graph::GradCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

// --- embedding ---------------------------------------------------------------------------------

graph::TypedShape infer_embedding(const Node& node) {
  const Node &table = *node.inputs[0], &ids = *node.inputs[1];
  if (table.shape.rank() != 2) shape_error(node, "the table must be [rows, dim]");
  if (ids.dtype != DType::kI32) shape_error(node, "ids must be int32 or int64");
  Shape shape = ids.shape;
  shape.push_back(table.shape[1]);
  return {graph::stored_type(node), shape};
}

graph::Bf16Input embedding_bf16_input(const Node&, size_t i) {
  return i == 0 ? graph::Bf16Input::kRead : graph::Bf16Input::kNo;
}

bool embedding_gives_bf16(const Node& node) {
  return node.inputs[0]->dtype == DType::kBF16;
}

void run_embedding(const graph::KernelCall& call) {
  const graph::Operand &table = call.inputs[0], &ids = call.inputs[1];
  require_in_range(*call.pool, *call.node, ids, table.shape[0]);
  kernels::gather_rows(*call.pool, table.dtype, table.data, table.shape[1], ids.as<const int32_t>(),
                       ids.shape.elements(), call.output.dtype, call.output.data);
}

// Row i is 1 at ids[i]: [count, rows].
Tensor chosen_rows(const Tensor& ids, int64_t rows) {
  const int64_t count = ids.shape().elements();
  const Tensor column = graph::reshape(graph::contiguous(ids, DType::kF32), {count, 1});
  return equal(column, graph::iota(rows));
}

Tensor embedding_meaning(const Node& node, Inputs in) {
  const Tensor table = graph::contiguous(in[0], DType::kF32);
  return graph::reshape(matmul(chosen_rows(in[1], table.dim(0)), table), node.shape);
}

Gradients grad_embedding(const GradCall& call) {
  const Tensor dy = as_stored(call.dy, DType::kBF16);
  return {embedding_grad(dy, call.inputs[1], call.inputs[0].dim(0)), Tensor()};
}

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    cases.push_back({std::string(name(dtype)), {{dtype, {5, 64}}, i32({2, 7})}, [](Inputs in) {
                       return embedding(in[0], in[1]);
                     }});
  }
  cases.push_back(
      {"no ids", {f32({5, 3}), i32({0})}, [](Inputs in) { return embedding(in[0], in[1]); }});
  return cases;
}

// --- embedding_grad ----------------------------------------------------------------------------

graph::TypedShape infer_embedding_grad(const Node& node) {
  const Node &dy = *node.inputs[0], &ids = *node.inputs[1];
  if ((dy.dtype != DType::kF32 && dy.dtype != DType::kBF16) || ids.dtype != DType::kI32) {
    shape_error(node, "needs float32 or bfloat16 and int32 or int64 ids");
  }
  bool fits = dy.shape.rank() == ids.shape.rank() + 1;
  for (int i = 0; fits && i < ids.shape.rank(); ++i) fits = dy.shape[i] == ids.shape[i];
  if (!fits) shape_error(node, "there must be one row per id");
  return {DType::kF32, {node.attrs.integer("rows"), dy.shape[-1]}};
}

graph::Bf16Input embedding_grad_bf16_input(const Node&, size_t i) {
  return i == 0 ? graph::Bf16Input::kSummed : graph::Bf16Input::kNo;
}

void run_embedding_grad(const graph::KernelCall& call) {
  const graph::Operand &dy = call.inputs[0], &ids = call.inputs[1];
  require_in_range(*call.pool, *call.node, ids, call.output.shape[0]);
  kernels::scatter_rows(*call.pool, dy.dtype, dy.data, dy.shape[-1], ids.as<const int32_t>(),
                        ids.shape.elements(), call.output.shape[0], call.output.as<float>(),
                        call.epilogue, call.workspace);
}

size_t embedding_grad_workspace(const Node& node, int) {
  const int64_t ids = node.inputs[1]->shape.elements();
  return node.epilogue ? kernels::scatter_rows_workspace_bytes(ids, node.shape[0]) : 0;
}

Tensor embedding_grad_meaning(const Node& node, Inputs in) {
  const Tensor chosen = chosen_rows(in[1], node.shape[0]);
  const int64_t count = chosen.dim(0), dim = node.shape[1];
  const Tensor dy = graph::contiguous(in[0], DType::kF32);
  return matmul(graph::transpose(chosen, 0, 1), graph::reshape(dy, {count, dim}));
}

std::vector<OpCase> embedding_grad_cases() {
  std::vector<OpCase> cases;
  auto build = [](Inputs in) { return embedding_grad(in[0], in[1], 5); };
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    cases.push_back(
        {str("repeated ids, ", name(dtype)), {{dtype, {3, 40, 17}}, i32({3, 40})}, build});
  }
  cases.push_back({"no ids", {f32({0, 3}), i32({0})}, build});
  cases.push_back({"added to what is there", {f32({3, 7}), i32({3}), f32({5, 7})}, [](Inputs in) {
                     return sub(in[2], embedding_grad(in[0], in[1], 5));
                   }});
  return cases;
}

// --- concat ------------------------------------------------------------------------------------

graph::TypedShape infer_concat(const Node& node) {
  const Node& first = *node.inputs[0];
  const int axis = axis_of(node);
  Shape shape = first.shape;
  shape[axis] = 0;
  for (const graph::NodePtr& part : node.inputs) {
    // What is stored in bfloat16 may have parts that are and parts that are not.
    const bool same =
        part->dtype == first.dtype || (graph::stored_type(node) == DType::kBF16 &&
                                       (part->dtype == DType::kF32 || part->dtype == DType::kBF16));
    bool fits = same && part->shape.rank() == shape.rank();
    for (int i = 0; fits && i < shape.rank(); ++i) fits = i == axis || part->shape[i] == shape[i];
    if (!fits) shape_error(node, str("the parts must be alike but for axis ", axis));
    shape[axis] += part->shape[axis];
  }
  if (is_quantized(first.dtype)) shape_error(node, "quantised values");
  return {first.dtype == DType::kF32 ? graph::stored_type(node) : first.dtype, shape};
}

// A part of a concatenation along `axis` as runs of numbers that lie together, `per_index` of them
// for each index of the axes before `axis`.
class Runs {
 public:
  Runs(const graph::Operand& part, int axis) : part_(part), split_(part.shape.rank() - 1) {
    length_ = part.shape[split_];
    for (; split_ > axis && part.strides[split_ - 1] == length_; --split_) {
      length_ *= part.shape[split_ - 1];
    }
    for (int i = axis; i < split_; ++i) per_index_ *= part.shape[i];
  }
  int64_t per_index() const { return length_ > 0 ? per_index_ : 0; }
  int64_t length() const { return length_; }
  const std::byte* at(int64_t run) const {
    int64_t offset = 0;
    for (int i = split_ - 1; i >= 0; --i) {
      offset += run % part_.shape[i] * part_.strides[i];
      run /= part_.shape[i];
    }
    return part_.data + row_bytes(part_.dtype, offset);
  }

 private:
  const graph::Operand& part_;
  int split_;  // the first axis of a run
  int64_t length_, per_index_ = 1;
};

// Writes bytes [begin, end) of what the parts are together for index `outer` of the axes before.
void concat_piece(const graph::KernelCall& call, int axis, int64_t outer, int64_t begin,
                  int64_t end, std::byte* to) {
  const DType dtype = call.output.dtype;
  const int64_t size = info(dtype).block_bytes;
  int64_t first = 0;  // where the next run belongs
  for (const graph::Operand& part : call.inputs) {
    const Runs runs(part, axis);
    const int64_t bytes = row_bytes(dtype, runs.length()), all = bytes * runs.per_index();
    const int64_t skipped =
        all > 0 ? std::clamp<int64_t>((begin - first) / bytes, 0, runs.per_index()) : 0;
    for (int64_t run = skipped; run < runs.per_index(); ++run) {
      const int64_t at = first + run * bytes;
      const int64_t from = std::max(begin, at), until = std::min(end, at + bytes);
      if (from >= until) break;
      const std::byte* const source = runs.at(outer * runs.per_index() + run);
      if (part.dtype == dtype) {
        kernels::copy_bytes(source + from - at, until - from, to + from - begin);
      } else {
        kernels::from_float(dtype, reinterpret_cast<const float*>(source) + (from - at) / size,
                            to + from - begin, (until - from) / size);
      }
    }
    first += all;
  }
}

// y[i · to_step] = x[i · from_step] for n runs of kBytes; steps in bytes.
template <size_t kBytes>
void copy_runs(const std::byte* x, int64_t from_step, int64_t n, std::byte* y, int64_t to_step) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(y + i * to_step, x + i * from_step, kBytes);
}

// Parts of one element each, of which those of one input lie together: as many at once as stay in
// L1, one input after the other. False: they are not.
bool concat_elements(const graph::KernelCall& call, int axis) {
  const int64_t size = info(call.output.dtype).block_bytes;
  const auto count = static_cast<int64_t>(call.inputs.size());
  for (const graph::Operand& part : call.inputs) {
    if (part.dtype != call.output.dtype || part.shape[axis] != 1) return false;
    const Strides wanted = contiguous_strides(part.shape);
    for (int i = 0; i < part.shape.rank(); ++i) {
      if (part.shape[i] != 1 && part.strides[i] != wanted[static_cast<size_t>(i)]) return false;
    }
  }
  const auto copy = size == 1   ? copy_runs<1>
                    : size == 2 ? copy_runs<2>
                    : size == 4 ? copy_runs<4>
                                : copy_runs<8>;
  constexpr int64_t kAtOnce = 2048, kGrain = 8192;
  const int64_t all = call.output.shape.elements() / count;
  call.pool->parallel_for(all, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; at += kAtOnce) {
      for (int64_t p = 0; p < count; ++p) {
        copy(call.inputs[static_cast<size_t>(p)].data + at * size, size,
             std::min(kAtOnce, end - at), call.output.data + (at * count + p) * size, count * size);
      }
    }
  });
  return true;
}

void run_concat(const graph::KernelCall& call) {
  const int axis = axis_of(*call.node);
  const Shape& shape = call.output.shape;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  if (inner == 1 && concat_elements(call, axis)) return;
  const int64_t row = row_bytes(call.output.dtype, shape[axis] * inner);
  // A task is a piece of a row, or so many short rows.
  constexpr int64_t kPiece = 64 << 10;
  const int64_t pieces = divide_up(row, kPiece);
  const int64_t grain = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, row));
  call.pool->parallel_for(outer * pieces, grain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i % pieces * kPiece;
      concat_piece(call, axis, i / pieces, begin, std::min(row, begin + kPiece),
                   call.output.data + i / pieces * row + begin);
    }
  });
}

// Each part between zeros; their sum. Approximate for −0, which the zeros make +0.
Tensor concat_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  Tensor out;
  int64_t before = 0;
  for (const Tensor& part : in) {
    const int64_t after = node.shape[axis] - before - part.dim(axis);
    const Tensor padded = before + after > 0 ? graph::pad(part, axis, before, after) : part;
    out = out.defined() ? add(out, padded) : padded;
    before += part.dim(axis);
  }
  return out;
}

Gradients grad_concat(const GradCall& call) {
  const int axis = axis_of(call.node);
  Gradients gradients;
  int64_t begin = 0;
  for (const Tensor& part : call.inputs) {
    gradients.push_back(graph::slice(call.dy, axis, begin, begin + part.dim(axis)));
    begin += part.dim(axis);
  }
  return gradients;
}

std::vector<OpCase> concat_cases() {
  std::vector<OpCase> cases;
  for (int axis : {0, 1, 2}) {
    Shape second = {3, 4, 5};
    second[axis] = 2;
    Shape third = second;
    third[axis] = 0;
    cases.push_back({str("axis ", axis),
                     {f32({3, 4, 5}), {DType::kF32, second}, {DType::kF32, third}},
                     [axis](Inputs in) { return concat(in, axis); }});
  }
  for (int axis : {0, 1}) {  // more than a task's piece
    cases.push_back({str("long, axis ", axis), {f32({3, 9000}), f32({3, 9000})}, [axis](Inputs in) {
                       return concat(in, axis);
                     }});
  }
  for (int64_t n : {1, 5, 9000}) {  // an element of each beside those of the others
    cases.push_back({str("elements, ", n), {f32({2, n}), f32({2, n}), f32({2, n})}, [](Inputs in) {
                       return stack(in, -1);
                     }});
  }
  cases.push_back(
      {"slices", {f32({3, 4, 5}), f32({3, 6, 4})}, [](Inputs in) {
         const Tensor parts[] = {graph::slice(in[0], 2, 1, 5), graph::slice(in[1], 1, 2, 5)};
         return concat(parts, 1);
       }});
  cases.push_back(
      {"views", {f32({4, 3}), f32({3, 1})}, [](Inputs in) {
         const Tensor parts[] = {graph::transpose(in[0], 0, 1), graph::expand(in[1], Shape{3, 2})};
         return concat(parts, -1);
       }});
  return cases;
}

}  // namespace

extern const OpDef kEmbedding, kEmbeddingGrad, kConcat;
const OpDef kEmbedding = {.name = "embedding",
                          .kind = graph::OpKind::kGather,
                          .infer = infer_embedding,
                          .kernel = run_embedding,
                          .meaning = embedding_meaning,
                          .grad = grad_embedding,
                          .bf16_input = embedding_bf16_input,
                          .gives_bf16 = embedding_gives_bf16,
                          .cases = embedding_cases};
const OpDef kEmbeddingGrad = {.name = "embedding_grad",
                              .infer = infer_embedding_grad,
                              .kernel = run_embedding_grad,
                              .workspace = embedding_grad_workspace,
                              .takes_epilogue = true,
                              .meaning = embedding_grad_meaning,
                              .grad = [](const GradCall& call) -> Gradients {
                                return {embedding(call.dy, call.inputs[1]), Tensor()};
                              },
                              .bf16_input = embedding_grad_bf16_input,
                              .reassociate = embedding_grad_of_product,
                              .cases = embedding_grad_cases};
const OpDef kConcat = {.name = "concat",
                       .infer = infer_concat,
                       .kernel = run_concat,
                       .layout = graph::InputLayout::kInner,
                       .meaning = concat_meaning,
                       .grad = grad_concat,
                       .bf16_input = [](const Node&, size_t) { return graph::Bf16Input::kJoined; },
                       .gives_bf16 = [](const Node& node) { return node.dtype == DType::kF32; },
                       .cases = concat_cases};

Tensor embedding(const Tensor& table, const Tensor& ids) {
  graph::check_defined(table, "embedding", "table");
  if (table.dtype() == DType::kF64 && table.rank() == 2) {
    graph::check_defined(ids, kEmbedding.name, "ids");
    Shape shape = ids.shape();
    shape.push_back(table.dim(1));
    const Tensor flat = graph::reshape(ids, {ids.shape().elements()});
    return graph::reshape(index_select(table, 0, flat), shape);
  }
  return record(kEmbedding, {table, in_int32(ids)});
}

Tensor embedding_grad(const Tensor& dy, const Tensor& ids, int64_t rows) {
  return record(kEmbeddingGrad, {dy, in_int32(ids)}, {{"rows", rows}});
}

Tensor concat(std::span<const Tensor> parts, int axis) {
  if (parts.empty()) fail(ErrorKind::kMalformed, "concat: nothing to join");
  graph::check_defined(parts, kConcat.name);
  DType dtype = parts[0].dtype();
  for (const Tensor& part : parts) {
    if (!is_quantized(dtype) && !is_quantized(part.dtype())) dtype = promote(dtype, part.dtype());
  }
  std::vector<Tensor> typed;
  const Tensor* nothing = nullptr;
  for (const Tensor& part : parts) {
    if (part.shape() == Shape{0}) {
      nothing = &part;
      continue;
    }
    const bool same = part.dtype() == dtype || is_quantized(part.dtype());
    typed.push_back(same ? part : graph::contiguous(part, dtype));
  }
  if (typed.empty()) {
    return nothing->dtype() == dtype ? *nothing : graph::contiguous(*nothing, dtype);
  }
  const int at = graph::checked_axis(kConcat.name, typed[0].shape(), axis);
  if (typed.size() == 1) return typed[0];
  return record(kConcat, typed, {{"axis", int64_t{at}}});
}

Tensor stack(std::span<const Tensor> parts, int axis) {
  std::vector<Tensor> wide;
  for (const Tensor& part : parts) wide.push_back(unsqueeze(part, axis));
  return concat(wide, axis);
}

}  // namespace lumen::ops
