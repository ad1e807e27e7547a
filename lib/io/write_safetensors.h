// Writing safetensors files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/io/pending_tensor.h"

namespace lumen::io {

// Tensors of files to be. Not thread-safe.
class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  // `metadata` is written into each file as __metadata__.
  explicit SafetensorsWriter(Metadata metadata = {}) : metadata_(std::move(metadata)) {}

  // A tensor of `dtype`, which writing asks `make` for when it has come to it: one is in memory at
  // a time. What `make` throws ends the writing. Throws Error(kUnsupported) for quantised types.
  void add(std::string name, DType dtype, const Shape& shape, std::function<Array()> make);

  // The bytes of all tensors.
  uint64_t bytes() const;
  // Of write_model: how many files of tensors of at most `shard_bytes` there will be; a tensor that
  // is larger has one of its own.
  size_t shards(uint64_t shard_bytes) const;

  // Writes one file, which appears whole under its name (AtomicFile, whose errors it throws), data
  // aligned to 64 bytes.
  void write(const std::string& path) const;

  // Writes model.safetensors into the existing `directory`, or model-00001-of-0000N.safetensors and
  // the others, in the order of add(), with their model.safetensors.index.json last.
  void write_model(const std::string& directory, uint64_t shard_bytes) const;

 private:
  // `room`: what this file and those after it need.
  void write_tensors(const std::string& path, PendingTensors tensors, uint64_t room) const;

  std::vector<PendingTensor> tensors_;
  Metadata metadata_;
};

// Writes `tensors` as one file, `metadata` as __metadata__. Throws Error as SafetensorsWriter.
void write_safetensors(const std::string& path, const std::map<std::string, Array>& tensors,
                       const SafetensorsWriter::Metadata& metadata = {});

}  // namespace lumen::io
