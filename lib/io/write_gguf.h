// Writing GGUF files. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::io {

// Metadata and tensors of a file to be, in the order in which they are added. Not thread-safe.
class GgufWriter {
 public:
  using Value = std::variant<uint32_t, float, bool, std::string, std::vector<std::string>,
                             std::vector<float>, std::vector<int32_t>>;

  void set(std::string key, Value value) { metadata_.emplace_back(std::move(key), value); }
  // `array` keeps its type: f32, f16, bf16 or quantised. Names are at most 64 bytes.
  void add(std::string name, Array array) { tensors_.emplace_back(std::move(name), array); }

  // The file up to the tensors' data, aligned: without tensors the whole file.
  std::string header() const;

  // Writes version 3, data aligned to 32 bytes, whole under its name (AtomicFile, whose errors it
  // throws). Throws Error(kUnsupported) for a type that GGUF lacks.
  void write(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, Value>> metadata_;
  std::vector<std::pair<std::string, Array>> tensors_;
};

// The architecture of GGUF for a config.json's model_type. Throws Error(kUnsupported).
std::string gguf_architecture(const Json& config);
// A tensor's name in GGUF, the inverse of what open_model does; "" if GGUF has none for it.
std::string gguf_tensor_name(const std::string& hugging_face_name);
// The metadata of `config` in the keys of its architecture. The scaling of Llama 3 is no key but
// the tensor rope_freqs.weight (nn/rope.h). Throws Error(kUnsupported) for what GGUF cannot say.
void set_gguf_config(const Json& config, GgufWriter& writer);

}  // namespace lumen::io
