// Recurrent layers over whole sequences: Elman, LSTM (Hochreiter & Schmidhuber 1997) and GRU (Cho
// et al. 2014), forward and backward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// What a cell does with a = x-part + b and r = W h + b of its gates; σ is the logistic function.
//   kTanh, kRelu  h' = tanh(a + r) or max(0, a + r)
//   kLstm         i f g o: c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c')
//   kGru          r z n: n = tanh(aₙ + σ(r) rₙ), h' = (1 − σ(z)) n + σ(z) h
enum class Cell { kTanh, kRelu, kLstm, kGru };

// Numbers of gates, and of numbers per unit and step that forward keeps for backward: i f g o c',
// or r z n rₙ.
constexpr int64_t gates_of(Cell cell) {
  return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1;
}
constexpr int64_t saved_of(Cell cell) {
  return cell == Cell::kLstm ? 5 : cell == Cell::kGru ? 4 : 0;
}

// All arrays are contiguous, and float32 unless said otherwise. Of a sample with length n (int32
// [batch], in [0, steps]; null: all of them) only the first n steps exist: from the first to the
// last, or the other way round. What is not there leaves the state as it is, gives zeros and has no
// gradient.
struct RecurrentShape {
  Cell cell;
  int64_t batch, steps, hidden;
  bool reverse;
  const int32_t* lengths;
  // As of GemmArgs (matmul.h): of the products with w. Without it AMX makes them of two parts, and
  // infinities among their operands may give NaNs.
  bool bf16 = false;
};

// Whether with `bf16` results may be bfloat16: on a unit for it (bf16_unit, amx.h) that the calling
// thread may use.
bool recurrent_gives_bf16();

// Bytes of workspace, 64-byte aligned, any content.
size_t recurrent_forward_workspace_bytes(const RecurrentShape& shape);
size_t recurrent_backward_workspace_bytes(const RecurrentShape& shape);

// projected [batch, steps, gates · hidden] is the x-part; w [gates · hidden, hidden] and b [gates ·
// hidden] make r; h0 and c0 (LSTM only) [batch, hidden] are the states to begin with. Gives out
// [batch, steps, hidden], the last states hn and cn, and saved [batch, steps, saved_of(cell) ·
// hidden] for backward. Sums and the states on the way are float32, also with `bf16`; nothing
// depends on the number of threads; nothing allocates. noexcept.
struct RecurrentForward {
  const float *projected, *w, *b, *h0, *c0;
  float *out, *hn, *cn, *saved;
  // kBF16: projected, or every result, points at such numbers; the latter where
  // recurrent_gives_bf16.
  DType projected_type = DType::kF32, results_type = DType::kF32;
};
void recurrent_forward(ThreadPool& pool, const RecurrentShape& shape, const RecurrentForward& f,
                       std::byte* workspace);

// The gradients of projected, r, h0 and c0 for those of out, hn and cn. That of r is the same as
// that of projected, but in a GRU: only there dr is not null. With h the states before each step,
// those of w and b are the sums of drᵀ h and of dr over samples and steps.
struct RecurrentBackward {
  const float *w, *h0, *c0, *out, *saved;  // the last two of the forward pass
  const float *dout, *dhn, *dcn;
  float *dprojected, *dr, *dh0, *dc0;
  // As of RecurrentForward: of out and saved, of dout, and of the gradients that this gives.
  DType results_type = DType::kF32, dout_type = DType::kF32, gradients_type = DType::kF32;
};
void recurrent_backward(ThreadPool& pool, const RecurrentShape& shape, const RecurrentBackward& g,
                        std::byte* workspace);

}  // namespace lumen::kernels
