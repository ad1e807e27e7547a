#include "lib/io/gguf_keys.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::io {

int64_t ArchitectureKeys::uniform(std::string_view key, int64_t hi) const {
  const auto value = metadata_.find(prefix_ + std::string(key));
  if (!value || !value->is_array()) return integer(key, hi);
  for (size_t i = 0; i < value->size(); ++i) {
    if (value->int_at(i) != value->int_at(0)) {
      fail(ErrorKind::kUnsupported, "key ", quoted(value->key()),
           ": layers of different sizes are not supported");
    }
  }
  const int64_t count = value->size() > 0 ? value->int_at(0) : 0;
  if (count < 1 || count > hi) {
    fail(ErrorKind::kMalformed, "key ", quoted(value->key()), ": found ", count,
         ", expected an integer from 1 to ", hi);
  }
  return count;
}

std::vector<int64_t> ArchitectureKeys::per_layer(std::string_view key, int64_t layers,
                                                 int64_t hi) const {
  const auto value = metadata_.find(prefix_ + std::string(key));
  if (!value || !value->is_array()) {
    return std::vector<int64_t>(static_cast<size_t>(layers), integer(key, hi, 0));
  }
  if (static_cast<int64_t>(value->size()) != layers) {
    fail(ErrorKind::kMalformed, "key ", quoted(value->key()), ": found ", value->size(),
         " counts, expected ", layers, ", one per layer");
  }
  std::vector<int64_t> counts;
  for (size_t i = 0; i < value->size(); ++i) {
    counts.push_back(value->int_at(i));
    if (counts.back() >= 0 && counts.back() <= hi) continue;
    fail(ErrorKind::kMalformed, "key ", quoted(value->key()), ": layer ", i, " has ", counts.back(),
         ", expected an integer from 0 to ", hi);
  }
  return counts;
}

bool ArchitectureKeys::has_in_layers(std::string_view part) const {
  const int64_t layers = integer("block_count", limits::kLayers);
  for (int64_t i = 0; i < layers; ++i) {
    if (has_tensor(i, part)) return true;
  }
  return false;
}

GgufValue ArchitectureKeys::array(const std::string& name, int64_t size,
                                  std::string_view what) const {
  const auto value = metadata_.find(name);
  if (value && value->is_array() && static_cast<int64_t>(value->size()) == size) return *value;
  fail(ErrorKind::kMalformed, "key ", quoted(name), ": expected an array of ", size, " ", what);
}

std::vector<int64_t> ArchitectureKeys::list(std::string_view key, size_t count, int64_t hi) const {
  const std::string name = prefix_ + std::string(key);
  const GgufValue value = array(name, static_cast<int64_t>(count), "integers");
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    numbers.push_back(value.int_at(i));
    if (numbers.back() >= 0 && numbers.back() <= hi) continue;
    fail(ErrorKind::kMalformed, "key ", quoted(name), ": found ", numbers.back(),
         ", expected integers from 0 to ", hi);
  }
  return numbers;
}

std::vector<double> ArchitectureKeys::numbers(std::string_view key, int64_t layers) const {
  const GgufValue value = array(prefix_ + std::string(key), layers, "numbers, one per layer");
  std::vector<double> numbers;
  for (size_t i = 0; i < value.size(); ++i) numbers.push_back(value.number_at(i));
  return numbers;
}

std::vector<bool> ArchitectureKeys::flags(std::string_view key, int64_t layers) const {
  const GgufValue value = array(prefix_ + std::string(key), layers, "flags, one per layer");
  std::vector<bool> flags;
  const bool is_bool = value.element_type() == GgufType::kBool;
  for (size_t i = 0; i < value.size(); ++i) {
    flags.push_back(is_bool ? value.bool_at(i) : value.int_at(i) != 0);
  }
  return flags;
}

}  // namespace lumen::io
