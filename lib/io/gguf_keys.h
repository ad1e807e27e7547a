// The keys of a GGUF file that begin with its architecture's name, and what single architectures
// say there otherwise than the others, or cannot say. For this room only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/json.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {

// Reads "ARCHITECTURE.key" values, and tells which tensors stand beside them.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufFile& file, std::string_view architecture)
      : file_(file), metadata_(file.metadata), prefix_(str(architecture, ".")) {}

  bool has(std::string_view key) const {
    return metadata_.find(prefix_ + std::string(key)).has_value();
  }
  bool has_array(std::string_view key) const {
    const auto value = metadata_.find(prefix_ + std::string(key));
    return value && value->is_array();
  }
  int64_t integer(std::string_view key, int64_t hi, int64_t lo = 1) const {
    return metadata_.get_int(prefix_ + std::string(key), lo, hi);
  }
  int64_t integer_or(int64_t fallback, std::string_view key, int64_t hi) const {
    return has(key) ? integer(key, hi) : fallback;
  }
  double number(std::string_view key) const {
    return metadata_.get_number(prefix_ + std::string(key));
  }
  double number(std::string_view key, double fallback) const {
    return has(key) ? number(key) : fallback;
  }
  bool truth(std::string_view key, bool fallback) const {
    return metadata_.get_bool(prefix_ + std::string(key), fallback);
  }
  std::string_view text(std::string_view key, std::string_view fallback) const {
    return metadata_.get_string(prefix_ + std::string(key), fallback);
  }

  // Whether there is a tensor of this name; a tensor "blk.LAYER.PART", in this layer or in any.
  bool has_tensor(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  bool has_tensor(int64_t layer, std::string_view part) const {
    return file_.find_tensor(str("blk.", layer, ".", part)) != nullptr;
  }
  bool has_in_layers(std::string_view part) const;

  // How many rows the tensor of this name has; `otherwise` without one.
  int64_t rows_of(std::string_view name, int64_t otherwise) const {
    const GgufTensor* const found = file_.find_tensor(name);
    return found == nullptr ? otherwise : found->shape[0];
  }

  // A count per model. Some files have an array with one per layer, which must then agree.
  int64_t uniform(std::string_view key, int64_t hi) const;
  // A count of each of `layers` layers, or one that all have; each from 0 to `hi`.
  std::vector<int64_t> per_layer(std::string_view key, int64_t layers, int64_t hi) const;
  // `count` integers, each from 0 to `hi`.
  std::vector<int64_t> list(std::string_view key, size_t count, int64_t hi) const;
  // A number of each of `layers` layers, which may be infinite.
  std::vector<double> numbers(std::string_view key, int64_t layers) const;
  // A flag of each of `layers` layers.
  std::vector<bool> flags(std::string_view key, int64_t layers) const;

 private:
  // The array of so many elements, which are called `what`. Throws Error(kMalformed) for others.
  GgufValue array(const std::string& name, int64_t size, std::string_view what) const;

  const GgufFile& file_;
  const GgufMetadata& metadata_;
  std::string prefix_;
};

// Sets "ARCHITECTURE.key" values.
class KeyWriter {
 public:
  KeyWriter(std::string_view architecture, GgufWriter& writer)
      : prefix_(str(architecture, ".")), writer_(writer) {}

  void set(std::string_view key, const GgufWriter::Value& value) const {
    writer_.set(str(prefix_, key), value);
  }
  void number(std::string_view key, double value) const { set(key, static_cast<float>(value)); }
  void integer(std::string_view key, int64_t value) const {
    set(key, static_cast<uint32_t>(value));
  }

 private:
  std::string prefix_;
  GgufWriter& writer_;
};

inline constexpr const char* kExpertLength = "expert_feed_forward_length";

// How many experts a file says that layers have; 0: it does not say.
int64_t expert_count(const ArchitectureKeys& keys);

// Completes `config`, which has what all architectures have. Throws Error as open_model.
void read_family_keys(std::string_view architecture, const ArchitectureKeys& keys, Json& config);

// The other way round. Throws Error(kUnsupported) naming what of `config` readers of the
// architecture would not see.
void write_family_keys(std::string_view architecture, const Json& config, const KeyWriter& keys);

}  // namespace lumen::io
