// States that are changed in place: running averages and counters.
#include <algorithm>

#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kLerpState, kAddState;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using graph::reshape;

// --- lerp_state --------------------------------------------------------------------------------

graph::TypedShape infer_lerp_state(const Node& node) {
  const Node &state = *node.inputs[0], &value = *node.inputs[1], &weight = *node.inputs[2];
  if (state.dtype != DType::kF32 || value.dtype != DType::kF32 || weight.dtype != DType::kF32 ||
      !(state.shape == value.shape) || weight.shape.elements() != 1) {
    shape_error(node, "needs a float32 state, a value of its shape and one weight");
  }
  return {DType::kF32, state.shape};
}

void run_lerp_state(const KernelCall& call) {
  float* state = call.output.as<float>();
  const float* value = call.inputs[1].as<const float>();
  const float weight = *call.inputs[2].as<const float>();
  for (int64_t i = 0; i < call.output.shape.elements(); ++i) {
    state[i] = (1 - weight) * state[i] + weight * value[i];
  }
}

Tensor lerp_state_meaning(const Node&, Inputs in) {
  const Tensor weight = reshape(in[2], {});
  return add(mul(sub(1.0, weight), in[0]), mul(weight, in[1]));
}

// A state with the values of x, whose own memory stays as it is: the meaning is computed from it.
Tensor state_like(const Tensor& x) {
  Array copy = Array::zeros(x.dtype(), x.shape());
  std::copy_n(x.eval().data(), copy.bytes(), copy.mutable_data());
  return graph::state(copy, "running");
}

std::vector<OpCase> lerp_state_cases() {
  return {{"vector", {f32({7}), f32({7}), f32({})}, [](Inputs in) {
             return lerp_state(state_like(in[0]), in[1], in[2]);
           }}};
}

// --- add_state ---------------------------------------------------------------------------------

graph::TypedShape infer_add_state(const Node& node) {
  const Node &state = *node.inputs[0], &value = *node.inputs[1];
  if (state.dtype != DType::kI64 || value.dtype != DType::kI64 || !(state.shape == value.shape)) {
    shape_error(node, "needs an int64 state and a value of its type and shape");
  }
  return {DType::kI64, state.shape};
}

void run_add_state(const KernelCall& call) {
  int64_t* state = call.output.as<int64_t>();
  const int64_t* value = call.inputs[1].as<const int64_t>();
  for (int64_t i = 0; i < call.output.shape.elements(); ++i) state[i] += value[i];
}

Tensor add_state_meaning(const Node&, Inputs in) {
  return add(in[0], in[1]);
}

std::vector<OpCase> add_state_cases() {
  auto case_of = [](const char* label, const Shape& shape) {
    const graph::TypedShape integers = {DType::kI64, shape};
    return OpCase{
        label, {integers, integers}, [](Inputs in) { return add_state(state_like(in[0]), in[1]); }};
  };
  return {case_of("scalar", {}), case_of("vector", {7})};
}

}  // namespace

const OpDef kLerpState = {.name = "lerp_state",
                          .infer = infer_lerp_state,
                          .kernel = run_lerp_state,
                          .overwrites = 0,
                          .meaning = lerp_state_meaning,
                          .grad = graph::no_gradient,
                          .cases = lerp_state_cases};
const OpDef kAddState = {.name = "add_state",
                         .infer = infer_add_state,
                         .kernel = run_add_state,
                         .overwrites = 0,
                         .meaning = add_state_meaning,
                         .grad = graph::no_gradient,
                         .cases = add_state_cases};

Tensor lerp_state(const Tensor& state, const Tensor& value, const Tensor& weight) {
  return record(kLerpState, {state, value, weight});
}

Tensor add_state(const Tensor& state, const Tensor& value) {
  return record(kAddState, {state, value});
}

}  // namespace lumen::ops
