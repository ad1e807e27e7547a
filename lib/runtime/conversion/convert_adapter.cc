// lumen-convert ADAPTER OUTPUT: LoRA adapters as PEFT has them to GGUF, and back.
#include <algorithm>
#include <cmath>
#include <map>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/backbone_names.h"
#include "lib/io/gguf_adapter.h"
#include "lib/io/mapped_file.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/head_order.h"
#include "lib/nn/multipliers.h"
#include "lib/runtime/adapters/adapter_names.h"
#include "lib/runtime/adapters/adapter_options.h"
#include "lib/runtime/adapters/apply_adapter.h"
#include "lib/runtime/adapters/lora.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/conversion/conversion.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/generation/weights.h"
#include "lib/runtime/tool/output_directory.h"
#include "lib/runtime/training/export_model.h"

namespace lumen::runtime {
namespace {

constexpr std::string_view kWeightB = ".lora_B.weight";

// The name of the model that the adapter in `path` is for.
std::string base_name(const std::string& path, const ConvertOptions& options) {
  if (options.base) return *options.base;
  std::string base;
  if (!io::is_regular_file(path)) base = io::base_of_adapter(path);
  if (base.empty()) {
    fail(ErrorKind::kUsage, quoted(path),
         " does not say which model it is for: name that with --base MODEL");
  }
  with_context(str("the base model of ", io::place_of(path), ", whose place --base MODEL can name"),
               [&] { find_model(base); });
  return base;
}

bool have_same_numbers(const Array& a, const Array& b) {
  const bool are_numbers = is_float(b.dtype()) || is_quantized(b.dtype());
  if (a.shape() != b.shape() || !are_numbers) return false;
  const Array x = nn::float32_copy(a), y = nn::float32_copy(b);
  return std::ranges::equal(x.as<float>(), y.as<float>());
}

// Takes the addition to the embedding, which is no layer for checked_parameters, out of the
// adapter. Throws unless it fits.
void take_embedding(LoraAdapter& adapter, const NamedArrays& model_tensors) {
  for (const std::string name : kEmbeddings) {
    const std::string place = name.substr(0, name.rfind('.') + 1);
    const auto a = adapter.tensors.extract(str(place, kLoraA));
    const auto b = adapter.tensors.extract(str(place, kLoraB));
    if (a.empty() && b.empty()) continue;
    const auto found = model_tensors.find(name);
    if (found == model_tensors.end()) {
      fail(ErrorKind::kMismatch, "the adapter has an addition to ", quoted(name),
           ", the model has no such tensor");
    }
    const Shape& weight = found->second.shape();
    const int64_t rank = adapter.options.of(place).rank;
    const bool fits = !a.empty() && !b.empty() && a.mapped().shape() == Shape{rank, weight[0]} &&
                      b.mapped().shape() == Shape{weight[1], rank};
    if (fits) continue;
    fail(ErrorKind::kMismatch, "the addition to ", quoted(name), " has not the shapes ",
         to_string(Shape{rank, weight[0]}), " and ", to_string(Shape{weight[1], rank}),
         " that the model needs");
  }
}

// The adapter in `path`, with rows of q and k in the order that the output has. Throws unless the
// base takes it, as what is wrong could not be seen in the result; and kUnsupported for tensors in
// the place of the model's own.
LoraAdapter checked_adapter(const std::string& path, io::ModelFiles base, bool to_gguf) {
  io::Json config = base.config;
  config["rope_interleaved"] =
      to_gguf && io::gguf_reorders_rotary_rows(io::gguf_architecture(config));
  config["linear_heads_tiled"] = to_gguf && nn::may_tile_heads(config);
  for (const char* key : {"linear_inputs_apart", "multipliers_in_weights", "conv1d_out_in"}) {
    config[key] = to_gguf;
  }
  LoraAdapter adapter = read_adapter(path, config);
  // The layers that the base has, which the output may have under other names or multiplied.
  LoraAdapter own = adapter;
  if (nn::has_inputs_apart(config) != nn::has_inputs_apart(base.config) ||
      nn::has_multiplied_weights(config) != nn::has_multiplied_weights(base.config)) {
    own = read_adapter(path, base.config);
  }
  ThreadPool pool(1);
  with_context(path, [&] {
    check_complete(own, base.tensors);
    constexpr const char* kInstead =
        ": work the adapter into the model (lumen-convert MODEL OUTPUT --lora ADAPTER)";
    // PEFT saves an embedding beside the addition to it.
    std::erase_if(adapter.replaced, [&](const auto& tensor) {
      const auto found = base.tensors.find(tensor.first);
      return found != base.tensors.end() && have_same_numbers(tensor.second, found->second);
    });
    if (!adapter.replaced.empty()) {
      fail(ErrorKind::kUnsupported, "has ", quoted(adapter.replaced.begin()->first),
           " in the place of the model's own, not an addition", kInstead);
    }
    // Of a head that is the embedding llama.cpp would take the addition for the head's, too.
    const bool is_tied = to_gguf && io::get_bool(base.config, "tie_word_embeddings", false);
    for (const std::string& place : places_in_weights(adapter)) {
      const bool has_magnitude = adapter.tensors.contains(str(place, kMagnitude));
      // Matrices that are one tensor in GGUF (AltUp's) but those of experts have no addition there.
      const bool is_part = io::number_in_stack(place) && !io::expert_number(place);
      if (!has_magnitude && !is_part && !(is_embedding(place) && is_tied)) continue;
      fail(ErrorKind::kUnsupported, "has an addition to ", quoted(place + "weight"),
           " that can only be in the weight itself", kInstead);
    }
    require_finite(adapter.tensors, pool);
    take_embedding(own, base.tensors);
  });
  untie_head(own, base.config, base.tensors);
  checked_parameters(base, &own);
  return adapter;
}

// What lora_alpha comes to for a layer with these.
double alpha_of(const nn::LoraOptions::Own& own) {
  return own.scale * static_cast<double>(own.rank);
}

// B A · alpha / rank is all that the format can say: another scale is worked into B.
void scale_to(double alpha, LoraAdapter& adapter) {
  for (auto& [name, array] : adapter.tensors) {
    if (!name.ends_with(kWeightB)) continue;
    const std::string place = name.substr(0, name.size() - kWeightB.size() + 1);  // "….q_proj."
    const double factor = alpha_of(adapter.options.of(place)) / alpha;
    if (std::fabs(factor - 1) < 1e-6) continue;  // the square root of rslora is rounded
    for (float& value : array.as_mutable<float>()) {
      value = static_cast<float>(value * factor);
    }
  }
}

void write_adapter_file(LoraAdapter adapter, const io::ModelFiles& base,
                        const io::ChatTemplates& templates, const ConvertOptions& options) {
  const nn::LoraOptions& lora = adapter.options;
  io::GgufAdapter file{
      io::gguf_architecture(base.config), alpha_of({lora.rank, lora.scale}), {}, templates};
  if (file.alpha == 0) file.alpha = 1;  // 0 is no scale at all there
  stack_additions(base.config, file.architecture, adapter.options, adapter.tensors);
  scale_to(file.alpha, adapter);
  io::GgufWriter writer;
  io::set_gguf_adapter(file, writer);
  writer.set("general.file_type", requested_type(options).number);
  for (const auto& [name, array] : adapter.tensors) {
    const std::string gguf_name = io::gguf_adapter_tensor_name(name, file.architecture);
    if (gguf_name.empty()) {
      fail(ErrorKind::kUnsupported, "tensor ", quoted(name), " has no name in GGUF");
    }
    // llama.cpp looks rows of an embedding's A up.
    const bool is_turned =
        name.ends_with(kLoraA) && is_embedding(name.substr(0, name.size() - kLoraA.size()));
    const Array own = is_turned ? nn::turned(array) : array;
    writer.add(gguf_name, nn::stored_as(own, requested_type(options).matrices));
  }
  writer.write(*options.output);
}

// The layers with an addition as PEFT's target_modules: by their last names where all of these
// names have one, else by their paths.
std::vector<std::string> target_modules(const LoraAdapter& adapter, const io::ModelFiles& base) {
  std::vector<std::string> layers;
  for (const auto& [name, array] : adapter.tensors) {
    if (name.ends_with(kLoraA)) layers.push_back(name.substr(0, name.size() - kLoraA.size() - 1));
  }
  std::vector<std::string> targets = lora_targets(adapter.tensors);
  LoraAdapter named = adapter;
  named.targets = targets;
  NamedArrays model_tensors = base.tensors;
  for (const auto& [name, array] : base.tensors) {  // what has other names in directories
    const std::string fused = nn::has_inputs_apart(base.config)
                                  ? nn::fused_input_name(name)
                                  : shared_layer_name(base.config, name);
    if (!fused.empty()) model_tensors.emplace(fused, array);
    model_tensors.emplace(router_name_in_peft(name, base.config), array);
  }
  return lacking_addition(named, model_tensors).empty() ? targets : layers;
}

NamedArrays with_stored_names(const io::Json& config, NamedArrays tensors) {
  NamedArrays named;
  for (auto& [name, array] : tensors) {
    named.emplace(io::stored_name(config, name), std::move(array));
  }
  return named;
}

// The same of the place of a layer, with the point behind it.
std::string stored_place(const io::Json& config, const std::string& place) {
  const std::string stored = io::stored_name(config, place + std::string(kLoraA));
  return stored.substr(0, stored.size() - kLoraA.size());
}

// Additions with the names that PEFT has for those to an embedding.
NamedArrays with_embedding_names(const io::Json& config, NamedArrays tensors) {
  for (const std::string name : kEmbeddings) {
    const std::string place = stored_place(config, name.substr(0, name.rfind('.') + 1));
    for (const auto& [factor, own] :
         {std::pair(kLoraA, "lora_embedding_A"), std::pair(kLoraB, "lora_embedding_B")}) {
      auto found = tensors.extract(str(place, factor));
      if (!found.empty()) tensors[str(place, own)] = std::move(found.mapped());
    }
  }
  return tensors;
}

// The adapter with the names that the modules of transformers have.
LoraAdapter with_stored_names(LoraAdapter adapter, const io::Json& config) {
  adapter.tensors = with_stored_names(config, std::move(adapter.tensors));
  std::map<std::string, nn::LoraOptions::Own> own;
  for (const auto& [place, rank] : adapter.options.own) own[stored_place(config, place)] = rank;
  adapter.options.own = std::move(own);
  return adapter;
}

void write_adapter_directory(LoraAdapter own, const io::ModelFiles& base,
                             const io::ChatTemplates& templates, const ConvertOptions& options) {
  FusedExperts experts = name_as_peft(base.config, own.tensors, own.options);
  experts.tensors = with_stored_names(base.config, std::move(experts.tensors));
  for (FusedParameter& parameter : experts.parameters) {
    parameter.path = stored_place(base.config, parameter.path + ".");
    parameter.path.pop_back();
  }
  LoraAdapter adapter = with_stored_names(own, base.config);
  const nn::LoraOptions& lora = adapter.options;
  const double alpha = alpha_of({lora.rank, lora.scale});
  io::Json config =
      adapter_config(*options.base, lora.rank, alpha, target_modules(own, base), base.config);
  name_parameters(base.config, adapter.tensors, config);
  name_experts(experts, config);
  for (const auto& [place, own] : lora.own) {
    std::string layer = place.substr(0, place.size() - 1);
    if (names_parameter(config, layer + ".weight")) layer += ".weight";
    config["rank_pattern"][layer] = own.rank;
    if (alpha_of(own) != alpha) config["alpha_pattern"][layer] = alpha_of(own);
  }
  NamedArrays tensors = with_embedding_names(base.config, adapter.tensors);
  tensors.merge(experts.tensors);
  OutputDirectory output(*options.output, options.force);
  output.publish([&](const std::string& directory) {
    std::vector<text::TokenizerFile> files;
    set_templates(templates, files);
    for (const text::TokenizerFile& file : files) {
      io::write_file_atomically(directory + "/" + file.name, file.content);
    }
    write_adapter_files(directory, config, tensors, requested_type(options).matrices);
  });
}

}  // namespace

bool is_adapter(const std::string& path, const io::GgufFile* gguf) {
  if (gguf != nullptr) return io::is_adapter(*gguf);
  return io::is_regular_file(path + "/adapter_config.json") &&
         !io::is_regular_file(path + "/config.json");
}

int convert_adapter(const std::string& path, const ConvertOptions& options) {
  const bool to_gguf = writes_gguf(options);
  if (io::is_regular_file(path) == to_gguf) {
    fail(ErrorKind::kUsage, quoted(path), " is a LoRA adapter ",
         to_gguf ? "in GGUF, of which a PEFT directory can be made: name one instead of "
                 : "in a directory, of which a GGUF file can be made: name one instead of ",
         quoted(*options.output));
  }
  const DType dtype = requested_type(options).matrices;
  if (is_quantized(dtype)) {
    fail(ErrorKind::kUsage, "--type ", options.type, ": an adapter takes f32, f16 or bf16");
  }
  const io::ModelFiles base = open_language_model(base_name(path, options));
  refuse_output(*options.output, &base, options);
  const LoraAdapter adapter = checked_adapter(path, base, to_gguf);
  const io::ChatTemplates templates = io::read_chat_templates(path);
  if (options.dry_run) {
    uint64_t bytes = 0;
    for (const auto& [name, array] : adapter.tensors) bytes += row_bytes(dtype, array.elements());
    const std::vector<DType> dtypes(adapter.tensors.size(), dtype);
    tell_dry_run(options, bytes, dtypes);
  } else if (to_gguf) {
    write_adapter_file(adapter, base, templates, options);
  } else {
    write_adapter_directory(adapter, base, templates, options);
  }
  return 0;
}

}  // namespace lumen::runtime
