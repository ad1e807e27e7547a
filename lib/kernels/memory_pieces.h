// Memory of a thread or of a call, piece by piece. Private to this room.
#pragma once

#include <cstdint>

#include "lib/base/round_up.h"

namespace lumen::kernels {

// Hands out pieces of whole cache lines; without memory it only counts.
class MemoryPieces {
 public:
  // `memory` is 64-byte aligned, or null.
  explicit MemoryPieces(float* memory) : memory_(memory) {}

  float* take(int64_t floats) { return take_as<float>(floats); }
  template <typename T>
  T* take_as(int64_t count) {
    float* const piece = memory_ ? memory_ + taken_ : nullptr;
    taken_ += round_up(divide_up(count * int64_t{sizeof(T)}, int64_t{sizeof(float)}), 16);
    return reinterpret_cast<T*>(piece);
  }
  // In floats.
  int64_t taken() const { return taken_; }

 private:
  float* memory_;
  int64_t taken_ = 0;
};

// How many floats Buffers takes that is constructed from pieces and `sizes`.
template <class Buffers, class Sizes>
int64_t floats_of(const Sizes& sizes) {
  MemoryPieces pieces(nullptr);
  const Buffers buffers(pieces, sizes);
  return pieces.taken();
}

}  // namespace lumen::kernels
