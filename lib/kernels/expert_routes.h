// Which experts have which tokens: what the passes forward and backward of experts.h begin with.
// Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/experts.h"
#include "lib/kernels/memory_pieces.h"

namespace lumen::kernels {

// Which tokens each expert has. A slot is a token at one of its experts; those of an expert lie
// together, its tokens in order.
struct Routes {
  int32_t* chosen;     // [m, used]
  float* probability;  // [m, used]
  int64_t* begin;      // [experts + 1]: the first slot of each expert
  int32_t* token;      // [m · used]: of each slot
  float* weight;       // [m · used]: the token's probability, times the expert's scale
  int32_t* active;     // [experts]: those that have tokens, in order
  int64_t actives = 0;

  Routes(MemoryPieces& pieces, const ExpertsShape& s)
      : chosen(pieces.take_as<int32_t>(s.m * s.used)),
        probability(pieces.take(s.m * s.used)),
        begin(pieces.take_as<int64_t>(s.experts + 1)),
        token(pieces.take_as<int32_t>(s.m * s.used)),
        weight(pieces.take(s.m * s.used)),
        active(pieces.take_as<int32_t>(s.experts)) {}

  int64_t count(int64_t expert) const { return begin[expert + 1] - begin[expert]; }
};

ExpertsShape shape_of(const ExpertsArgs& args);

// Fills `routes`, whose memory is that of the shape of `args`. noexcept.
void route(ThreadPool& pool, const ExpertsArgs& args, Routes& routes);

// Of `memory`, 64-byte aligned or null.
inline MemoryPieces pieces_of(std::byte* memory) {
  return MemoryPieces(reinterpret_cast<float*>(memory));
}
inline size_t taken_bytes(const MemoryPieces& pieces) {
  return static_cast<size_t>(pieces.taken()) * sizeof(float);
}

// y[i] += factor · x[i] for i in [0, n). noexcept.
inline void add_scaled_row(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// y += the numbers [begin, end) of an expert's bias, if there is one. noexcept.
inline void add_bias(const ExpertBias& bias, int64_t expert, int64_t begin, int64_t end, float* y) {
  if (bias.data == nullptr) return;
  add_scaled_row(bias.data + expert * bias.stride + begin, 1, end - begin, y);
}

// Copies the rows of x, stride floats apart, of the tokens that `expert` has to `to` [tokens, n].
void gather_rows(ThreadPool& pool, const Routes& routes, int64_t expert, const float* x,
                 int64_t stride, int64_t n, float* to);

// y[token] += factor · row of x [tokens, n], for the tokens of `expert`; the factors are their
// probabilities if `weighted`, else 1.
void scatter_rows(ThreadPool& pool, const Routes& routes, int64_t expert, const float* x, int64_t n,
                  bool weighted, float* y);

}  // namespace lumen::kernels
