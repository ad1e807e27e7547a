#include "lib/autograd/autocast.h"

#include "lib/base/error.h"
#include "lib/graph/views.h"

namespace lumen::autograd {
namespace {

using graph::Tensor;

thread_local DType low_type = DType::kF32;

Tensor round_input(const graph::OpDef& op, const Tensor& input) {
  if (op.autocast != graph::Autocast::kLow || input.dtype() != DType::kF32) return input;
  return graph::contiguous(graph::contiguous(input, low_type), DType::kF32);
}

}  // namespace

AutocastScope::AutocastScope(DType low) : previous_(low_type) {
  if (low != DType::kBF16 && low != DType::kF16 && low != DType::kF32) {
    fail(ErrorKind::kUnsupported, "mixed precision in ", name(low), "; known: bf16, f16");
  }
  low_type = low;
  previous_hook_ = graph::set_input_hook(low == DType::kF32 ? nullptr : round_input);
}

AutocastScope::~AutocastScope() {
  low_type = previous_;
  graph::set_input_hook(previous_hook_);
}

DType autocast_dtype() {
  return low_type;
}

}  // namespace lumen::autograd
