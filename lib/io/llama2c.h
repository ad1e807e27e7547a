// llama2.c checkpoints: the .bin files of https://github.com/karpathy/llama2.c (export.py).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lib/tensor/array.h"

namespace lumen::io {

// An open checkpoint. Immutable; the data stay mapped while it or an array lives.
struct Llama2cFile {
  int version = 0;  // 0 (no magic) or 1 ("ak42"), both float32
  int64_t dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocab = 0, context = 0;
  bool tied = true;  // the classifier is the embedding table
  // Hugging Face names ("model.layers.0.self_attn.q_proj.weight"), float32, row-major [out, in].
  // The rows of q and k are in the order of interleaved rotary pairs.
  std::map<std::string, Array> tensors;
  uint64_t file_bytes = 0;
};

// Opens a checkpoint, a mapped file, by its header; tensor data are not touched. Version 0 has no
// magic number: the size of the file must equal the size computed from the header. `path` is for
// messages only.
//
// Throws Error: kMalformed for fields out of range (limits.h) or another file size; kUnsupported
// for version 2 (int8 groups).
Llama2cFile parse_llama2c(std::shared_ptr<const Buffer> bytes, const std::string& path);

}  // namespace lumen::io
