// Writing to the cache of keys and values.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/kernels/convert.h"
#include "lib/ops/attention_inputs.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kKvAppend;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::Operand;
using graph::record;
using graph::reshape;
using Inputs = std::span<const Tensor>;

graph::TypedShape infer_kv_append(const Node& node) {
  const Node &cache = *node.inputs[0], &x = *node.inputs[1];
  const bool fits = cache.shape.rank() == 4 && x.shape.rank() == 4 && x.dtype == DType::kF32 &&
                    cache.shape[1] == x.shape[2] && cache.shape[3] == x.shape[3] &&
                    x.shape[1] <= cache.shape[2];
  if (!fits) {
    shape_error(node, "needs [batch, heads, context, dim] and [batch, tokens, heads, dim]");
  }
  require_position(node, *node.inputs[2], x.shape[0]);
  require_cache_rows(node, 3, cache.shape[0], x.shape[0]);
  return {cache.dtype, cache.shape};
}

void run_kv_append(const KernelCall& call) {
  const Operand &cache = call.output, &x = call.inputs[1], &position = call.inputs[2];
  const Operand* slots = call.inputs.size() > 3 ? &call.inputs[3] : nullptr;
  if (slots) check_slots(*slots, cache.shape[0]);
  const int64_t tokens = x.shape[1], heads = x.shape[2], dim = x.shape[3];
  const int64_t row = row_bytes(cache.dtype, dim);
  auto append = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / heads, head = i % heads;
      const int64_t start = position.as<const int32_t>()[position.shape[0] == 1 ? 0 : batch];
      LUMEN_CHECK(start >= 0 && start + tokens <= cache.shape[2]);
      const int64_t slot = slots ? slots->as<const int32_t>()[batch] : batch;
      std::byte* to = cache.data + ((slot * heads + head) * cache.shape[2] + start) * row;
      for (int64_t t = 0; t < tokens; ++t) {
        const float* from =
            x.as<const float>() + batch * x.strides[0] + t * x.strides[1] + head * x.strides[2];
        kernels::from_float(cache.dtype, from, to + t * row, dim);
      }
    }
  };
  // A few rows are not worth waking a thread for.
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, tokens * dim));
  call.pool->parallel_for(x.shape[0] * heads, grain, append);
}

// Old rows are kept where no new one goes: cache·(1 − Σ one_hot) + one_hot · x, for the positions
// of each row and then, if there are slots, for the rows of the cache.
Tensor kv_append_meaning(const Node& node, Inputs in) {
  const int64_t context = node.shape[2], tokens = in[1].dim(1), batch = in[1].dim(0);
  const Tensor at = positions_from(in[2], tokens);
  const Tensor one_hot =
      equal(reshape(graph::iota(context), {context, 1}),
            reshape(at, {at.dim(0), 1, 1, tokens}));  // [1 or batch, 1, context, tokens]
  const Tensor added = matmul(one_hot, graph::permute(in[1], {0, 2, 1, 3}));
  const Tensor keep = sub(graph::scalar(1), sum(one_hot, -1));  // [1 or batch, 1, context, 1]
  const Tensor cache = graph::contiguous(in[0], DType::kF32);
  if (in.size() == 3) return graph::contiguous(add(mul(cache, keep), added), node.dtype);
  const Tensor rows = add(mul(cache_rows(cache, in[3]), keep), added);
  const Tensor slots = reshape(graph::contiguous(in[3], DType::kF32), {1, batch});
  const Tensor chosen = equal(reshape(graph::iota(node.shape[0]), {node.shape[0], 1}), slots);
  const Tensor kept = sub(graph::scalar(1), sum(chosen, 1));  // [slots, 1]
  const Tensor flat_cache = reshape(cache, {node.shape[0], -1});
  const Tensor moved = matmul(chosen, reshape(rows, {batch, -1}));
  return graph::contiguous(reshape(add(mul(flat_cache, kept), moved), node.shape), node.dtype);
}

// The old memory stays as it is: the meaning is computed from it.
Tensor copied_state(const Tensor& memory) {
  Array copy = Array::zeros(memory.dtype(), memory.shape());
  std::copy_n(memory.eval().data(), copy.bytes(), copy.mutable_data());
  return graph::state(copy, "cache");
}

std::vector<OpCase> kv_append_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    cases.push_back({std::string(name(dtype)),
                     {{dtype, {2, 3, 9, 32}}, f32({2, 4, 3, 32}), i32({1})},
                     [](Inputs in) { return kv_append(copied_state(in[0]), in[1], in[2]); },
                     -2,
                     2,
                     dtype == DType::kQ8_0 ? 1e-2 : 1e-6});
  }
  cases.push_back({"a position per row",
                   {f32({2, 3, 9, 8}), f32({2, 4, 3, 8})},
                   [](Inputs in) {
                     const Tensor at = int_pair(5, 0);
                     return kv_append(copied_state(in[0]), in[1], at);
                   },
                   -2,
                   2,
                   1e-6});
  cases.push_back({"slots",
                   {f32({4, 3, 9, 8}), f32({2, 2, 3, 8})},
                   [](Inputs in) {
                     const Tensor at = int_pair(5, 0);
                     const Tensor slots = int_pair(3, 1);
                     return kv_append(copied_state(in[0]), in[1], at, slots);
                   },
                   -2,
                   2,
                   1e-6});
  return cases;
}

}  // namespace

const OpDef kKvAppend = {.name = "kv_append",
                         .infer = infer_kv_append,
                         .kernel = run_kv_append,
                         .layout = graph::InputLayout::kInner,
                         .overwrites = 0,
                         .meaning = kv_append_meaning,
                         .cases = kv_append_cases};

Tensor kv_append(const Tensor& cache, const Tensor& x, const Tensor& position,
                 const Tensor& slots) {
  std::vector<Tensor> inputs = {cache, x, position};
  if (slots.defined()) inputs.push_back(slots);
  return record(kKvAppend, inputs);
}

}  // namespace lumen::ops
