// The recurrence of selective state spaces (Gu & Dao 2023, "Mamba"): each channel keeps a few
// numbers, which all decay at rates of their own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// Rows [batch, tokens, numbers]: strides in elements, the numbers of a row contiguous.
struct ScanRows {
  const float* data;
  int64_t batch_stride, token_stride;

  const float* at(int64_t batch, int64_t token) const {
    return data + batch * batch_stride + token * token_stride;
  }
};

// For every batch row and channel d, token after token, with s [state] what it keeps:
//   s'_n = exp(time_d · rates_nd) · s_n + u_d · b_n, out_d = Σ_n c_n s'_n.
// time · rates is at most 0.
struct SelectiveScanArgs {
  int64_t batch, tokens, channels, state;
  ScanRows u, time;    // of `channels` numbers
  ScanRows b, c;       // of `state` numbers
  const float* rates;  // [state, channels] contiguous
  // The states before, [rows, state, channels]: of batch row b the row slots[b], or b if slots is
  // null, unless position[b · position_stride] is 0: then zeros, whatever is there. Null: zeros.
  const float* before = nullptr;
  const int32_t* position = nullptr;
  int64_t position_stride = 0;  // 1, or 0: the same for all
  const int32_t* slots = nullptr;
  float* out = nullptr;    // [batch, tokens, channels] contiguous
  float* after = nullptr;  // the last states [batch, state, channels] contiguous
  std::byte* workspace;    // selective_scan_workspace_bytes(...), 64-byte aligned, any content
};

size_t selective_scan_workspace_bytes(int64_t state, int threads);

// In float32. Threads divide the channels, which do not depend on each other: a strip of them stays
// in the first cache through all tokens. A token's result depends neither on the number of threads
// nor on how many tokens come with it. Does not allocate. noexcept.
void selective_scan(ThreadPool& pool, const SelectiveScanArgs& args);

}  // namespace lumen::kernels
