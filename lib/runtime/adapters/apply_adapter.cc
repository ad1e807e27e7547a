#include "lib/runtime/adapters/apply_adapter.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/error.h"
#include "lib/io/write_gguf.h"
#include "lib/nn/conv1d.h"
#include "lib/ops/ops.h"
#include "lib/runtime/adapters/adapter_names.h"

namespace lumen::runtime {
namespace {

constexpr std::string_view kHead = "lm_head.";

// The model's weight at `place` with the addition worked in, as PEFT's merge_and_unload has it:
// W + scale · B A, with a magnitude m (DoRA, Liu et al. 2024) the rows of that, one for each
// output, brought to the length m. Embeddings have a column per output, and so have GPT-2's layers,
// but in GGUF. Rounded to the weight's type, of a quantised one to float16.
Array worked_in(const LoraAdapter& adapter, const std::string& place, const Array& weight,
                const io::Json& model_config) {
  const auto find = [&](std::string_view name) {
    const auto found = adapter.tensors.find(place + std::string(name));
    return found == adapter.tensors.end() ? Array() : found->second;
  };
  const auto misfit = [&](std::string_view name, const Shape& expected) {
    const Array found = find(name);
    if (!found.empty() && found.shape() == expected) return;
    fail(!found.empty() ? ErrorKind::kMismatch : ErrorKind::kMalformed, "the adapter's ",
         quoted(place + std::string(name)), !found.empty() ? " has shape " : " is missing",
         !found.empty() ? to_string(found.shape()) : "", ", expected ", to_string(expected));
  };
  const bool in_out =
      is_embedding(place) || (nn::is_conv1d_weight(model_config, place + "weight", weight) &&
                              nn::conv1d_order(model_config) == nn::WeightOrder::kInOut);
  const auto [rank, scale] = adapter.options.of(place);
  const Shape& shape = weight.shape();
  if (shape.rank() != 2) {
    fail(ErrorKind::kMismatch, "the adapter has an addition to ", quoted(place + "weight"),
         ", which is no matrix");
  }
  const int64_t in = shape[in_out ? 0 : 1], out = shape[in_out ? 1 : 0];
  misfit(kLoraA, {rank, in});
  misfit(kLoraB, {out, rank});
  using graph::constant;
  graph::Tensor addition = ops::matmul(constant(find(kLoraB)), constant(find(kLoraA)));
  if (in_out) addition = graph::permute(addition, {1, 0});
  graph::Tensor sum = ops::add(constant(nn::float32_copy(weight)), ops::mul(addition, scale));
  if (const Array magnitude = find(kMagnitude); !magnitude.empty()) {
    misfit(kMagnitude, {out});
    const int axis = in_out ? 0 : 1;
    const graph::Tensor length = ops::sqrt(ops::sum(ops::mul(sum, sum), {axis}, true));
    const graph::Tensor m = graph::reshape(constant(magnitude), length.shape());
    sum = ops::mul(sum, ops::div(m, length));
  }
  const DType dtype = is_quantized(weight.dtype()) ? DType::kF16 : weight.dtype();
  return nn::stored_as(sum.eval(), dtype);
}

void work_in(LoraAdapter& adapter, const io::Json& model_config, NamedArrays& tensors) {
  for (const std::string& place : places_in_weights(adapter)) {
    const auto weight = tensors.find(place + "weight");
    if (weight == tensors.end()) {
      fail(ErrorKind::kMismatch, "the adapter has an addition to ", quoted(place + "weight"),
           ", the model has no such tensor");
    }
    weight->second = worked_in(adapter, place, weight->second, model_config);
    for (const std::string_view part : {kLoraA, kLoraB, kMagnitude}) {
      adapter.tensors.erase(place + std::string(part));
    }
  }
}

}  // namespace

std::string lacking_addition(const LoraAdapter& adapter, const NamedArrays& model_tensors) {
  constexpr std::string_view kWeight = ".weight", kExperts = ".experts.";
  // For PEFT experts are no layers, so that the names of other layers do not mean them.
  const bool to_experts =
      adapter.experts_are_layers && std::ranges::any_of(adapter.tensors, [&](const auto& tensor) {
        return tensor.first.find(kExperts) != tensor.first.npos;
      });
  for (const auto& [name, array] : model_tensors) {
    // What is replaced has no addition, also if it is named for one.
    if (!name.ends_with(kWeight) || adapter.replaced.contains(name)) continue;
    if (!to_experts && name.find(kExperts) != name.npos) continue;
    const std::string path = name.substr(0, name.size() - kWeight.size());
    for (const std::string& target : adapter.targets) {
      if (!path.ends_with(str(".", target)) && path != target) continue;
      std::string addition = str(path, ".", kLoraA);
      if (!adapter.tensors.contains(addition)) return addition;
    }
  }
  return "";
}

void check_complete(const LoraAdapter& adapter, const NamedArrays& model_tensors) {
  if (adapter.tensors.empty() && adapter.replaced.empty()) {
    fail(ErrorKind::kMalformed, "the adapter has no tensors");
  }
  for (const auto& [name, array] : adapter.tensors) {
    if (!name.ends_with(kLoraA) || array.shape().rank() != 2) continue;
    const auto weight =
        model_tensors.find(str(name.substr(0, name.size() - kLoraA.size()), "weight"));
    if (weight == model_tensors.end() || weight->second.shape().rank() != 2) continue;
    const Shape& shape = weight->second.shape();  // GPT-2's are the other way round
    if (const int64_t width = array.shape()[1]; width == shape[0] || width == shape[1]) continue;
    fail(ErrorKind::kMismatch, "the adapter is of another model: ", quoted(name), " has shape ",
         to_string(array.shape()), ", the layer's weight ", to_string(shape));
  }
  const std::string missing = lacking_addition(adapter, model_tensors);
  if (missing.empty()) return;
  fail(ErrorKind::kMalformed, "adapter_model.safetensors has no ", quoted(missing),
       ", but target_modules of adapter_config.json names its layer: is the file complete?");
}

void untie_head(const LoraAdapter& adapter, io::Json& model_config, NamedArrays& tensors) {
  if (!io::get_bool(model_config, "tie_word_embeddings", false)) return;
  const auto is_of_head = [](const auto& entry) { return entry.first.starts_with(kHead); };
  const NamedArrays& replaced = adapter.replaced;
  bool differs = std::any_of(replaced.begin(), replaced.end(), is_of_head) ||
                 std::any_of(adapter.tensors.begin(), adapter.tensors.end(), is_of_head);
  for (const std::string_view name : kEmbeddings) {
    const std::string place(name.substr(0, name.size() - std::string_view("weight").size()));
    differs = differs || replaced.contains(std::string(name)) ||
              adapter.tensors.contains(place + std::string(kLoraA));
  }
  for (const char* name : kEmbeddings) {
    const auto embedding = tensors.find(name);
    if (!differs || embedding == tensors.end()) continue;
    tensors[str(kHead, "weight")] = embedding->second;
    model_config["tie_word_embeddings"] = false;
  }
}

void replace_tensors(const NamedArrays& replaced, NamedArrays& tensors) {
  for (const auto& [name, array] : replaced) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      fail(ErrorKind::kMismatch, "the adapter has ", quoted(name),
           ", the model has no such tensor");
    }
    if (!(found->second.shape() == array.shape())) {
      fail(ErrorKind::kMismatch, "the adapter's ", quoted(name), " has shape ",
           to_string(array.shape()), ", the model's ", to_string(found->second.shape()));
    }
    found->second = array;
  }
}

std::vector<std::string> places_in_weights(const LoraAdapter& adapter) {
  std::set<std::string> places;
  for (const auto& [name, array] : adapter.tensors) {
    const std::string place = name.substr(0, name.rfind(".lora_") + 1);
    const bool is_stacked = io::number_in_stack(place).has_value();  // with other matrices in GGUF
    if (name.ends_with(kMagnitude) || is_embedding(place) || is_stacked) places.insert(place);
  }
  return {places.begin(), places.end()};
}

void apply_adapter(LoraAdapter& adapter, io::Json& model_config, NamedArrays& tensors) {
  check_complete(adapter, tensors);
  untie_head(adapter, model_config, tensors);
  replace_tensors(adapter.replaced, tensors);
  work_in(adapter, model_config, tensors);
}

}  // namespace lumen::runtime
