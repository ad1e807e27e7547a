// Mixed precision: products see numbers of a low precision, everything else float32.
#pragma once

#include "lib/graph/tensor.h"

namespace lumen::autograd {

// While it lives, operations recorded on this thread whose OpDef::autocast is kLow get their
// float32 inputs rounded to `low` (bf16 or f16) and widened again: what a product in that type with
// float32 accumulation gives. The others compute in float32 as always, and so do parameters, whose
// gradients pass through the rounding unchanged. kF32: off, inside another scope. Throws
// Error(kUnsupported) for another type.
class AutocastScope {
 public:
  explicit AutocastScope(DType low);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  DType previous_;
  graph::InputHook previous_hook_;
};

// The low type of this thread's innermost scope; kF32 without one.
DType autocast_dtype();

}  // namespace lumen::autograd
