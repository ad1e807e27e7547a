// The two matrices of each head that kv_b_proj of latent attention has the rows of
// (latent_attention.h), as GGUF files of Kimi Linear have them.
#pragma once

#include <optional>

#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::nn {

// Of kv_b_proj.weight [heads · (key_dim + value_dim), rank] the rows of keys, turned, [heads, rank,
// key_dim], or those of values, [heads, value_dim, rank].
struct LatentRows {
  int64_t heads, key_dim;
  bool are_keys;

  Shape shape(const Shape& joined) const;
  Array of(const Array& joined) const;  // float32
};

// Those of a model with this config.
LatentRows latent_rows(const io::Json& config, bool are_keys);

}  // namespace lumen::nn
