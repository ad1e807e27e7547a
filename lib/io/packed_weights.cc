#include "lib/io/packed_weights.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/packed_layer.h"

namespace lumen::io {

struct Packing {
  std::string_view mark;                // with it a tensor's name says that its layer is packed
  std::vector<std::string_view> parts;  // of a packed layer's other tensors
  std::function<Array(const PackedFile& file, const std::string& layer)> unpack;
  bool has_attention_bias = false;  // of q, k and v
  // Whether the layer of a tensor with the mark is packed; null: yes.
  std::function<bool(const SafetensorsTensor& tensor)> is_meant = nullptr;
};

namespace {

[[noreturn]] void fail_variant(const Json& packing, std::string_view key,
                               std::string_view expected) {
  fail(ErrorKind::kUnsupported, "key ", quoted(key), ": found ", describe(find(packing, key)),
       ", Lumen unpacks ", expected, kTakeAnother);
}

Packing gptq_packing(const Json& packing) {
  const auto bits = static_cast<int>(get_int(packing, "bits", 1, 64));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    fail_variant(packing, "bits", "2, 3, 4 and 8");
  }
  // The name of the key has changed since.
  const char* key = find_value(packing, "format") != nullptr ? "format" : "checkpoint_format";
  const std::string format = get_string(packing, key, "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    fail_variant(packing, key, "'gptq' and 'gptq_v2'");
  }
  const int64_t group = get_int(packing, "group_size", -1, kMostPacked);
  const int added = format == "gptq" ? 1 : 0;  // it stores zero points less one
  return {".qweight",
          {".qzeros", ".scales", ".g_idx"},
          [=](const PackedFile& file, const std::string& layer) {
            return unpack_columns(file, layer, bits, group, CodeOrder::kColumns, added);
          }};
}

Packing awq_packing(const Json& packing) {
  // Older files have names of their own.
  const char* bits = find_value(packing, "bits") != nullptr ? "bits" : "w_bit";
  const char* size = find_value(packing, "group_size") != nullptr ? "group_size" : "q_group_size";
  if (get_int(packing, bits, 1, 64) != 4) fail_variant(packing, bits, "4");
  const std::string version = get_string(packing, "version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    fail_variant(packing, "version", "'gemm'");
  }
  const int64_t group = get_int(packing, size, -1, kMostPacked);
  return {
      ".qweight", {".qzeros", ".scales"}, [=](const PackedFile& file, const std::string& layer) {
        return unpack_columns(file, layer, 4, group, CodeOrder::kAwq, 0);
      }};
}

// The blocks under `key`; none if it is not there.
MatrixExtents block_of(const Json& object, std::string_view key) {
  return find_value(object, key) == nullptr ? MatrixExtents{} : extents_at(object, key);
}

Packing fp8_packing(const Json& packing) {
  const MatrixExtents block = block_of(packing, "weight_block_size");
  return {".weight_scale_inv",
          {".weight", ".input_scale", ".activation_scale"},
          [=](const PackedFile& file, const std::string& layer) {
            return unpack_floats(file, layer, layer + ".weight_scale_inv", block);
          }};
}

// The "weights" of the only group in "config_groups".
const Json& compressed_weights(const Json& packing) {
  const Json* groups = find_value(packing, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    fail(ErrorKind::kMalformed, "key 'config_groups': found ", describe(groups),
         ", expected an object with a group");
  }
  if (groups->size() > 1) {
    fail(ErrorKind::kUnsupported, "key 'config_groups': found ", groups->size(),
         " groups, Lumen unpacks one", kTakeAnother);
  }
  const Json* weights = find_value(*groups->begin(), "weights");
  if (weights == nullptr || !weights->is_object()) {
    fail(ErrorKind::kMalformed, "key 'weights': found ", describe(weights), ", expected an object");
  }
  return *weights;
}

Packing compressed_packing(const Json& packing) {
  const Json& weights = compressed_weights(packing);
  const std::string format = get_string(packing, "format");
  const auto bits = static_cast<int>(get_int(weights, "num_bits", 1, 64));
  const bool is_float = format == "float-quantized";
  if (!is_float && format != "pack-quantized" && format != "int-quantized") {
    fail_variant(packing, "format", "'pack-quantized', 'int-quantized' and 'float-quantized'");
  }
  if (bits != 8 && (bits != 4 || format != "pack-quantized")) {
    fail_variant(weights, "num_bits", format == "pack-quantized" ? "4 and 8" : "8");
  }
  const MatrixExtents block = block_of(weights, "block_structure");
  return {".weight_scale",
          {".weight", ".weight_packed", ".weight_shape", ".weight_zero_point", ".weight_g_idx",
           ".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale"},
          [=](const PackedFile& file, const std::string& layer) {
            return is_float ? unpack_floats(file, layer, layer + ".weight_scale", block)
                            : unpack_compressed(file, layer, bits);
          }};
}

Packing bitsandbytes_packing(const Json& packing) {
  if (get_bool(packing, "load_in_8bit", false)) {
    return {".SCB", {".weight", ".weight_format"}, unpack_int8};
  }
  return {".weight.absmax",
          {".weight", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map",
           ".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"},
          unpack_table};
}

// `packing`: groups of the model, and of layers that differ under their names.
Packing mlx_packing(const Json& packing) {
  if (get_string(packing, "mode", "affine") != "affine") fail_variant(packing, "mode", "'affine'");
  const int64_t usual = get_int(packing, "group_size", 1, kMostPacked);
  return {".scales",
          {".weight", ".biases"},
          [packing, usual](const PackedFile& file, const std::string& layer) {
            const Json* own = find_value(packing, layer);
            const bool differs = own != nullptr && own->is_object();
            return unpack_mlx(file, layer,
                              differs ? get_int(*own, "group_size", 1, kMostPacked) : usual);
          }};
}

// The layer of the tensor `name` if it ends in `suffix`; "" otherwise.
std::string layer_before(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? std::string(name.substr(0, name.size() - suffix.size())) : "";
}

// Whether `layer` is one of those that the list modules_to_not_convert names, or in one.
bool is_left_out(const Json& packing, std::string_view layer) {
  const Json* names = find_value(packing, "modules_to_not_convert");
  if (names == nullptr || !names->is_array()) return false;
  return std::any_of(names->begin(), names->end(), [&](const Json& entry) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : "";
    return !name.empty() && str(".", layer, ".").find(str(".", name, ".")) != std::string::npos;
  });
}

Packing bitnet_packing(const Json& packing) {
  const std::string linear = get_string(packing, "linear_class", "bitlinear");
  const std::string mode = get_string(packing, "quantization_mode", "offline");
  if (linear != "bitlinear" && linear != "autobitlinear") {
    fail_variant(packing, "linear_class", "'bitlinear' and 'autobitlinear'");
  }
  if (mode != "offline" && mode != "online") {
    fail_variant(packing, "quantization_mode", "'offline' and 'online'");
  }
  if (get_bool(packing, "use_rms_norm", false)) fail_variant(packing, "use_rms_norm", "false");
  const bool divides = linear == "bitlinear";
  if (divides || mode == "offline") {
    return {".weight_scale", {".weight"}, [=](const PackedFile& file, const std::string& layer) {
              return unpack_ternary(file, layer, divides);
            }};
  }
  Packing result{".weight", {}, round_to_ternary};
  result.is_meant = [packing](const SafetensorsTensor& tensor) {
    const std::string layer = layer_before(tensor.name, ".weight");
    const bool is_linear = tensor.shape.rank() == 2 && !layer.ends_with("embed_tokens");
    return is_linear && !layer.ends_with("lm_head") && !is_left_out(packing, layer);
  };
  return result;
}

constexpr std::pair<std::string_view, Packing (*)(const Json& packing)> kMethods[] = {
    {"gptq", gptq_packing},
    {"awq", awq_packing},
    {"fp8", fp8_packing},
    {"compressed-tensors", compressed_packing},
    {"bitsandbytes", bitsandbytes_packing},
    {"bitnet", bitnet_packing},
};

// Whether the tensor is a scale of keys, values or what else other programs round as they compute.
bool is_cache_scale(std::string_view name) {
  return name.ends_with(".k_scale") || name.ends_with(".v_scale") || name.ends_with(".q_scale");
}

// A bias of zeros, which some gptq files give layers that have none.
bool is_zero_bias(const PackedFile& file, const Packing& packing, const SafetensorsTensor& tensor) {
  const std::string layer = layer_before(tensor.name, ".bias");
  if (layer.empty() || file.find(layer + std::string(packing.mark)) == nullptr) return false;
  for (const char* name : {".q_proj", ".k_proj", ".v_proj"}) {
    if (packing.has_attention_bias && layer.ends_with(name)) return false;
  }
  const std::byte* data = file.data(tensor);
  return std::all_of(data, data + tensor.bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

std::shared_ptr<const Packing> packing_of(const Json& config) {
  if (const Json* packing = find_value(config, "quantization")) {
    return with_context("key 'quantization'",
                        [&] { return std::make_shared<Packing>(mlx_packing(*packing)); });
  }
  const Json* packing = find_value(config, "quantization_config");
  if (packing == nullptr) return nullptr;
  return with_context("key 'quantization_config'", [&]() -> std::shared_ptr<const Packing> {
    const std::string method = get_string(*packing, "quant_method");
    const bool is_gpt_oss = get_string(config, "model_type", "") == "gpt_oss";
    if (is_gpt_oss && method == "mxfp4") return nullptr;  // fused_experts.h
    for (const auto& [name, read] : kMethods) {
      if (method != name) continue;
      auto result = std::make_shared<Packing>(read(*packing));
      result->has_attention_bias = get_string(config, "model_type", "") == "qwen2" ||
                                   get_bool(config, "attention_bias", false);
      return result;
    }
    fail_variant(*packing, "quant_method",
                 "'gptq', 'awq', 'fp8', 'compressed-tensors', 'bitsandbytes', 'bitnet' and MLX's");
  });
}

void erase_packing(Json& config) {
  if (!config.is_object()) return;  // which is told by who reads it
  config.erase("quantization_config");
  config.erase("quantization");
}

NamedArrays unpacked_weights(const SafetensorsFile& stored, const Packing& packing) {
  const PackedFile file(stored);
  const std::string mark(packing.mark);
  const auto is_part = [&](std::string_view name) {
    return std::any_of(packing.parts.begin(), packing.parts.end(), [&](std::string_view part) {
      const std::string layer = layer_before(name, part);
      return !layer.empty() && file.find(layer + mark) != nullptr;
    });
  };
  NamedArrays arrays;
  for (const SafetensorsTensor& tensor : stored.tensors) {
    const std::string layer = layer_before(tensor.name, mark);
    if (!layer.empty() && (packing.is_meant == nullptr || packing.is_meant(tensor))) {
      const auto [at, is_new] = arrays.emplace(layer + ".weight", packing.unpack(file, layer));
      if (!is_new) fail(ErrorKind::kMalformed, "tensor ", quoted(at->first), " is there twice");
      file.drop(tensor.name);
      for (std::string_view part : packing.parts) file.drop(layer + std::string(part));
    } else if (!is_part(tensor.name) && !is_cache_scale(tensor.name) &&
               !is_zero_bias(file, packing, tensor)) {
      arrays.emplace(tensor.name, stored.array(tensor));
    }
  }
  return arrays;
}

}  // namespace lumen::io
