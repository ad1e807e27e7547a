// safetensors files: a JSON header of names, types, shapes and byte ranges, then the data.
// Format: https://github.com/huggingface/safetensors (README, section "Format").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/tensor/named_arrays.h"

namespace lumen::io {

struct SafetensorsTensor {
  std::string name;
  std::string type;            // as in the file: "F32", "BF16", "F8_E4M3", …
  std::optional<DType> dtype;  // absent for the types Lumen does not compute with
  Shape shape;                 // extents may be 0
  uint32_t part = 0;           // index into SafetensorsFile::parts
  uint64_t offset = 0;         // of the data, from the start of that file
  uint64_t bytes = 0;
};

// One file, or all shards of a model. Immutable; the data stay mapped while it or an array lives.
struct SafetensorsFile {
  std::string path;                        // of the file, or of the index
  std::vector<SafetensorsTensor> tensors;  // by shard, and in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;  // __metadata__ of the first file
  std::vector<std::shared_ptr<const Buffer>> parts;
  uint64_t file_bytes = 0;  // of all parts

  // The data: mapped, or copied where misaligned. Throws Error(kUnsupported) naming the tensor and
  // its type if Lumen has no such element type.
  Array array(const SafetensorsTensor& tensor) const;
  // All of them by name.
  NamedArrays arrays() const;
};

// Opens one safetensors file by its header; tensor data are not touched.
//
// Refuses, with Error(kMalformed) naming the place: a header that is longer than the file or
// 100 MB, is no JSON object, has duplicate keys or names, unknown types, extents or offsets that
// are no unsigned integers, sizes that overflow or differ from the byte range, ranges that overlap,
// leave holes or do not end exactly at the end of the file. kMissing and kIo as map_file.
std::shared_ptr<const SafetensorsFile> read_safetensors(const std::string& path);

// Opens the shards named by "weight_map" of a model.safetensors.index.json. Shards are plain file
// names in the directory of the index; each must exist and hold exactly the tensors mapped to it.
std::shared_ptr<const SafetensorsFile> read_safetensors_index(const std::string& index_path);

// read_safetensors for bytes in memory; `path` is for messages only.
std::shared_ptr<const SafetensorsFile> parse_safetensors(std::shared_ptr<const Buffer> bytes,
                                                         const std::string& path);

}  // namespace lumen::io
