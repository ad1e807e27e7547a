// The types of GGUF files that we write, and which type each of their matrices gets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/tensor/dtype.h"
#include "lib/tensor/shape.h"

namespace lumen::runtime {

// Matrices that get more bits than the others, because their errors add up in the residual stream
// or many heads share them: those of one kind, in some of the layers.
struct GgufUpgrade {
  enum class Part { kValue, kDown, kAttentionOutput };  // attn_v; ffn_down, of experts, too
  enum class Layers {
    kAll,
    kIfShared,  // all, if four heads or more share each of keys and values
    kFirstTwo,
    kFirstFour,
    kFirstSixteenth,
    kFirstEighth,
    kSome,  // the first and the last eighth, and every third between
  };
  Part part;
  Layers layers;
  DType dtype;
};

// One choice of --type.
struct GgufFileType {
  std::string_view name;              // "q4_k_m"
  DType matrices;                     // what a matrix gets unless there is a reason for more
  uint32_t number;                    // general.file_type, as the format counts them
  std::optional<DType> experts = {};  // what those of experts get instead
  std::span<const GgufUpgrade> upgrades = {};  // of which the first that fits is taken
};
std::span<const GgufFileType> gguf_file_types();
// The one of this name, which must be there.
const GgufFileType& gguf_file_type(std::string_view name);

// What of a model says which matrices get more bits.
struct GgufModelKind {
  int64_t layers = 0;
  int64_t heads_per_kv_head = 1;
  bool has_output = true;  // a matrix output.weight; otherwise token_embd.weight is it too
};

// The type of the matrix `name` (in GGUF: "blk.0.attn_v.weight") of this shape. Where a single bit
// is worth most it is in files that llama.cpp's users know under the same names, of the same size:
// the output matrix, whose errors nothing averages, has at least 6 bits (Q6_K) in the types of
// fewer, and others as `upgrades` says. Rows that do not fill blocks of 256 get the type of 32 with
// at least as many bits: IQ4_NL for Q2_K, Q3_K and IQ4_XS, Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for
// Q6_K; rows that do not fill blocks of 32 F16.
DType gguf_matrix_type(const GgufFileType& type, const GgufModelKind& model, std::string_view name,
                       const Shape& shape);
// The same without regard to the rows: what they should have got.
DType gguf_wanted_type(const GgufFileType& type, const GgufModelKind& model, std::string_view name);

}  // namespace lumen::runtime
