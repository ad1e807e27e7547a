#include "lib/runtime/conversion/gguf_file_type.h"

#include <algorithm>
#include <iterator>

#include "lib/base/check.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {
namespace {

using Part = GgufUpgrade::Part;
using Layers = GgufUpgrade::Layers;

constexpr GgufUpgrade kQ2_K[] = {
    {Part::kValue, Layers::kIfShared, DType::kQ4_K},
    {Part::kValue, Layers::kAll, DType::kQ3_K},
    {Part::kDown, Layers::kAll, DType::kQ3_K},
    {Part::kAttentionOutput, Layers::kAll, DType::kQ3_K},
};
constexpr GgufUpgrade kQ2_K_S[] = {
    {Part::kValue, Layers::kIfShared, DType::kQ4_K},
    {Part::kDown, Layers::kFirstEighth, DType::kQ4_K},
};
constexpr GgufUpgrade kQ3_K_M[] = {
    {Part::kValue, Layers::kFirstTwo, DType::kQ5_K},
    {Part::kValue, Layers::kAll, DType::kQ4_K},
    {Part::kDown, Layers::kFirstSixteenth, DType::kQ5_K},
    {Part::kDown, Layers::kAll, DType::kQ4_K},
    {Part::kAttentionOutput, Layers::kAll, DType::kQ4_K},
};
constexpr GgufUpgrade kQ3_K_L[] = {
    {Part::kValue, Layers::kAll, DType::kQ5_K},
    {Part::kDown, Layers::kAll, DType::kQ5_K},
    {Part::kAttentionOutput, Layers::kAll, DType::kQ5_K},
};
constexpr GgufUpgrade kQ4_K_S[] = {
    {Part::kValue, Layers::kFirstFour, DType::kQ5_K},
    {Part::kDown, Layers::kFirstEighth, DType::kQ5_K},
};
constexpr GgufUpgrade kQ4_K_M[] = {
    {Part::kValue, Layers::kSome, DType::kQ6_K},
    {Part::kValue, Layers::kIfShared, DType::kQ5_K},
    {Part::kDown, Layers::kSome, DType::kQ6_K},
};
constexpr GgufUpgrade kQ5_K_M[] = {
    {Part::kValue, Layers::kSome, DType::kQ6_K},
    {Part::kValue, Layers::kIfShared, DType::kQ6_K},
    {Part::kDown, Layers::kSome, DType::kQ6_K},
};
constexpr GgufUpgrade kIq4[] = {
    {Part::kValue, Layers::kIfShared, DType::kQ5_K},
    {Part::kDown, Layers::kFirstEighth, DType::kQ5_K},
};

constexpr GgufFileType kFileTypes[] = {
    {"f32", DType::kF32, 0},
    {"f16", DType::kF16, 1},
    {"bf16", DType::kBF16, 32},
    {"q8_0", DType::kQ8_0, 7},
    {"q6_k", DType::kQ6_K, 18},
    {"q5_k_m", DType::kQ5_K, 17, {}, kQ5_K_M},
    {"q5_k_s", DType::kQ5_K, 16},
    {"q5_1", DType::kQ5_1, 9},
    {"q5_0", DType::kQ5_0, 8},
    {"q4_k_m", DType::kQ4_K, 15, {}, kQ4_K_M},
    {"q4_k_s", DType::kQ4_K, 14, {}, kQ4_K_S},
    {"q4_1", DType::kQ4_1, 3},
    {"q4_0", DType::kQ4_0, 2},
    {"iq4_nl", DType::kIQ4_NL, 25, {}, kIq4},
    {"iq4_xs", DType::kIQ4_XS, 30, {}, kIq4},
    {"q3_k_l", DType::kQ3_K, 13, {}, kQ3_K_L},
    {"q3_k_m", DType::kQ3_K, 12, {}, kQ3_K_M},
    {"q3_k_s", DType::kQ3_K, 11},
    {"q2_k", DType::kQ2_K, 10, {}, kQ2_K},
    {"q2_k_s", DType::kQ2_K, 21, {}, kQ2_K_S},
    {"mxfp4_moe", DType::kQ8_0, 38, DType::kMXFP4},
};

bool is_of(Part part, std::string_view name) {
  switch (part) {
    case Part::kValue:
      return name.ends_with(".attn_v.weight");
    case Part::kDown:
      return name.ends_with(".ffn_down.weight") || name.ends_with(".ffn_down_exps.weight") ||
             name.ends_with(".ffn_down_shexp.weight");
    case Part::kAttentionOutput:
      return name.ends_with(".attn_output.weight");
  }
  LUMEN_CHECK(!"a part");
}

bool has_layer(Layers which, int64_t layer, const GgufModelKind& model) {
  const int64_t layers = model.layers, eighth = layers / 8;
  switch (which) {
    case Layers::kAll:
      return true;
    case Layers::kIfShared:
      return model.heads_per_kv_head >= 4;
    case Layers::kFirstTwo:
      return layer < 2;
    case Layers::kFirstFour:
      return layer < 4;
    case Layers::kFirstSixteenth:
      return layer < layers / 16;
    case Layers::kFirstEighth:
      return layer < eighth;
    case Layers::kSome:
      return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
  }
  LUMEN_CHECK(!"layers");
}

// What stands in for a type of blocks of 256.
DType of_blocks_of_32(DType dtype) {
  switch (dtype) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_XS:
      return DType::kIQ4_NL;
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
  for (const GgufUpgrade& upgrade : type.upgrades) {
    if (is_of(upgrade.part, name) && has_layer(upgrade.layers, nn::layer_number(name), model)) {
      return upgrade.dtype;
    }
  }
  return type.matrices;
}

DType gguf_matrix_type(const GgufFileType& type, const GgufModelKind& model, std::string_view name,
                       const Shape& shape) {
  DType dtype = gguf_wanted_type(type, model, name);
  const auto fills = [&](DType each) { return shape[-1] % info(each).block_elements == 0; };
  if (!fills(dtype)) dtype = of_blocks_of_32(dtype);
  return fills(dtype) ? dtype : DType::kF16;
}

}  // namespace lumen::runtime
