// The gradients of the selective scan (selective_scan.h).
#pragma once

#include "lib/kernels/selective_scan.h"

namespace lumen::kernels {

// `forward` as of selective_scan, without states before (they are zeros) and without results. dout
// [batch, tokens, channels] and dafter [batch, state, channels] are the gradients of its results;
// the others, of the inputs, are contiguous.
struct SelectiveScanBackwardArgs {
  SelectiveScanArgs forward;
  const float *dout, *dafter;
  float *du, *dtime;     // [batch, tokens, channels]
  float* drates;         // [state, channels]
  float *db, *dc;        // [batch, tokens, state]
  std::byte* workspace;  // selective_scan_backward_workspace_bytes(...), 64-byte aligned
};

size_t selective_scan_backward_workspace_bytes(int64_t batch, int64_t tokens, int64_t channels,
                                               int64_t state, int threads);

// In float32. Threads divide groups of channels; each goes through its strips block by block of
// √tokens tokens, from the last to the first, and makes the states of a block again from the one
// before it, so that memory grows with √tokens. What groups bring to db and dc is added up in their
// order: the result does not depend on the number of threads. Does not allocate. noexcept.
void selective_scan_backward(ThreadPool& pool, const SelectiveScanBackwardArgs& args);

}  // namespace lumen::kernels
