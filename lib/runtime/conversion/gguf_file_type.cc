#include "lib/runtime/conversion/gguf_file_type.h"

#include <algorithm>
#include <iterator>

#include "lib/base/check.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {
namespace {

constexpr GgufFileType kFileTypes[] = {
    {"f32", DType::kF32, 0},
    {"f16", DType::kF16, 1},
    {"bf16", DType::kBF16, 32},
    {"q8_0", DType::kQ8_0, 7},
    {"q6_k", DType::kQ6_K, 18},
    {"q5_k_m", DType::kQ5_K, 17},
    {"q4_k_m", DType::kQ4_K, 15},
    {"q4_0", DType::kQ4_0, 2},
    {"mxfp4_moe", DType::kQ8_0, 38, DType::kMXFP4},
};

// The first and the last eighth of the layers, and every third between.
bool has_more_bits(int64_t layer, int64_t layers) {
  const int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

// What stands in for a type of blocks of 256.
DType of_blocks_of_32(DType dtype) {
  switch (dtype) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    default:
      return DType::kQ8_0;
  }
}

}  // namespace

std::span<const GgufFileType> gguf_file_types() {
  return kFileTypes;
}

const GgufFileType& gguf_file_type(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFileTypes), std::end(kFileTypes),
                                   [&](const GgufFileType& type) { return type.name == name; });
  LUMEN_CHECK(found != std::end(kFileTypes));
  return *found;
}

DType gguf_wanted_type(const GgufFileType& type, const GgufModelKind& model,
                       std::string_view name) {
  // Small, and choose experts or mix streams; small, and vectors of each expert, head or position.
  for (const char* end :
       {".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight", "_exps.bias", "_norm.weight",
        ".ssm_conv1d.weight", ".ssm_conv1d_q.weight", ".ssm_conv1d_k.weight",
        ".ssm_conv1d_v.weight", ".shortconv.conv.weight", ".ssm_a", ".ssm_d",
        "position_embd.weight", ".altup_correct_coef.weight", ".altup_predict_coef.weight"}) {
    if (name.ends_with(end)) return DType::kF32;
  }
  // Small, and changes every number that layers are given.
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (is_quantized(type.matrices) && (has("altup_") || has("laurel_"))) return DType::kF16;
  if (type.experts && name.ends_with("_exps.weight")) return *type.experts;
  if (!is_quantized(type.matrices) || type.matrices == DType::kQ8_0) return type.matrices;
  if (name == (model.has_output ? "output.weight" : "token_embd.weight")) return DType::kQ6_K;
  const bool is_value = name.ends_with(".attn_v.weight");
  const bool is_down = name.ends_with(".ffn_down.weight") ||
                       name.ends_with(".ffn_down_exps.weight") ||
                       name.ends_with(".ffn_down_shexp.weight");
  if (!type.name.ends_with("_m") || !(is_value || is_down)) return type.matrices;
  if (has_more_bits(nn::layer_number(name), model.layers)) return DType::kQ6_K;
  if (!is_value || model.heads_per_kv_head < 4) return type.matrices;
  return type.matrices == DType::kQ4_K ? DType::kQ5_K : DType::kQ6_K;
}

DType gguf_matrix_type(const GgufFileType& type, const GgufModelKind& model, std::string_view name,
                       const Shape& shape) {
  DType dtype = gguf_wanted_type(type, model, name);
  const auto fills = [&](DType each) { return shape[-1] % info(each).block_elements == 0; };
  if (!fills(dtype)) dtype = of_blocks_of_32(dtype);
  return fills(dtype) ? dtype : DType::kF16;
}

}  // namespace lumen::runtime
