// Results that no cache will keep until they are read are written past the caches: a store to a
// line that is not in the cache would read it from memory first.
#pragma once

#include <cstdint>

#include "lib/kernels/cache_sizes.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// y = x for n floats, past the caches. What a thread wrote so is seen by others after its
// finish_streams(). noexcept.
void stream(const float* x, int64_t n, float* y);
void finish_streams();

// Whether a result of so many bytes is to be written so. Not if it takes the place of an input,
// which brought its lines into the caches.
inline bool streams(int64_t bytes) {
  return bytes >= streaming_bytes();
}

// Writes the rows of a result that a kernel computes one after another, several times over each:
// in a buffer first, where they are streamed, which float32 is. One per thread and share of the
// rows.
class RowWriter {
 public:
  RowWriter(int64_t rows, int64_t dim, DType dtype, bool in_place)
      : streams_(dtype == DType::kF32 && !in_place && dim <= kMost && streams(rows * dim * 4)),
        dim_(dim) {}
  ~RowWriter() {
    if (streams_) finish_streams();
  }
  RowWriter(const RowWriter&) = delete;

  // compute(to) leaves the row in `to`.
  template <class F>
  void write(void* y, const F& compute) {
    compute(streams_ ? buffer_ : y);
    if (streams_) stream(buffer_, dim_, static_cast<float*>(y));
  }

 private:
  static constexpr int64_t kMost = 4096;
  bool streams_;
  int64_t dim_;
  alignas(64) float buffer_[kMost];
};

}  // namespace lumen::kernels
