#include "lib/io/layer_windows.h"

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::io {
namespace {

size_t number_of_layers(const Json& config) {
  return static_cast<size_t>(get_int(config, "num_hidden_layers", 1, limits::kLayers));
}

void check_layer_types(const Json& types, size_t layers) {
  if (types.is_array() && types.size() == layers) return;
  fail(ErrorKind::kMalformed, "layer_types: found ", describe(&types), ", expected an array of ",
       layers, " names, one per layer");
}

[[noreturn]] void refuse_layer_type(const Json& type, size_t layer, std::string_view other,
                                    std::string_view attention = "full_attention") {
  fail(ErrorKind::kUnsupported, "layer_types: layer ", layer, " is ", describe(&type),
       "; known: ", attention, ", ", other);
}

}  // namespace

std::vector<int64_t> layer_windows(const Json& config) {
  const size_t layers = number_of_layers(config);
  const int64_t window = get_int(config, "sliding_window", 0, limits::kContext, 0);
  std::vector<int64_t> windows(layers);
  const Json* types = find_value(config, "layer_types");
  if (types == nullptr) {
    const auto full =
        static_cast<size_t>(get_int(config, "max_window_layers", 0, limits::kLayers, 0));
    for (size_t layer = full; layer < layers; ++layer) windows[layer] = window;
    return windows;
  }
  check_layer_types(*types, layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    const Json& type = (*types)[layer];
    if (type == "sliding_attention") {
      if (window == 0) {
        fail(ErrorKind::kMalformed, "layer_types: layer ", layer,
             " is 'sliding_attention', but the model has no window: expected a positive "
             "sliding_window, or 'full_attention'");
      }
      windows[layer] = window;
    } else if (type != "full_attention") {
      refuse_layer_type(type, layer, "sliding_attention");
    }
  }
  return windows;
}

namespace {

// Whether each layer is of type `other`, not `attention`. Both names may have a second one.
std::vector<bool> layers_of_type(const Json& config, std::string_view other,
                                 std::string_view attention = "full_attention",
                                 std::string_view other_too = "",
                                 std::string_view attention_too = "") {
  const size_t layers = number_of_layers(config);
  const Json* types = find_value(config, "layer_types");
  if (types == nullptr) fail(ErrorKind::kMalformed, "layer_types: missing");
  check_layer_types(*types, layers);
  std::vector<bool> found;
  for (size_t layer = 0; layer < layers; ++layer) {
    const Json& type = (*types)[layer];
    found.push_back(type == other || type == other_too);
    const bool attends = type == attention || type == attention_too;
    if (!found.back() && !attends) refuse_layer_type(type, layer, other, attention);
  }
  return found;
}

}  // namespace

std::vector<bool> linear_attention_layers(const Json& config) {
  return layers_of_type(config, "linear_attention");
}

std::vector<bool> convolution_layers(const Json& config) {
  return layers_of_type(config, "conv");
}

std::vector<bool> mamba_layers(const Json& config) {
  return layers_of_type(config, "mamba", "attention", "linear_attention", "full_attention");
}

std::vector<bool> hybrid_layers(const Json& config) {
  return layers_of_type(config, "hybrid", "mamba", "", "linear_attention");
}

std::vector<SingleLayer> single_layers(const Json& config) {
  constexpr const char* kTypes = "layers_block_type";
  constexpr std::pair<std::string_view, SingleLayer> kNames[] = {
      {"mamba", SingleLayer::kMamba},
      {"attention", SingleLayer::kAttention},
      {"mlp", SingleLayer::kMlp},
      {"moe", SingleLayer::kExperts},
      {"linear_attention", SingleLayer::kMamba},
      {"full_attention", SingleLayer::kAttention}};
  const size_t layers = number_of_layers(config);
  const Json* types = find_value(config, kTypes);
  if (types == nullptr || !types->is_array() || types->size() != layers) {
    fail(ErrorKind::kMalformed, kTypes, ": found ", describe(types), ", expected an array of ",
         layers, " names, one per layer, as num_hidden_layers says");
  }
  std::vector<SingleLayer> found;
  for (const Json& type : *types) {
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const auto& name) { return type == name.first; });
    if (known == std::end(kNames)) {
      fail(ErrorKind::kUnsupported, kTypes, ": layer ", found.size(), " is ", describe(&type),
           "; known: mamba, attention, mlp, moe");
    }
    found.push_back(known->second);
  }
  return found;
}

Json periodic_layer_types(int64_t layers, int64_t period, std::string_view most) {
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    types.push_back((i + 1) % period == 0 ? std::string_view("full_attention") : most);
  }
  return types;
}

std::vector<bool> rotating_layers(const Json& config) {
  const size_t layers = number_of_layers(config);
  const Json* list = find_value(config, "no_rope_layers");
  if (list != nullptr && (!list->is_array() || list->size() != layers)) {
    fail(ErrorKind::kMalformed, "no_rope_layers: found ", describe(list), ", expected an array of ",
         layers, " numbers, one per layer");
  }
  const auto interval =
      static_cast<size_t>(get_int(config, "no_rope_layer_interval", 1, limits::kLayers, 4));
  std::vector<bool> rotates;
  for (size_t layer = 0; layer < layers; ++layer) {
    rotates.push_back(list != nullptr ? (*list)[layer] != 0 : (layer + 1) % interval != 0);
  }
  return rotates;
}

namespace {

// The list `key` of a number for each layer, empty without one; numbers that `fits` refuses are not
// `expected`.
template <typename Number>
std::vector<Number> number_per_layer(const Json& config, const char* key, std::string_view expected,
                                     bool (*fits)(const Json& number)) {
  const size_t layers = number_of_layers(config);
  const Json* list = find_value(config, key);
  if (list == nullptr) return {};
  if (!list->is_array() || list->size() != layers) {
    fail(ErrorKind::kMalformed, key, ": found ", describe(list), ", expected an array of ", layers,
         " numbers, one per layer");
  }
  std::vector<Number> numbers;
  for (const Json& number : *list) {
    if (!fits(number)) {
      fail(ErrorKind::kMalformed, key, ": found ", describe(&number), " for layer ", numbers.size(),
           ", expected ", expected);
    }
    numbers.push_back(number.get<Number>());
  }
  return numbers;
}

}  // namespace

std::vector<int64_t> intermediate_sizes(const Json& config, const char* key) {
  auto sizes = number_per_layer<int64_t>(
      config, key, str("an integer from 1 to ", limits::kDim), [](const Json& number) {
        return number.is_number_integer() && number >= 1 && number <= limits::kDim;
      });
  if (!sizes.empty()) return sizes;
  return std::vector<int64_t>(number_of_layers(config),
                              get_int(config, "intermediate_size", 1, limits::kDim));
}

std::vector<int64_t> heads_of_layers(const Json& config) {
  const int64_t kv_heads = get_int(config, "num_key_value_heads", 1, limits::kHeads);
  auto heads = number_per_layer<int64_t>(
      config, "num_attention_heads_per_layer", str("an integer from 1 to ", limits::kHeads),
      [](const Json& number) {
        return number.is_number_integer() && number >= 1 && number <= limits::kHeads;
      });
  if (heads.empty()) {
    heads.assign(number_of_layers(config),
                 get_int(config, "num_attention_heads", 1, limits::kHeads));
  }
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    if (heads[layer] % kv_heads == 0) continue;
    fail(ErrorKind::kMalformed, "num_attention_heads_per_layer: layer ", layer, " has ",
         heads[layer], " heads, which is no multiple of num_key_value_heads ", kv_heads);
  }
  return heads;
}

std::vector<double> activation_sparsities(const Json& config) {
  auto parts = number_per_layer<double>(
      config, "activation_sparsity_pattern", "a number from 0 and below 1",
      [](const Json& number) { return number.is_number() && number >= 0 && number < 1; });
  return parts.empty() ? std::vector<double>(number_of_layers(config)) : parts;
}

std::vector<size_t> listed_layers(const Json& config, const char* key) {
  const size_t layers = number_of_layers(config);
  const Json* list = find_value(config, key);
  if (list == nullptr) return {};
  std::vector<size_t> listed;
  const bool is_list = list->is_array();
  for (const Json& layer : is_list ? *list : Json::array({*list})) {
    const bool is_number = is_list && layer.is_number_integer() && layer >= 0;
    if (!is_number || layer.get<uint64_t>() >= layers) {
      fail(ErrorKind::kMalformed, key, ": found ", describe(is_list ? &layer : list),
           ", expected an array of layers below ", layers);
    }
    listed.push_back(layer.get<size_t>());
  }
  return listed;
}

std::vector<bool> sparse_layers(const Json& config) {
  const size_t layers = number_of_layers(config);
  const auto step =
      static_cast<size_t>(get_int(config, "decoder_sparse_step", 1, limits::kLayers, 1));
  std::vector<bool> sparse;
  for (size_t layer = 0; layer < layers; ++layer) sparse.push_back((layer + 1) % step == 0);
  for (const size_t layer : listed_layers(config, "mlp_only_layers")) sparse[layer] = false;
  return sparse;
}

int64_t expert_count(const Json& config) {
  const bool is_local = find_value(config, "num_local_experts") != nullptr;
  return get_int(config, is_local ? "num_local_experts" : "num_experts", 0, limits::kExperts, 0);
}

}  // namespace lumen::io
