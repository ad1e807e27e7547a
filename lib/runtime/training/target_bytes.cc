#include "lib/runtime/training/target_bytes.h"

#include <utility>

#include "lib/base/error.h"

namespace lumen::runtime {

TargetBytes::TargetBytes(std::shared_ptr<const text::Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {
  try {
    for (const std::string& bytes : tokenizer_->token_bytes()) {
      bytes_.push_back(static_cast<uint32_t>(bytes.size()));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    bytes_.clear();
  }
}

double TargetBytes::count(const data::Batch& batch) const {
  const Array& targets = batch.fields.at("targets");
  const int64_t rows = targets.shape()[0], seq = targets.shape()[1];
  const auto ids = targets.as<int32_t>();
  double sum = 0;
  std::vector<int32_t> counted;
  for (int64_t row = 0; row < rows; ++row) {
    counted.clear();
    for (const int32_t id : ids.subspan(static_cast<size_t>(row * seq), static_cast<size_t>(seq))) {
      if (id != data::kIgnored) counted.push_back(id);
    }
    if (bytes_.empty()) {
      sum += static_cast<double>(tokenizer_->decode(counted).size());
      continue;
    }
    for (const int32_t id : counted) {
      const auto at = static_cast<size_t>(id);
      if (at < bytes_.size()) sum += bytes_[at];
    }
  }
  return sum;
}

}  // namespace lumen::runtime
