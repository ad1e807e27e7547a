// Giving a state a new value.
#include <algorithm>

#include "lib/kernels/convert.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {
namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using Inputs = std::span<const Tensor>;

graph::TypedShape infer_assign(const Node& node) {
  const Node &state = *node.inputs[0], &value = *node.inputs[1];
  if (!(state.shape == value.shape) || value.dtype != DType::kF32) {
    shape_error(node, "needs a float32 value of the state's shape");
  }
  return {state.dtype, state.shape};
}

void run_assign(const KernelCall& call) {
  const auto* value = call.inputs[1].as<const float>();
  const DType dtype = call.output.dtype;
  const int64_t block = info(dtype).block_elements, grain = std::max<int64_t>(block, 4096);
  call.pool->parallel_for(
      call.output.shape.elements(), grain, [&](int64_t begin, int64_t end, int) {
        kernels::from_float(dtype, value + begin, call.output.data + row_bytes(dtype, begin),
                            end - begin);
      });
}

Tensor assign_meaning(const Node& node, Inputs in) {
  return graph::contiguous(in[1], node.dtype);
}

std::vector<OpCase> assign_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t n : {0, 1, 5000}) {
      cases.push_back({str(name(dtype), " n=", n),
                       {{dtype, {n}}, f32({n})},
                       [](Inputs in) {
                         const Array memory = Array::zeros(in[0].dtype(), in[0].shape());
                         return assign(graph::state(memory, "state"), in[1]);
                       },
                       -2,
                       2,
                       0});
    }
  }
  return cases;
}

}  // namespace

extern const OpDef kAssign;
const OpDef kAssign = {.name = "assign",
                       .infer = infer_assign,
                       .kernel = run_assign,
                       .overwrites = 0,
                       .meaning = assign_meaning,
                       .grad = graph::no_gradient,
                       .cases = assign_cases};

Tensor assign(const Tensor& state, const Tensor& value) {
  return record(kAssign, {state, value});
}

}  // namespace lumen::ops
