// PyTorch checkpoints: what torch.save writes of a state dict, a zip archive of a pickle with the
// tensors' shapes and of one entry per storage. Read as data (pickle.h); nothing in it is executed.
// Format: https://docs.pytorch.org/docs/stable/notes/serialization.html
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/tensor/named_arrays.h"

namespace lumen::io {

struct TorchTensor {
  std::string name;
  std::string_view type;       // of its storage: "FloatStorage", "ComplexFloatStorage", …
  std::optional<DType> dtype;  // absent for the types Lumen does not compute with
  uint64_t element_bytes = 0;  // ≥ 1
  Shape shape;                 // extents may be 0
  Strides strides{};           // in elements, ≥ 0
  uint32_t part = 0;           // index into TorchFile::parts
  uint64_t offset = 0;         // of its first element, from the start of that file

  // Whether its elements lie in rows without gaps.
  bool is_contiguous() const;
};

// One file, or all shards of a model. Immutable; the data stay mapped while it or an array lives.
struct TorchFile {
  std::string path;                  // of the file, or of the index
  std::vector<TorchTensor> tensors;  // by shard, and in the order of the state dict
  std::vector<std::shared_ptr<const Buffer>> parts;
  uint64_t file_bytes = 0;  // of all parts

  // The data: mapped, so that tensors that share a storage share memory; copied into rows where
  // they lie otherwise (transposed, expanded) or are misaligned. Throws Error(kUnsupported) naming
  // the tensor and its type if Lumen has no such element type.
  Array array(const TorchTensor& tensor) const;
  // All of them by name.
  NamedArrays arrays() const;
};

// Whether `bytes` begin as what torch.save writes, in the zip format or the one before it.
bool is_torch_file(std::span<const std::byte> bytes);

// Opens a checkpoint by its directory and pickle; tensor data are not touched, and so not compared
// with their checksums. The tensors are those of the dictionary that was saved, or of its entry
// "state_dict", "model_state_dict" or "model".
//
// Refuses with Error(kMalformed): what parse_zip and Pickle refuse, storages that are missing or of
// another size than the pickle says, tensors that leave their storage, have more elements than it
// or names that are there twice, tensors out of order that would take more memory than the file;
// with kUnsupported: torch's format of before version 1.6, big-endian files, compressed ones, and
// what is no dictionary of tensors. kMissing and kIo as map_file.
std::shared_ptr<const TorchFile> read_torch(const std::string& path);

// Opens the shards named by "weight_map" of a pytorch_model.bin.index.json (shard_index.h); each
// must hold exactly the tensors mapped to it.
std::shared_ptr<const TorchFile> read_torch_index(const std::string& index_path);

// read_torch for bytes in memory; `path` is for messages only.
std::shared_ptr<const TorchFile> parse_torch(std::shared_ptr<const Buffer> bytes,
                                             const std::string& path);

// The tensors of a safetensors file or a PyTorch checkpoint, told by its content. Throws as
// read_safetensors and read_torch.
NamedArrays read_tensors(const std::string& path);

}  // namespace lumen::io
