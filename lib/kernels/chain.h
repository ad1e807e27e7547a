// Chains of element-wise operations of an instruction or two: what passes from a step to the next
// stays in vector registers. Compiled for every Highway target, dispatched at run time.
#pragma once

#include <cstdint>
#include <span>

#include "lib/kernels/typed.h"

namespace lumen::kernels {

// One operation of a chain: registers it reads, as many as it has arguments (kBefore: the result of
// the step before), and which of the chain's results it is (kBefore: none; only the next step reads
// it).
struct ChainStep {
  static constexpr int8_t kBefore = -1;
  TypedOp op = TypedOp::kNone;  // with the bits of the block function of that name
  int8_t arguments[kMaxArguments] = {};
  int8_t result = kBefore;
};

// Where the result of the last step of a chain of float goes instead, as a narrow float: rounded
// or, if `is_exact` says that it is numbers of bfloat16, cut.
struct NarrowResult {
  uint16_t* to = nullptr;  // null: nowhere
  bool is_half = false;    // float16, not bfloat16
  bool is_exact = false;
};

// The steps for n numbers, a few vectors after the other. registers[r] and results[i] are
// contiguous, unaligned; a result may be exactly one of the registers. Of register r only the first
// number is read, in place of all n, where bit r of `singles` is set, for r < 32. The first step
// reads no kBefore. In double there is no kToBf16. noexcept.
void run_chain(std::span<const ChainStep> steps, const float* const* registers,
               float* const* results, int64_t n, const NarrowResult& last = {},
               uint32_t singles = 0);
void run_chain(std::span<const ChainStep> steps, const double* const* registers,
               double* const* results, int64_t n, uint32_t singles = 0);

}  // namespace lumen::kernels
