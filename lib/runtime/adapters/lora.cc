#include "lib/runtime/adapters/lora.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/fused_experts.h"
#include "lib/io/gguf_adapter.h"
#include "lib/io/internlm2.h"
#include "lib/io/mapped_file.h"
#include "lib/io/torch_file.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/head_order.h"
#include "lib/nn/multipliers.h"
#include "lib/nn/rope.h"
#include "lib/runtime/adapters/adapter_names.h"
#include "lib/runtime/adapters/adapter_options.h"
#include "lib/runtime/adapters/fused_additions.h"
#include "lib/runtime/adapters/fused_inputs.h"
#include "lib/runtime/adapters/mlx_adapter.h"
#include "lib/runtime/adapters/stored_layout.h"

namespace lumen::runtime {
namespace {

bool is_addition(const std::string& name) {
  return name.find(".lora_") != name.npos;
}

// Sorts the tensor `name` of the file `place`, where it is called `called`, into `adapter`.
void add_tensor(const std::string& place, const std::string& called, const std::string& name,
                const Array& array, LoraAdapter& adapter) {
  if (!is_float(array.dtype()) && !is_quantized(array.dtype())) {
    fail(ErrorKind::kMalformed, place, ": tensor ", quoted(called), " has type ",
         lumen::name(array.dtype()), ", expected a float type");
  }
  (is_addition(name) ? adapter.tensors : adapter.replaced)[name] = nn::float32_copy(array);
}

// Brings the rows of q and k from one order to the other.
void reorder_rows(NamedArrays& tensors, const io::Json& model_config, bool to_interleaved) {
  const int64_t head_dim = io::get_int(model_config, "head_dim", 2, limits::kDim);
  for (auto& [name, array] : tensors) {
    // A shape that does not fit is named by Parameters::check.
    if (nn::has_rotary_rows(name) && array.shape()[0] % head_dim == 0) {
      array = nn::reorder_rotary_rows(nn::float32_copy(array), head_dim, to_interleaved);
    }
  }
}

// The same of heads in groups (nn/head_order.h).
void reorder_heads(NamedArrays& tensors, const io::Json& model_config, bool to_tiled) {
  for (auto& [name, array] : tensors) {
    if (!nn::has_grouped_heads(name)) continue;
    array = nn::reorder_heads(nn::float32_copy(array), name, model_config, to_tiled);
  }
}

// The same of multipliers, which GGUF has in weights (nn/multipliers.h).
void move_multipliers(LoraAdapter& adapter, const io::Json& model_config, bool from_weights) {
  if (io::get_string(model_config, "model_type", "") != "falcon_h1") return;
  if (io::find_value(model_config, "embedding_multiplier") == nullptr) {
    fail(ErrorKind::kUnsupported, adapter.place,
         ": the multipliers of a Falcon-H1, by which adapters in GGUF and in directories differ, ",
         "are not in the model's GGUF file; its directory has them: lumen-convert makes the one ",
         "adapter of the other with --base DIRECTORY");
  }
  for (NamedArrays* tensors : {&adapter.tensors, &adapter.replaced}) {
    for (auto& [name, array] : *tensors) {
      const std::vector<double> factors = nn::row_multipliers(model_config, name);
      array = nn::with_multipliers(array, factors, from_weights);
    }
  }
}

// Brings what is called as in an InternLM2 to the names of the Llama that it is.
void name_as_llama(LoraAdapter& adapter, const io::Json& model_config) {
  if (io::get_string(model_config, "model_type", "") != "llama") return;
  adapter.tensors = io::internlm2_as_llama(model_config, std::move(adapter.tensors));
  adapter.replaced = io::internlm2_as_llama(model_config, std::move(adapter.replaced));
  std::map<std::string, nn::LoraOptions::Own> own;
  for (const auto& [place, rank] : adapter.options.own) {
    for (const std::string& name : io::internlm2_names_as_llama(place)) own[name] = rank;
  }
  adapter.options.own = std::move(own);
}

LoraAdapter adapter_of_gguf(const std::string& path, const io::Json& model_config) {
  const bool is_weights = path.ends_with(".safetensors") || path.ends_with("adapter_model.bin");
  if (is_weights && !io::read_if_gguf(path)) {
    fail(ErrorKind::kUsage, path, ": the weights of an adapter alone: name its directory, ",
         "which has adapter_config.json too");
  }
  const io::GgufAdapter file = io::read_gguf_adapter(path);
  LoraAdapter adapter;
  adapter.place = io::place_of(path);
  with_context(adapter.place, [&] {
    const std::string architecture = io::gguf_architecture(model_config);
    if (file.architecture != architecture) {
      fail(ErrorKind::kMismatch, "the adapter is for a model of the architecture ",
           quoted(file.architecture), ", this one is ", quoted(architecture));
    }
  });
  for (const auto& [name, array] : file.tensors) {
    add_tensor(adapter.place, name, name, array, adapter);
    // llama.cpp looks rows of it up, [vocab, rank].
    if (!name.ends_with(kLoraA) || !is_embedding(name.substr(0, name.size() - kLoraA.size())))
      continue;
    Array& a = adapter.tensors.at(name);
    if (a.shape().rank() == 2) a = nn::turned(a);
  }
  with_context(adapter.place, [&] { unstack_additions(model_config, adapter.tensors); });
  adapter.options = scaled_by_rank(file.alpha, adapter.tensors);
  name_as_granite_hybrid(model_config, adapter.tensors, adapter.options);
  if (io::gguf_reorders_rotary_rows(file.architecture) &&
      !io::get_bool(model_config, "rope_interleaved", false)) {
    reorder_rows(adapter.tensors, model_config, false);
    reorder_rows(adapter.replaced, model_config, false);
  }
  if (!nn::has_multiplied_weights(model_config)) move_multipliers(adapter, model_config, true);
  if (nn::conv1d_order(model_config) == nn::WeightOrder::kInOut) {
    nn::turn_conv1d_weights(model_config, adapter.replaced);
  }
  if (nn::may_tile_heads(model_config) && !nn::has_tiled_heads(model_config)) {
    reorder_heads(adapter.tensors, model_config, false);
    reorder_heads(adapter.replaced, model_config, false);
  }
  if (nn::has_fused_inputs(model_config) && !nn::has_inputs_apart(model_config)) {
    with_context(adapter.place, [&] {
      join_inputs(model_config, adapter.tensors, &adapter.options);
      join_inputs(model_config, adapter.replaced, nullptr);
    });
  }
  return adapter;
}

LoraAdapter adapter_of_directory(const std::string& directory, const io::Json& model_config) {
  const std::string config_path = directory + "/adapter_config.json";
  if (!io::is_regular_file(config_path)) {
    std::error_code ignored;
    fail(
        ErrorKind::kMissing, quoted(directory),
        io::is_directory(directory)                   ? ": no adapter_config.json"
        : std::filesystem::exists(directory, ignored) ? ": neither a directory nor a regular file"
                                                      : ": no such file or directory",
        "; a LoRA adapter is a directory as PEFT, lumen-train and mlx-lm write it, or a GGUF file");
  }
  LoraAdapter adapter;
  io::Json config = io::read_json(config_path);
  const std::string weights = io::adapter_weights(directory);
  adapter.place = io::place_of(weights);
  NamedArrays tensors = io::read_tensors(weights);
  if (is_mlx_adapter(config)) {
    const io::Json own = config;
    with_context(config_path, [&] { config = peft_config(own); });
    with_context(adapter.place, [&] { tensors = peft_tensors(own, model_config, tensors); });
  }
  FusedAdditions fused(config, model_config);
  std::map<std::string, std::string> paths;
  for (const auto& [full, array] : tensors) {
    if (fused.take(full, array)) continue;
    const std::string name = model_name(full, model_config);
    add_tensor(adapter.place, full, name, array, adapter);
    const std::string own = without_prefix(full);
    if (own == name || !own.ends_with(kLoraA)) continue;
    paths[name.substr(0, name.size() - kLoraA.size())] =
        own.substr(0, own.size() - kLoraA.size() - 1);
  }
  with_context(adapter.place, [&] {
    fused.split(adapter.tensors, paths);
    unstack_additions(model_config, adapter.tensors);
    io::split_experts(model_config, adapter.replaced);
  });
  adapter.experts_are_layers = !fused.has_any();
  with_context(config_path, [&] {
    adapter.options = read_options(config, adapter.tensors, paths);
    adapter.targets = read_targets(config);
  });
  with_context(adapter.place, [&] { name_as_llama(adapter, model_config); });
  reorder_heads_and_rows(adapter.tensors, model_config, true);
  reorder_heads_and_rows(adapter.replaced, model_config, true);
  if (nn::has_multiplied_weights(model_config)) move_multipliers(adapter, model_config, false);
  name_as_granite(model_config, adapter.tensors, adapter.options);
  part_shared_layers(model_config, adapter.tensors, adapter.options);
  if (nn::has_inputs_apart(model_config)) {
    part_inputs(model_config, adapter.tensors, &adapter.options);
    part_inputs(model_config, adapter.replaced, nullptr);
  }
  if (nn::conv1d_order(model_config) == nn::WeightOrder::kOutIn) {
    nn::turn_conv1d_weights(model_config, adapter.replaced);
  }
  for (auto& [name, array] : adapter.replaced) {
    const double shift = norm_shift(model_config, name, 1);
    if (shift != 0) array = shifted(array, -shift);
  }
  return adapter;
}

}  // namespace

LoraAdapter read_adapter(const std::string& path, const io::Json& model_config) {
  return io::is_regular_file(path) ? adapter_of_gguf(path, model_config)
                                   : adapter_of_directory(path, model_config);
}

std::vector<std::string> paths_of_additions(const NamedArrays& tensors) {
  std::vector<std::string> paths;
  for (const auto& [name, array] : tensors) {
    if (name.ends_with(kLoraA)) paths.push_back(name.substr(0, name.size() - kLoraA.size() - 1));
  }
  return paths;
}

std::vector<std::string> lora_targets(const NamedArrays& tensors) {
  std::set<std::string> layers;
  for (const std::string& path : paths_of_additions(tensors)) {
    layers.insert(path.substr(path.rfind('.') + 1));
  }
  return {layers.begin(), layers.end()};
}

void reorder_heads_and_rows(NamedArrays& tensors, const io::Json& model_config, bool to_gguf) {
  if (nn::has_reordered_rows(model_config)) reorder_rows(tensors, model_config, to_gguf);
  if (nn::has_tiled_heads(model_config)) reorder_heads(tensors, model_config, to_gguf);
}

}  // namespace lumen::runtime
