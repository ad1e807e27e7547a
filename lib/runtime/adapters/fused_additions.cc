#include "lib/runtime/adapters/fused_additions.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/backbone_names.h"
#include "lib/io/fused_experts.h"
#include "lib/io/layer_windows.h"
#include "lib/io/write_gguf.h"
#include "lib/ops/ops.h"
#include "lib/runtime/adapters/adapter_names.h"
#include "lib/runtime/adapters/adapter_options.h"
#include "lib/runtime/adapters/joined_additions.h"
#include "lib/runtime/adapters/lora.h"

namespace lumen::runtime {
namespace {

constexpr std::string_view kExperts = ".experts.", kInner = "base_layer.";
constexpr const char *kGateUp = "gate_up_proj", *kUp = "up_proj", *kDown = "down_proj";
constexpr std::string_view kMixtralMlp = ".block_sparse_moe", kMlp = ".mlp";

std::string type_of(const io::Json& model_config) {
  return io::get_string(model_config, "model_type", "");
}

// The names of an expert's own matrices that a parameter is made of.
std::vector<std::string> matrices_of(const io::Json& model_config, std::string_view parameter) {
  const std::vector<std::string> own = expert_matrices(model_config);
  if (parameter == kDown) return {own[2]};
  if (parameter == kUp) return {own[1]};
  return {own[0], own[1]};
}

// Whether PEFT knows the additions to these experts by the names of their own matrices, which
// transformers 4 has and it brings to transformers 5; not to those in a model that sees images.
bool are_named_alone(const io::Json& model_config, const NamedArrays& tensors) {
  constexpr std::string_view kTypes[] = {"mixtral", "minimax_m2", "qwen3_moe", "olmoe"};
  const bool in_part = std::ranges::any_of(tensors, [](const auto& tensor) {
    return !io::name_in_language_model(tensor.first).empty();
  });
  return !in_part && std::ranges::find(kTypes, type_of(model_config)) != std::end(kTypes);
}

// The layer of experts here that is called `layer` in transformers 5, and back.
std::string own_layer(const io::Json& model_config, std::string layer) {
  if (is_mixtral(model_config) && layer.ends_with(kMlp)) {
    layer.replace(layer.size() - kMlp.size(), kMlp.size(), kMixtralMlp);
  }
  return layer;
}
std::string layer_in_peft(const io::Json& model_config, std::string layer) {
  if (is_mixtral(model_config) && layer.ends_with(kMixtralMlp)) {
    layer.replace(layer.size() - kMixtralMlp.size(), kMixtralMlp.size(), kMlp);
  }
  return layer;
}

}  // namespace

bool FusedAdditions::take(std::string_view name, const Array& array) {
  const size_t at = name.find(kExperts);
  if (at == name.npos || !is_float(array.dtype())) return false;
  std::string_view rest = name.substr(at + kExperts.size());
  const bool inner = rest.starts_with(kInner);
  if (inner) rest.remove_prefix(kInner.size());
  if (rest != kLoraA && rest != kLoraB) return false;
  const std::string_view path = name.substr(0, at);
  Layer& layer = layers_[own_layer(model_config_, io::usual_name(model_config_, name_alone(path)))];
  layer.path = without_prefix(path);
  Pair& pair = layer.pairs[inner ? 0 : 1];
  (rest == kLoraA ? pair.a : pair.b) = nn::float32_copy(array);
  return true;
}

void FusedAdditions::split(NamedArrays& tensors, std::map<std::string, std::string>& paths) const {
  for (const auto& [own, layer] : layers_) {
    std::vector<const char*> targets;
    for (const char* target : {kGateUp, kUp, kDown}) {
      if (names_parameter(adapter_config_, str(layer.path, kExperts, target))) {
        targets.push_back(target);
      }
    }
    const auto& pairs = layer.pairs;
    const bool has_inner = !pairs[0].a.empty() || !pairs[0].b.empty();
    if (targets.size() != (has_inner ? 2u : 1u)) {
      fail(ErrorKind::kMalformed, "the adapter has additions to ", has_inner ? "two" : "one",
           " of the parameters of ", quoted(layer.path + ".experts"), ", but target_parameters of ",
           "adapter_config.json names ", targets.size(), " of gate_up_proj and down_proj");
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      const std::string path = str(layer.path, kExperts, targets[i]);
      split(own, path, matrices_of(model_config_, targets[i]), pairs[has_inner ? i : 1], tensors);
      for (const std::string& matrix : matrices_of(model_config_, targets[i])) {
        for (int64_t e = 0; e < io::expert_count(model_config_); ++e) {
          paths[str(own, kExperts, e, ".", matrix, ".")] = path;
        }
      }
    }
  }
}

void FusedAdditions::split(const std::string& own, const std::string& path,
                           const std::vector<std::string>& matrices, const Pair& pair,
                           NamedArrays& tensors) const {
  // Those that are not in turn are one after the other.
  const bool in_turn = io::experts_form(model_config_) == io::ExpertsForm::kInTurn;
  const int64_t experts = io::expert_count(model_config_);
  const auto count = static_cast<int64_t>(matrices.size());
  const bool fits = !pair.a.empty() && !pair.b.empty() && pair.a.shape().rank() == 2 &&
                    pair.b.shape().rank() == 2 && pair.a.shape()[0] == pair.b.shape()[1] &&
                    experts > 0 && pair.a.shape()[0] % experts == 0 &&
                    pair.b.shape()[0] % count == 0;
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
      const std::string place = str(own, kExperts, e, ".", matrices[part], ".");
      tensors[place + std::string(kLoraA)] = std::move(a);
      tensors[place + std::string(kLoraB)] = std::move(b);
    }
  }
}

namespace {

// The additions to one matrix of all experts of a layer, by the number of the expert.
using ExpertAdditions = std::map<int64_t, Addition>;

// Throws unless all of so many experts have one, of one rank and scale, which is all that PEFT and
// GGUF have a form for.
void require_alike(const std::string& path, int64_t experts, const ExpertAdditions& additions) {
  const auto& first = additions.begin()->second;
  bool alike = std::ssize(additions) == experts;
  for (const auto& [expert, one] : additions) {
    alike = alike && expert < experts && !one.a.empty() && !one.b.empty() &&
            one.a.shape() == first.a.shape() && one.b.shape() == first.b.shape() &&
            one.a.shape()[0] == one.b.shape()[1] && one.own.scale == first.own.scale;
  }
  if (alike) return;
  fail(ErrorKind::kUnsupported, "the additions to ", quoted(path),
       " are to some experts alone, or differ in rank or scale: neither PEFT nor GGUF has a form "
       "for that");
}

// The additions to the gates and ups of an expert as one to what has the rows of both.
Addition with_both_rows(const Addition (&parts)[2], bool same_a, bool in_turn) {
  const int64_t rows = (parts[0].b.empty() ? parts[1] : parts[0]).b.shape()[0];
  const JoinedAddition both = joined(parts, {rows, rows}, same_a);
  const int64_t rank = both.own.rank;
  Addition result = {both.a, Array::zeros(DType::kF32, {2 * rows, rank}), both.own};
  if (!parts[0].m.empty() && !parts[1].m.empty()) {
    const graph::Tensor lengths[] = {graph::constant(parts[0].m), graph::constant(parts[1].m)};
    result.m = ops::concat(lengths, 0).eval();
  }
  float* const to = result.b.as_mutable<float>().data();
  for (const int part : {0, 1}) {
    const float* const from = both.b[part].as<float>().data();
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(from + row * rank, rank,
                  to + (in_turn ? 2 * row + part : part * rows + row) * rank);
    }
  }
  return result;
}

ExpertAdditions gates_and_ups(const ExpertAdditions (&parts)[2], bool in_turn) {
  bool same_a = true;
  for (const auto& [expert, gate] : parts[0]) {
    const auto up = parts[1].find(expert);
    same_a = same_a && up != parts[1].end() && have_same_a(gate, up->second);
  }
  ExpertAdditions result;
  for (const auto& [expert, first] : parts[parts[0].empty() ? 1 : 0]) {
    Addition both[2];
    for (const int part : {0, 1}) {
      if (const auto one = parts[part].find(expert); one != parts[part].end()) {
        both[part] = one->second;
      }
    }
    result[expert] = with_both_rows(both, same_a, in_turn);
  }
  return result;
}

void stack(const ExpertAdditions& additions, const std::string& place, NamedArrays& tensors) {
  const auto& first = additions.begin()->second;
  const auto experts = std::ssize(additions);
  const int64_t rank = first.a.shape()[0], in = first.a.shape()[1], out = first.b.shape()[0];
  Array a = Array::zeros(DType::kF32, {experts * rank, in});
  Array b = Array::zeros(DType::kF32, {out, rank * experts});
  float *const to_a = a.as_mutable<float>().data(), *const to_b = b.as_mutable<float>().data();
  for (const auto& [expert, one] : additions) {
    std::ranges::copy(one.a.as<float>(), to_a + expert * rank * in);
    const float* const from = one.b.as<float>().data();
    for (int64_t i = 0; i < out * rank; ++i) to_b[i * experts + expert] = from[i];
  }
  tensors[place + std::string(kLoraA)] = std::move(a);
  tensors[place + std::string(kLoraB)] = std::move(b);
}

// Of each layer, "model.layers.0.mlp", the additions to each matrix, taken out of `tensors`.
using LayerAdditions = std::map<std::string, std::map<std::string, ExpertAdditions>>;

LayerAdditions take_experts(const nn::LoraOptions& options, NamedArrays& tensors) {
  LayerAdditions layers;
  std::erase_if(tensors, [&](const auto& tensor) {
    const auto& [name, array] = tensor;
    const std::optional<int64_t> expert = io::expert_number(name);
    if (!expert) return false;
    const bool is_a = name.ends_with(kLoraA);
    if (!is_a && !name.ends_with(kLoraB)) {
      fail(ErrorKind::kUnsupported, "neither PEFT nor GGUF has a form for ", quoted(name),
           " beside the additions to all experts");
    }
    const std::string place = name.substr(0, name.size() - kLoraA.size());
    const std::string path = place.substr(0, place.size() - 1);
    Addition& one =
        layers[name.substr(0, name.find(kExperts))][path.substr(path.rfind('.') + 1)][*expert];
    (is_a ? one.a : one.b) = array;
    one.own = options.of(place);
    return true;
  });
  return layers;
}

}  // namespace

FusedExperts fuse_additions(const io::Json& model_config, const nn::LoraOptions& options,
                            NamedArrays& tensors) {
  FusedExperts result;
  if (are_named_alone(model_config, tensors)) return result;
  const bool in_turn = io::experts_form(model_config) == io::ExpertsForm::kInTurn;
  const bool has_gates = type_of(model_config) != "nemotron_h";
  for (auto& [own, matrices] : take_experts(options, tensors)) {
    const std::string layer = layer_in_peft(model_config, own);
    int64_t experts = 0;
    for (const auto& [matrix, additions] : matrices) {
      experts = std::max(experts, additions.rbegin()->first + 1);
    }
    std::vector<std::pair<std::string, ExpertAdditions>> parameters;
    for (const char* parameter : {has_gates ? kGateUp : kUp, kDown}) {
      const std::string path = str(layer, kExperts, parameter);
      const std::vector<std::string> names = matrices_of(model_config, parameter);
      ExpertAdditions parts[2];
      for (size_t i = 0; i < names.size(); ++i) {
        parts[i] = std::move(matrices[names[i]]);
        if (!parts[i].empty()) require_alike(path, experts, parts[i]);
      }
      if (parts[0].empty() && parts[1].empty()) continue;
      parameters.emplace_back(
          path, names.size() == 2 ? gates_and_ups(parts, in_turn) : std::move(parts[0]));
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool inner = i + 1 < parameters.size();
      const auto& [path, additions] = parameters[i];
      stack(additions, str(layer, kExperts, inner ? kInner : ""), result.tensors);
      const Addition& first = additions.begin()->second;
      result.parameters.push_back({path, {first.a.shape()[0], first.own.scale}});
    }
  }
  return result;
}

namespace {

constexpr std::string_view kOfExperts = ".experts.*.", kGatesAndUps = ".ffn_gate_up_exps.";

// The matrix of expert `e` of what has those of all, or of its rows the half `part` of `parts`.
Array matrix_of(const Array& all, int64_t e, int64_t part, int64_t parts) {
  const Array own = all.part(e);
  return parts == 1 ? own
                    : own.reshaped({parts, own.shape()[0] / parts, own.shape()[1]}).part(part);
}

// One behind the other.
Array stacked(const ExpertAdditions& additions, int64_t experts, Array Addition::*factor) {
  const Shape& shape = (additions.begin()->second.*factor).shape();
  Array all = Array::zeros(DType::kF32, {experts, shape[0], shape[1]});
  for (const auto& [expert, one] : additions) {
    std::ranges::copy((one.*factor).as<float>(),
                      all.as_mutable<float>().data() + expert * shape.elements());
  }
  return all;
}

}  // namespace

void unstack_additions(const io::Json& model_config, NamedArrays& tensors) {
  NamedArrays parts;
  std::erase_if(tensors, [&](const auto& tensor) {
    const auto& [name, array] = tensor;
    const bool both = name.find(kGatesAndUps) != name.npos, is_b = name.ends_with(kLoraB);
    if ((!io::is_stack(name) && !both) || !(is_b || name.ends_with(kLoraA))) return false;
    const std::string layer = name.substr(0, name.size() - kLoraA.size());
    std::vector<std::string> names = {layer};
    if (both) {
      names.clear();
      for (std::string part : io::gguf_gate_and_up(layer + "weight", model_config)) {
        if (part.empty()) return false;
        names.push_back(part.substr(0, part.rfind('.') + 1));
      }
    }
    const int64_t rows = is_b ? std::ssize(names) : 1;  // B has those of all
    if (array.shape().rank() != 3 || array.shape()[1] % rows != 0) {
      fail(ErrorKind::kMalformed, "the addition ", quoted(name), " has shape ",
           to_string(array.shape()), ", expected ",
           is_b ? "[experts, out, rank]" : "[experts, rank, in]");
    }
    for (int64_t e = 0; e < array.shape()[0]; ++e) {
      for (int64_t part = 0; part < std::ssize(names); ++part) {
        const std::string place = io::name_in_stack(names[part], e);
        parts[str(place, is_b ? kLoraB : kLoraA)] = matrix_of(array, e, is_b ? part : 0, rows);
      }
    }
    return true;
  });
  tensors.merge(parts);
  if (parts.empty()) return;
  fail(ErrorKind::kMalformed, "the addition ", quoted(parts.begin()->first),
       " is there twice, alone and in one to all experts");
}

void stack_additions(const io::Json& model_config, std::string_view architecture,
                     nn::LoraOptions& options, NamedArrays& tensors) {
  const std::string up = "blk.0.ffn_up_exps.weight";
  const bool joins = io::gguf_holding_tensor(up, architecture) != up;
  const int64_t experts = io::expert_count(model_config);
  for (auto& [layer, matrices] : take_experts(options, tensors)) {
    if (joins) {
      const std::vector<std::string> names = matrices_of(model_config, kGateUp);
      ExpertAdditions parts[2] = {std::move(matrices[names[0]]), std::move(matrices[names[1]])};
      for (const int part : {0, 1}) {
        const std::string place =
            str(layer, kOfExperts, names[static_cast<size_t>(part)], ".weight");
        if (!parts[part].empty()) require_alike(place, experts, parts[part]);
      }
      matrices.erase(names[1]);
      matrices[names[0]] = gates_and_ups(parts, false);
    }
    for (const auto& [matrix, additions] : matrices) {
      if (additions.empty()) continue;
      const std::string place = str(layer, kOfExperts, matrix, ".");
      require_alike(place + "weight", experts, additions);
      tensors[str(place, kLoraA)] = stacked(additions, experts, &Addition::a);
      tensors[str(place, kLoraB)] = stacked(additions, experts, &Addition::b);
      const Addition& first = additions.begin()->second;
      options.own[place] = {first.a.shape()[0], first.own.scale};
    }
  }
}

namespace {

constexpr std::string_view kGateLayer = ".shared_mlp.gate_proj.", kUpLayer = ".shared_mlp.up_proj.",
                           kDownLayer = ".shared_mlp.down_proj.",
                           kInput = ".shared_mlp.input_linear.",
                           kOutput = ".shared_mlp.output_linear.";

bool has_shared_layers(const io::Json& model_config) {
  const std::string type = type_of(model_config);
  return type.starts_with("granitemoe") && type != "granitemoe_swa" &&
         io::expert_count(model_config) > 0;
}

// `name` with `to` in the place of `from`, "" if that is not in it.
std::string with_layer(std::string_view name, std::string_view from, std::string_view to) {
  const size_t at = name.find(from);
  if (at == name.npos) return "";
  return str(name.substr(0, at), to, name.substr(at + from.size()));
}

// Of the rows of two layers, of a matrix or of magnitudes, those of the one.
Array half_of(const Array& array, int64_t part) {
  const Shape& shape = array.shape();
  const int64_t rows = shape[0] / 2;
  return array.reshaped(shape.rank() == 1 ? Shape{2, rows} : Shape{2, rows, shape[1]}).part(part);
}

}  // namespace

std::string shared_layer_name(const io::Json& model_config, std::string_view name) {
  if (!has_shared_layers(model_config)) return "";
  for (const std::string_view part : {kGateLayer, kUpLayer, kDownLayer}) {
    std::string stored = with_layer(name, part, part == kDownLayer ? kOutput : kInput);
    if (!stored.empty()) return stored;
  }
  return "";
}

void part_shared_layers(const io::Json& model_config, NamedArrays& tensors,
                        nn::LoraOptions& options) {
  if (!has_shared_layers(model_config)) return;
  NamedArrays parts;
  std::erase_if(tensors, [&](const auto& tensor) {
    const auto& [name, array] = tensor;
    if (const std::string down = with_layer(name, kOutput, kDownLayer); !down.empty()) {
      parts[down] = array;
      return true;
    }
    const std::string gate = with_layer(name, kInput, kGateLayer);
    if (gate.empty()) return false;
    const int rank = array.shape().rank();
    // Those that do not fit are told of with the shape that they should have.
    const bool fits = (rank == 1 || rank == 2) && array.shape()[0] % 2 == 0;
    const bool whole = name.ends_with(kLoraA) || !fits;
    parts[gate] = whole ? array : half_of(array, 0);
    parts[with_layer(name, kInput, kUpLayer)] = whole ? array : half_of(array, 1);
    return true;
  });
  tensors.merge(parts);
  std::map<std::string, nn::LoraOptions::Own> own;
  for (const auto& [place, rank] : options.own) {
    const std::string gate = with_layer(place, kInput, kGateLayer),
                      down = with_layer(place, kOutput, kDownLayer);
    own[!gate.empty() ? gate : !down.empty() ? down : place] = rank;
    if (!gate.empty()) own[with_layer(place, kInput, kUpLayer)] = rank;
  }
  options.own = std::move(own);
}

void join_shared_layers(const io::Json& model_config, NamedArrays& tensors,
                        nn::LoraOptions& options) {
  if (!has_shared_layers(model_config)) return;
  NamedArrays joint;
  std::map<std::string, nn::LoraOptions::Own> own;
  std::map<std::string, std::array<Addition, 2>> inputs;  // by the place of input_linear
  std::erase_if(tensors, [&](const auto& tensor) {
    const auto& [name, array] = tensor;
    const std::string stored = shared_layer_name(model_config, name);
    if (stored.empty() || name.find(".lora_") == name.npos) return false;
    const std::string own_place = name.substr(0, name.rfind("lora_")),
                      place = stored.substr(0, stored.rfind("lora_"));
    if (name.find(kDownLayer) != name.npos) {
      joint[stored] = array;
      own[place] = options.of(own_place);
      return true;
    }
    Addition& part = inputs[place][name.find(kGateLayer) != name.npos ? 0 : 1];
    (name.ends_with(kLoraA) ? part.a : name.ends_with(kLoraB) ? part.b : part.m) = array;
    part.own = options.of(own_place);
    return true;
  });
  for (const auto& [place, parts] : inputs) {
    const Addition both[2] = {parts[0], parts[1]};
    const Addition whole = with_both_rows(both, have_same_a(both[0], both[1]), false);
    joint[place + std::string(kLoraA)] = whole.a;
    joint[place + std::string(kLoraB)] = whole.b;
    if (!whole.m.empty()) joint[place + std::string(kMagnitude)] = whole.m;
    own[place] = {whole.a.shape()[0], whole.own.scale};
  }
  tensors.merge(joint);
  std::erase_if(options.own, [&](const auto& one) {
    return !shared_layer_name(model_config, one.first).empty();
  });
  for (const auto& [place, rank] : own) {
    if (rank.rank != options.rank || rank.scale != options.scale) options.own[place] = rank;
  }
}

}  // namespace lumen::runtime
