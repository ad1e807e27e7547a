// How much text the targets of a batch stand for: what bits per byte are counted by.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/data/batch.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {

// Bytes of text by token. Immutable.
class TargetBytes {
 public:
  explicit TargetBytes(std::shared_ptr<const text::Tokenizer> tokenizer);

  // The bytes of UTF-8 that the targets of `batch` which count decode to; control tokens have none.
  double count(const data::Batch& batch) const;

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<uint32_t> bytes_;  // empty: a token's depend on those beside it
};

}  // namespace lumen::runtime
