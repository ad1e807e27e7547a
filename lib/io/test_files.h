// Builds small model files in memory, for the tests and fuzzers of this room.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/tensor/array.h"

namespace lumen::io {

// Bytes as the readers take them.
inline std::shared_ptr<const Buffer> buffer_of(std::string_view bytes) {
  auto copy = std::make_shared<std::vector<uint64_t>>(bytes.size() / 8 + 1);  // aligned
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  auto buffer = std::make_shared<Buffer>();
  buffer->data = reinterpret_cast<std::byte*>(copy->data());
  buffer->bytes = bytes.size();
  buffer->writable = false;
  buffer->owner = std::move(copy);
  return buffer;
}

template <typename T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A GGUF file in the making. Tensors are placed and filled with zeros by finish().
class GgufBuilder {
 public:
  template <typename T>
  GgufBuilder& key(std::string_view name, uint32_t type, T value) {
    start_key(name, type);
    append_raw(keys_, value);
    return *this;
  }
  GgufBuilder& key(std::string_view name, std::string_view text) {
    start_key(name, 8);
    append_text(keys_, text);
    return *this;
  }
  GgufBuilder& u32(std::string_view name, uint32_t value) { return key(name, 4, value); }
  GgufBuilder& strings(std::string_view name, const std::vector<std::string>& texts) {
    start_key(name, 9);
    append_raw<uint32_t>(keys_, 8);
    append_raw<uint64_t>(keys_, texts.size());
    for (const std::string& text : texts) append_text(keys_, text);
    return *this;
  }
  // A value as it stands in the file, behind its type.
  GgufBuilder& raw(std::string_view name, uint32_t type, std::string_view value) {
    start_key(name, type);
    keys_ += value;
    return *this;
  }
  // `dims` in the file's order, innermost first; `bytes` of data.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      uint64_t bytes) {
    append_text(tensors_, name);
    append_raw<uint32_t>(tensors_, static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) append_raw(tensors_, dim);
    append_raw(tensors_, type);
    append_raw(tensors_, data_bytes_);
    data_bytes_ += (bytes + 31) / 32 * 32;
    ++tensor_count_;
    return *this;
  }
  // Every byte of data is `fill`.
  std::string finish(uint32_t version = 3, char fill = '\1') const {
    std::string file = "GGUF";
    append_raw(file, version);
    append_raw(file, tensor_count_);
    append_raw(file, key_count_);
    file += keys_ + tensors_;
    file.resize((file.size() + 31) / 32 * 32);
    file.append(data_bytes_, fill);
    return file;
  }

 private:
  static void append_text(std::string& out, std::string_view text) {
    append_raw<uint64_t>(out, text.size());
    out += text;
  }
  void start_key(std::string_view name, uint32_t type) {
    append_text(keys_, name);
    append_raw(keys_, type);
    ++key_count_;
  }

  std::string keys_, tensors_;
  uint64_t key_count_ = 0, tensor_count_ = 0, data_bytes_ = 0;
};

// The smallest model that open_model accepts: architecture llama, one layer, dim 32.
inline GgufBuilder tiny_llama_gguf() {
  GgufBuilder builder;
  builder.key("general.architecture", "llama")
      .u32("llama.context_length", 16)
      .u32("llama.embedding_length", 32)
      .u32("llama.block_count", 1)
      .u32("llama.feed_forward_length", 64)
      .u32("llama.attention.head_count", 2)
      .key<float>("llama.attention.layer_norm_rms_epsilon", 6, 1e-5f);
  builder.tensor("token_embd.weight", {32, 3}, 0, 32 * 3 * 4);
  return builder;
}

// A safetensors file of `header` (padded) and `data_bytes` zeros.
inline std::string safetensors_file(std::string header, size_t data_bytes) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file;
  append_raw<uint64_t>(file, header.size());
  return file + header + std::string(data_bytes, '\0');
}

// A zip archive of stored entries (name, data), their checksums left out.
inline std::string zip_file(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string file, directory;
  for (const auto& [name, data] : entries) {
    // Version, flags, method, time, date, checksum; both sizes; the name's size, of extra fields.
    std::string fields(14, '\0');
    for (int i = 0; i < 2; ++i) append_raw<uint32_t>(fields, static_cast<uint32_t>(data.size()));
    append_raw<uint16_t>(fields, static_cast<uint16_t>(name.size()));
    append_raw<uint16_t>(fields, 0);
    append_raw<uint32_t>(directory, 0x02014b50);
    append_raw<uint16_t>(directory, 0);
    directory += fields + std::string(10, '\0');
    append_raw<uint32_t>(directory, static_cast<uint32_t>(file.size()));
    directory += name;
    append_raw<uint32_t>(file, 0x04034b50);
    file += fields + name + data;
  }
  const auto offset = static_cast<uint32_t>(file.size());
  file += directory;
  append_raw<uint32_t>(file, 0x06054b50);
  append_raw<uint32_t>(file, 0);
  for (int i = 0; i < 2; ++i) append_raw<uint16_t>(file, static_cast<uint16_t>(entries.size()));
  append_raw<uint32_t>(file, static_cast<uint32_t>(directory.size()));
  append_raw<uint32_t>(file, offset);
  append_raw<uint16_t>(file, 0);
  return file;
}

}  // namespace lumen::io
