#include "lib/runtime/lora.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/backbone_names.h"
#include "lib/io/fused_experts.h"
#include "lib/io/gguf_adapter.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/torch_file.h"
#include "lib/io/write_gguf.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/head_order.h"
#include "lib/nn/multipliers.h"
#include "lib/nn/rope.h"
#include "lib/ops/ops.h"
#include "lib/runtime/fused_inputs.h"
#include "lib/runtime/mlx_adapter.h"
#include "lib/runtime/stored_layout.h"
#include "lib/text/regex.h"

namespace lumen::runtime {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kMagnitude = "lora_magnitude_vector";  // of DoRA
constexpr std::string_view kHead = "lm_head.";
constexpr const char* kEmbeddings[] = {"model.embed_tokens.weight", "transformer.wte.weight"};
constexpr const char* kInstead =
    "; merge it into the model with PEFT (merge_and_unload), if that can be";

// Keys with which PEFT computes something else than W + scale B A, and what that is called.
constexpr std::pair<const char*, const char*> kOtherMethods[] = {
    {"use_qalora", "QA-LoRA adapters"},
    {"use_bdlora", "block-diagonal adapters"},
    {"alora_invocation_tokens", "activated adapters, which begin at given tokens,"},
    {"arrow_config", "adapters that Arrow chooses for each token"},
    {"kasa_config", "KaSA adapters"},
    {"monteclora_config", "MonteCLoRA adapters"},
    {"lora_bias", "biases of lora_B"},
    {"layer_replication", "models with repeated layers"},
    {"trainable_token_indices", "adapters with single rows of the embedding"}};

// A member that is there and not null, false or empty.
bool is_set(const io::Json& config, const char* key) {
  const io::Json* value = io::find_value(config, key);
  return value != nullptr && (value->is_boolean() ? value->get<bool>() : !value->empty());
}

bool is_addition(const std::string& name) {
  return name.find(".lora_") != name.npos;
}

// Mixtral, and what has its names.
bool is_mixtral(const io::Json& model_config) {
  const std::string type = io::get_string(model_config, "model_type", "");
  return type == "mixtral" || type == "minimax_m2" || type == "phimoe";
}

std::string without_prefix(std::string_view name) {
  return std::string(name.substr(name.starts_with(kPrefix) ? kPrefix.size() : 0));
}

// A name of the file as it is in the language model alone.
std::string name_alone(std::string_view name) {
  const std::string own = without_prefix(name), alone = io::name_in_language_model(own);
  return alone.empty() ? own : alone;
}

// The model's name of a tensor of the file. PEFT has a layer with an addition as "base_layer" in
// it, if biases or the embedding are saved too, and calls an embedding's addition otherwise.
std::string model_name(std::string_view full, const io::Json& model_config) {
  constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
      {".base_layer.", "."},
      {".lora_embedding_A", ".lora_A.weight"},
      {".lora_embedding_B", ".lora_B.weight"},
      {".lora_magnitude_vector.weight", ".lora_magnitude_vector"}};
  std::string name = name_alone(full);
  for (const auto& [from, to] : kSpellings) {
    if (const size_t at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
  }
  // transformers 5 has other names than files.
  for (const std::string_view router : {".mlp.gate.", ".mlp.router."}) {
    if (const size_t at = name.find(router); at != name.npos && is_mixtral(model_config)) {
      name.replace(at, router.size(), ".block_sparse_moe.gate.");
    }
  }
  return io::usual_name(model_config, std::move(name));
}

bool is_embedding(std::string_view place) {
  return std::ranges::any_of(kEmbeddings, [&](std::string_view name) {
    return name.starts_with(place) && name.substr(place.size()) == "weight";
  });
}

// Additions to the experts of a layer as PEFT has them for transformers 5, where those are one
// parameter for gates and ups and one for downs (target_parameters), each with an A [experts ·
// rank, in] and a B [out, rank · experts]. Of two targets the first is "experts.base_layer", the
// other, or a single one, "experts".
class FusedAdditions {
 public:
  FusedAdditions(const io::Json& adapter_config, const io::Json& model_config)
      : adapter_config_(adapter_config), model_config_(model_config) {}

  // Takes the tensor of the file if it is of such an addition and of floats.
  bool take(std::string_view name, const Array& array) {
    constexpr std::string_view kExperts = ".experts.", kInner = "base_layer.";
    const size_t at = name.find(kExperts);
    if (at == name.npos || !is_float(array.dtype())) return false;
    std::string_view rest = name.substr(at + kExperts.size());
    const bool inner = rest.starts_with(kInner);
    if (inner) rest.remove_prefix(kInner.size());
    if (rest != kLoraA && rest != kLoraB) return false;
    Pair& pair = layers_[name_alone(name.substr(0, at))][inner ? 0 : 1];
    (rest == kLoraA ? pair.a : pair.b) = nn::float32_copy(array);
    return true;
  }

  // Puts additions to each expert's own matrices into `tensors`, and into `paths` what PEFT calls
  // the parameters that they are of.
  void split(NamedArrays& tensors, std::map<std::string, std::string>& paths) const {
    for (const auto& [layer, pairs] : layers_) {
      std::vector<const char*> targets;
      for (const char* target : {"gate_up_proj", "down_proj"}) {
        if (is_target(str(layer, ".experts.", target))) targets.push_back(target);
      }
      const bool has_inner = !pairs[0].a.empty() || !pairs[0].b.empty();
      if (targets.size() != (has_inner ? 2u : 1u)) {
        fail(ErrorKind::kMalformed, "the adapter has additions to ", has_inner ? "two" : "one",
             " of the parameters of ", quoted(layer + ".experts"), ", but target_parameters of ",
             "adapter_config.json names ", targets.size(), " of gate_up_proj and down_proj");
      }
      for (size_t i = 0; i < targets.size(); ++i) {
        split(layer, targets[i], pairs[has_inner ? i : 1], tensors, paths);
      }
    }
  }

 private:
  struct Pair {
    Array a, b;
  };

  bool is_target(const std::string& path) const {
    const io::Json* targets = io::find_value(adapter_config_, "target_parameters");
    if (targets == nullptr || !targets->is_array()) return false;
    return std::ranges::any_of(*targets, [&](const io::Json& target) {
      if (!target.is_string()) return false;
      const auto& name = target.get_ref<const std::string&>();
      return path == name || path.ends_with("." + name);
    });
  }

  void split(const std::string& layer, const std::string& target, const Pair& pair,
             NamedArrays& tensors, std::map<std::string, std::string>& paths) const {
    const bool mixtral = is_mixtral(model_config_), down = target == "down_proj";
    // Those that are not in turn are one after the other.
    const bool in_turn = io::experts_form(model_config_) == io::ExpertsForm::kInTurn;
    const int64_t experts = io::expert_count(model_config_);
    const std::string path = str(layer, ".experts.", target);
    const std::vector<const char*> parts =
        down ? std::vector{mixtral ? "w2" : "down_proj"}
             : std::vector{mixtral ? "w1" : "gate_proj", mixtral ? "w3" : "up_proj"};
    const auto count = static_cast<int64_t>(parts.size());
    const bool fits = !pair.a.empty() && !pair.b.empty() && pair.a.shape().rank() == 2 &&
                      pair.b.shape().rank() == 2 && pair.a.shape()[0] == pair.b.shape()[1] &&
                      pair.a.shape()[0] % experts == 0 && pair.b.shape()[0] % count == 0;
    if (!fits) {
      fail(ErrorKind::kMismatch, "the addition to ", quoted(path), " has shapes ",
           to_string(pair.a.shape()), " and ", to_string(pair.b.shape()),
           ", expected [experts · rank, in] and [out, rank · experts] of ", experts, " experts");
    }
    const int64_t rank = pair.a.shape()[0] / experts, in = pair.a.shape()[1];
    const int64_t out = pair.b.shape()[0] / count;
    const auto from_a = pair.a.as<float>(), from_b = pair.b.as<float>();
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t part = 0; part < count; ++part) {
        Array a = Array::zeros(DType::kF32, {rank, in}), b = Array::zeros(DType::kF32, {out, rank});
        std::copy_n(from_a.data() + e * rank * in, rank * in, a.as_mutable<float>().data());
        float* to = b.as_mutable<float>().data();
        for (int64_t row = 0; row < out; ++row) {
          const int64_t at = in_turn ? row * count + part : part * out + row;
          for (int64_t k = 0; k < rank; ++k) *to++ = from_b[(at * rank + k) * experts + e];
        }
        const std::string place =
            str(mixtral ? layer.substr(0, layer.rfind(".mlp")) + ".block_sparse_moe" : layer,
                ".experts.", e, ".", parts[static_cast<size_t>(part)], ".");
        tensors[place + std::string(kLoraA)] = std::move(a);
        tensors[place + std::string(kLoraB)] = std::move(b);
        paths[place] = path;
      }
    }
  }

  const io::Json &adapter_config_, &model_config_;
  std::map<std::string, std::array<Pair, 2>> layers_;  // by the layer; inner, outer
};

// Sorts the tensor `name` of the file `place`, where it is called `called`, into `adapter`.
void add_tensor(const std::string& place, const std::string& called, const std::string& name,
                const Array& array, LoraAdapter& adapter) {
  if (!is_float(array.dtype()) && !is_quantized(array.dtype())) {
    fail(ErrorKind::kMalformed, place, ": tensor ", quoted(called), " has type ",
         lumen::name(array.dtype()), ", expected a float type");
  }
  (is_addition(name) ? adapter.tensors : adapter.replaced)[name] = nn::float32_copy(array);
}

// The value of a pattern in `config` that fits the layer `path`, like PEFT the first; or
// `fallback`.
double pattern_value(const io::Json& config, const char* key, const std::string& path,
                     double fallback) {
  const io::Json* patterns = io::find_value(config, key);
  if (patterns == nullptr) return fallback;
  for (const auto& [pattern, value] : patterns->items()) {
    const text::Regex regex("^(?:.*\\.)?(?:" + pattern + ")$");
    bool fits = false;
    text::RegexMatcher(regex).find_all(path, [&](size_t, size_t) { fits = true; });
    if (fits) return io::get_number(*patterns, pattern, 0, 1e9);
  }
  return fallback;
}

// Refuses what is not W + scale B A with the W of the model.
void check_method(const io::Json& config) {
  for (const auto& [key, what] : kOtherMethods) {
    if (!is_set(config, key)) continue;
    fail(ErrorKind::kUnsupported, key, ": ", what, " are not supported", kInstead);
  }
  const io::Json* init = io::find_value(config, "init_lora_weights");
  if (init == nullptr || !init->is_string()) return;
  const auto name = init->get<std::string>();
  for (const char* known : {"gaussian", "orthogonal", "eva"}) {
    if (name == known) return;
  }
  fail(ErrorKind::kUnsupported, "init_lora_weights is ", quoted(name),
       ", which changes the model's own weights before the adapter is added; save it for the "
       "unchanged ones (PEFT: save_pretrained with path_initial_model_for_weight_conversion)");
}

// `paths` are what PEFT calls the places that it calls otherwise.
nn::LoraOptions read_options(const io::Json& config, const NamedArrays& tensors,
                             const std::map<std::string, std::string>& paths) {
  const std::string type = io::get_string(config, "peft_type", "LORA");
  if (type != "LORA") {
    fail(ErrorKind::kUnsupported, "peft_type ", quoted(type), " is not supported; known: LORA");
  }
  check_method(config);
  nn::LoraOptions options;
  options.rank = io::get_int(config, "r", 1, limits::kDim);
  const double alpha = io::get_number(config, "lora_alpha", 0, 1e9);
  const bool rslora = io::get_bool(config, "use_rslora", false);
  options.scale = nn::lora_scale(alpha, options.rank, rslora);
  for (const auto& [name, array] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const std::string place = name.substr(0, name.size() - kLoraA.size());  // "….q_proj."
    const auto other = paths.find(place);
    const std::string path =
        other != paths.end() ? other->second : place.substr(0, place.size() - 1);
    const double own_alpha = pattern_value(config, "alpha_pattern", path, alpha);
    const auto rank = static_cast<int64_t>(
        pattern_value(config, "rank_pattern", path, static_cast<double>(options.rank)));
    if (rank < 1) fail(ErrorKind::kMalformed, "rank_pattern: ", quoted(path), " has no rank");
    if (own_alpha == alpha && rank == options.rank) continue;
    options.own[place] = {rank, nn::lora_scale(own_alpha, rank, rslora)};
  }
  return options;
}

// target_modules, if it is a list that is meant for every layer: not a regular expression, not for
// some layers only.
std::vector<std::string> read_targets(const io::Json& config) {
  std::vector<std::string> targets;
  const io::Json* modules = io::find_value(config, "target_modules");
  if (modules == nullptr || !modules->is_array()) return targets;
  for (const char* key : {"layers_to_transform", "layers_pattern", "exclude_modules"}) {
    if (is_set(config, key)) return targets;
  }
  for (const io::Json& module : *modules) {
    if (module.is_string()) targets.push_back(module.get<std::string>());
  }
  return targets;
}

// The ranks and scales of an addition B A · alpha / rank, where rank is what A has.
nn::LoraOptions scaled_by_rank(double alpha, const NamedArrays& tensors) {
  nn::LoraOptions options;
  for (const auto& [name, array] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const int64_t rank = array.shape()[0];
    const double scale = alpha == 0 ? 1 : nn::lora_scale(alpha, rank, false);
    if (options.rank == 0) options.rank = rank, options.scale = scale;
    if (rank != options.rank)
      options.own[name.substr(0, name.size() - kLoraA.size())] = {rank, scale};
  }
  return options;
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
    with_context(config_path, [&] { config = peft_config(config); });
    with_context(adapter.place, [&] { tensors = peft_tensors(tensors); });
  }
  FusedAdditions fused(config, model_config);
  std::map<std::string, std::string> paths;
  for (const auto& [full, array] : tensors) {
    if (fused.take(full, array)) continue;
    const std::string name = model_name(full, model_config);
    add_tensor(adapter.place, full, name, array, adapter);
    const std::string own = without_prefix(full);
    const bool differs = io::has_backbone(model_config) || !io::name_in_language_model(own).empty();
    if (!differs || !name.ends_with(kLoraA)) continue;
    paths[name.substr(0, name.size() - kLoraA.size())] =
        own.substr(0, own.size() - kLoraA.size() - 1);
  }
  with_context(adapter.place, [&] { fused.split(adapter.tensors, paths); });
  with_context(config_path, [&] {
    adapter.options = read_options(config, adapter.tensors, paths);
    adapter.targets = read_targets(config);
  });
  reorder_heads_and_rows(adapter.tensors, model_config, true);
  reorder_heads_and_rows(adapter.replaced, model_config, true);
  if (nn::has_multiplied_weights(model_config)) move_multipliers(adapter, model_config, false);
  name_as_granite(model_config, adapter.tensors, adapter.options);
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

LoraAdapter read_adapter(const std::string& path, const io::Json& model_config) {
  return io::is_regular_file(path) ? adapter_of_gguf(path, model_config)
                                   : adapter_of_directory(path, model_config);
}

std::string lacking_addition(const LoraAdapter& adapter, const NamedArrays& model_tensors) {
  constexpr std::string_view kWeight = ".weight", kExperts = ".experts.";
  // For PEFT experts are no layers, so that the names of other layers do not mean them.
  const bool to_experts = std::ranges::any_of(adapter.tensors, [&](const auto& tensor) {
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

std::vector<std::string> lora_targets(const NamedArrays& tensors) {
  std::set<std::string> layers;
  for (const auto& [name, array] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const std::string path = name.substr(0, name.size() - kLoraA.size() - 1);
    layers.insert(path.substr(path.rfind('.') + 1));
  }
  return {layers.begin(), layers.end()};
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

void reorder_heads_and_rows(NamedArrays& tensors, const io::Json& model_config, bool to_gguf) {
  if (nn::has_reordered_rows(model_config)) reorder_rows(tensors, model_config, to_gguf);
  if (nn::has_tiled_heads(model_config)) reorder_heads(tensors, model_config, to_gguf);
}

}  // namespace lumen::runtime
