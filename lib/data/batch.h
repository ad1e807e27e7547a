// Batches of training data, and streams of them that can be stopped and continued exactly.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::data {

// A target with this value does not count: masked, padded, or a sample that only fills the batch.
inline constexpr int32_t kIgnored = -100;
// The same where targets are numbers.
inline constexpr float kIgnoredNumber = std::numeric_limits<float>::quiet_NaN();
// The segment of positions that belong to no document.
inline constexpr int32_t kPadding = -1;

// What one step reads. Fields by kind of data:
//   images    "x" f32 [batch, channels, height, width], "y" i32 [batch]
//   tables    "x" f32 [batch, features], "y" i32 [batch], of a label that is a number f32 [batch]
//   language  i32 [batch, seq]: "tokens"; "targets", the token that follows each, or kIgnored;
//             "positions", from 0 in every document; "segments", number of the document within its
//             row from 0, kPadding where there is none (token and position are valid there too)
struct Batch {
  std::map<std::string, Array> fields;
  std::vector<int64_t> indices;  // of the data's samples that the rows are, from 0, no fillers
  int64_t samples = 0;  // rows that are data: less than the batch only in the last of an epoch
  double tokens = 0;    // targets that count (language), else `samples`: this batch's weight in a
                        // mean over batches
};

// Batches in a fixed order, epoch after epoch. Not thread-safe.
class BatchStream {
 public:
  virtual ~BatchStream() = default;

  // The next batch; false at the end of an epoch, after which the next call begins the next epoch.
  // `batch` is given the arrays of the new batch; its old ones are taken and will be written again,
  // so a steady state allocates nothing and what must outlive the call has to be copied. Throws
  // Error(kIo) if a file changed.
  virtual bool next(Batch& batch) = 0;

  // Where next() stands: what was handed out, whatever was prefetched.
  virtual io::Json cursor() const = 0;

  // Continues at `cursor`: exactly the batches follow that would have followed there. Throws
  // Error(kMismatch) if it was made over other data or with other settings, kMalformed if it is
  // none.
  virtual void restore(const io::Json& cursor) = 0;

  virtual int64_t batches_per_epoch() const = 0;
};

}  // namespace lumen::data
