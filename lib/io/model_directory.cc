// Model directories in the layout of Hugging Face: config.json, safetensors, tokenizer files.
#include <algorithm>
#include <array>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/function_ref.h"
#include "lib/base/limits.h"
#include "lib/io/backbone_names.h"
#include "lib/io/convolution_parts.h"
#include "lib/io/foreign_model.h"
#include "lib/io/fused_experts.h"
#include "lib/io/gguf.h"
#include "lib/io/head_norms.h"
#include "lib/io/internlm2.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_formats.h"
#include "lib/io/packed_weights.h"
#include "lib/io/safetensors.h"
#include "lib/io/torch_file.h"
#include "lib/io/zero_tail.h"

namespace lumen::io {
namespace {

std::string in_directory(const std::string& directory, std::string_view file) {
  return str(directory, directory.ends_with('/') ? "" : "/", file);
}

Json read_optional(const std::string& path) {
  return is_regular_file(path) ? read_json(path) : Json::object();
}

// `directory` holds what PEFT, lumen-train or mlx-lm trained with LoRA.
[[noreturn]] void fail_adapter(const std::string& directory) {
  const std::string base = base_of_adapter(directory);
  fail(ErrorKind::kUnsupported, place_of(directory),
       ": this is a LoRA adapter, not a whole model: open its base model",
       base.empty() ? "" : " " + quoted(base), " and name this directory with --lora");
}

// The GGUF files of a directory, of split ones the first parts.
std::vector<std::string> gguf_models(const std::string& directory) {
  std::vector<std::string> found;
  for (const std::string& file : names_in(directory)) {
    if (file.ends_with(".gguf") && !is_later_part(file)) found.push_back(file);
  }
  return found;
}

// A file of the model may be a symbolic link, as in the cache of Hugging Face: tells of one whose
// target is not there.
void check_links(const std::string& directory) {
  for (const std::string& name : names_in(directory)) {
    const std::string path = in_directory(directory, name);
    std::error_code error;
    const auto target = std::filesystem::read_symlink(path, error);
    if (error || std::filesystem::exists(path, error)) continue;
    fail(ErrorKind::kMissing, place_of(path), ": a symbolic link to ", quoted(target.string()),
         ", which is not there; copy the files that links lead to (cp -L), or download it again");
  }
}

// A directory without a model in it.
[[noreturn]] void fail_no_model(const std::string& directory) {
  check_links(directory);
  if (is_regular_file(in_directory(directory, "adapter_config.json"))) fail_adapter(directory);
  if (is_directory(in_directory(directory, "checkpoints"))) {
    fail(ErrorKind::kMissing, place_of(directory),
         ": holds a training run that is not finished; lumen-train with the same recipe, --out ",
         "and --resume auto goes on with it and leaves the model there");
  }
  if (const std::vector<std::string> models = gguf_models(directory); models.size() > 1) {
    fail(ErrorKind::kUnsupported, place_of(directory), ": has ", models.size(),
         " GGUF models; name the one to open, for example ",
         quoted(in_directory(directory, models[0])));
  }
  for (const std::string& name : names_in(directory)) {
    if (!name.ends_with(".safetensors")) continue;
    fail(ErrorKind::kMissing, place_of(directory), ": has weights (", quoted(name),
         ") but no config.json; download it too");
  }
  if (const std::string foreign = foreign_weights(directory); !foreign.empty()) {
    fail(ErrorKind::kUnsupported, place_of(directory), ": ", foreign);
  }
  fail(ErrorKind::kMissing, place_of(directory), ": no config.json and no single .gguf file");
}

// The only file of a directory whose name says that it is a PyTorch checkpoint; "" otherwise.
std::string only_checkpoint(const std::string& directory) {
  std::vector<std::string> found;
  for (const std::string& file : names_in(directory)) {
    if (file.ends_with(".pth") || file.ends_with(".pt")) found.push_back(file);
  }
  if (found.size() > 1) {
    fail(ErrorKind::kUnsupported, place_of(directory), ": has ", found.size(),
         " PyTorch checkpoints and none that is called pytorch_model.bin; name the one to open, ",
         "for example ", quoted(in_directory(directory, found[0])));
  }
  return found.empty() ? "" : in_directory(directory, found[0]);
}

struct Weights {
  NamedArrays tensors;
  uint64_t file_bytes = 0;
};

template <typename File>
Weights weights_of(const std::shared_ptr<const File>& file) {
  return {file->arrays(), file->file_bytes};
}

// Throws Error(kMalformed) if a file of the model ends in zeros. One that begins with them too may
// be meant so: weights that no training has touched.
void check_tails(const SafetensorsFile& file) {
  std::vector<TensorBytes> tensors;
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const SafetensorsTensor& tensor = file.tensors[i];
    tensors.push_back({tensor.name, {file.parts[tensor.part]->data + tensor.offset, tensor.bytes}});
    const bool is_last = i + 1 == file.tensors.size() || file.tensors[i + 1].part != tensor.part;
    if (!is_last) continue;
    if (!is_mostly_zero(tensors.front().data) && ends_in_zeros(tensors)) {
      fail(ErrorKind::kMalformed, place_of(file.path), ": tensor ", quoted(tensor.name),
           ", the last of ", file.parts.size() == 1 ? "the file" : "its file",
           ", is zero: an interrupted download? Get the file again");
    }
    tensors.clear();
  }
}

// The same of safetensors, unpacked if other programs packed them.
Weights weights_of(const std::shared_ptr<const SafetensorsFile>& file, const Packing* packing) {
  if (packing == nullptr) {
    check_tails(*file);
    return weights_of(file);
  }
  return with_context(place_of(file->path), [&]() -> Weights {
    return {unpacked_weights(*file, *packing), file->file_bytes};
  });
}

// The weights of a directory; safetensors before PyTorch's, which say the same where both are.
Weights open_weights(const std::string& directory, const Packing* packing) {
  const auto is_there = [&](std::string& path, std::string_view name) {
    path = in_directory(directory, name);
    return is_regular_file(path);
  };
  std::string path;
  if (is_there(path, "model.safetensors")) return weights_of(read_safetensors(path), packing);
  if (is_there(path, "model.safetensors.index.json")) {
    return weights_of(read_safetensors_index(path), packing);
  }
  if (is_there(path, "pytorch_model.bin")) return weights_of(read_torch(path));
  if (is_there(path, "pytorch_model.bin.index.json")) return weights_of(read_torch_index(path));
  if (is_regular_file(adapter_weights(directory))) fail_adapter(directory);
  path = only_checkpoint(directory);
  if (!path.empty()) return weights_of(read_torch(path));
  check_links(directory);
  for (const std::string& name : names_in(directory)) {
    const size_t number = name.find("-00001-of-");
    if (number == name.npos) continue;
    fail(ErrorKind::kMissing, place_of(directory), ": has weights in several files (", quoted(name),
         ") without their index; download ", name.substr(0, number),
         name.ends_with(".bin") ? ".bin" : ".safetensors", ".index.json too");
  }
  if (const std::string foreign = foreign_weights(directory); !foreign.empty()) {
    fail(ErrorKind::kUnsupported, place_of(directory), ": ", foreign);
  }
  fail(ErrorKind::kMissing, place_of(directory),
       ": no model.safetensors, no pytorch_model.bin and no index of either");
}

bool is_head(std::string_view name) {
  return name == "lm_head.weight" || name == "embed_out.weight";
}

// Base models saved without their head lack this prefix of their names: that of the embedding
// tells.
std::string missing_prefix(const NamedArrays& tensors) {
  if (tensors.contains("embed_tokens.weight")) return "model.";
  if (tensors.contains("decoder.embed_tokens.weight")) return "model.";
  for (const char* name : {"wte.weight", "word_embeddings.weight"}) {
    if (tensors.contains(name)) return "transformer.";
  }
  if (tensors.contains("embed_in.weight")) return "gpt_neox.";
  return "";
}

NamedArrays with_prefix(NamedArrays tensors) {
  const std::string prefix = missing_prefix(tensors);
  if (prefix.empty()) return tensors;
  NamedArrays result;
  for (auto& [name, array] : tensors) {
    const auto [at, is_new] =
        result.emplace(is_head(name) ? name : prefix + name, std::move(array));
    if (!is_new) fail(ErrorKind::kMalformed, "tensor ", quoted(at->first), " is there twice");
  }
  return result;
}

// Constants that older files of GPT-NeoX and GPT-J hold: causal masks and frequencies.
void erase_masks(NamedArrays& tensors) {
  std::erase_if(tensors, [](const auto& tensor) {
    return std::ranges::any_of(
        std::array{".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq",
                   ".attn.bias", ".attn.masked_bias"},
        [&](std::string_view end) { return tensor.first.ends_with(end); });
  });
}

// Layers that guess further tokens stand behind the others (DeepSeek-V3, GLM-4.7-Flash, GLM-4.5) or
// have names of their own (ERNIE 4.5): they get names that no model of ours has.
void set_guessing_layers_apart(const Json& config, NamedArrays& tensors) {
  constexpr std::string_view kModel = "model.", kLayers = "model.layers.", kOwn = "model.mtp_";
  const bool behind = get_int(config, "num_nextn_predict_layers", 0, limits::kLayers, 0) > 0;
  const bool own = get_string(config, "model_type") == "ernie4_5_moe";
  if (!behind && !own) return;
  NamedArrays named;
  for (auto& [name, array] : tensors) {
    std::string apart = name;
    if (behind && is_behind_layers(name, kLayers, config)) {
      apart = str("mtp.blk.", name.substr(kLayers.size()));
    } else if (own && name.starts_with(kOwn)) {
      apart = str("mtp.blk.", name.substr(kModel.size()));
    }
    named.emplace(std::move(apart), std::move(array));
  }
  tensors = std::move(named);
}

// Of a model that reads more than text, the tensors of its language model under the names that they
// would have alone, which are those of files of Qwen2-VL as it was published.
NamedArrays of_language_model(NamedArrays tensors) {
  const bool has_part = std::ranges::any_of(
      tensors, [](const auto& tensor) { return !name_in_language_model(tensor.first).empty(); });
  NamedArrays result;
  for (auto& [name, array] : tensors) {
    std::string alone = name_in_language_model(name);
    const bool is_own = !has_part && name.starts_with("model.") && !name.starts_with("model.vis");
    if (alone.empty() && (is_own || name == "lm_head.weight")) alone = name;
    if (alone.empty()) continue;
    const auto [at, is_new] = result.emplace(alone, std::move(array));
    if (!is_new) fail(ErrorKind::kMalformed, "tensor ", quoted(at->first), " is there twice");
  }
  return result;
}

// `config` is tokenizer_config.json.
ChatTemplates templates_of(const std::string& directory, const Json& config) {
  ChatTemplates templates;
  const std::string file = in_directory(directory, "chat_template.jinja");
  if (is_regular_file(file)) {
    templates["default"] = read_file(file, limits::kTemplateBytes);
    const std::string more = in_directory(directory, "additional_chat_templates");
    if (!is_directory(more)) return templates;
    for (const std::string& name : names_in(more)) {
      if (!name.ends_with(".jinja")) continue;
      templates[name.substr(0, name.size() - 6)] =
          read_file(in_directory(more, name), limits::kTemplateBytes);
    }
    return templates;
  }
  const Json* value = find_value(config, "chat_template");
  if (value == nullptr) return templates;
  with_context(place_of(in_directory(directory, "tokenizer_config.json")), [&] {
    if (value->is_string()) {
      templates["default"] = value->get<std::string>();
    } else if (value->is_array()) {
      for (const Json& entry : *value) {
        templates[get_string(entry, "name")] = get_string(entry, "template");
      }
    } else {
      fail(ErrorKind::kMalformed, "key 'chat_template': found ", describe(value),
           ", expected a string or an array");
    }
  });
  return templates;
}

// An output layer with numbers of its own is not tied, even if the config, which may be that of the
// base that it was trained from, says so: transformers has it so since version 5.
void untie_own_head(ModelFiles& model) {
  if (!get_bool(model.config, "tie_word_embeddings")) return;
  if (head_is_embedding(model.tensors) == false) model.config["tie_word_embeddings"] = false;
}

void collect_end_tokens(const std::string& directory, ModelFiles& model) {
  const Json* generation = find_value(model.generation_config, "eos_token_id");
  const Json* config = find_value(model.config, "eos_token_id");
  const char* file = generation != nullptr ? "generation_config.json" : "config.json";
  if (generation == nullptr && config == nullptr) return;
  with_context(place_of(in_directory(directory, file)), [&] {
    add_end_tokens(generation != nullptr ? *generation : *config, str(file, " eos_token_id"),
                   model.end_tokens);
  });
}

}  // namespace

void add_end_token(int64_t id, const std::string& source, std::vector<EndToken>& tokens) {
  for (const EndToken& token : tokens) {
    if (token.id == id) return;
  }
  tokens.push_back({static_cast<int32_t>(id), source});
}

void add_end_tokens(const Json& value, const std::string& source, std::vector<EndToken>& tokens) {
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > static_cast<int64_t>(limits::kVocab)) {
      fail(ErrorKind::kMalformed, "key 'eos_token_id': found ", describe(&id),
           ", expected a token id from 0 to ", limits::kVocab);
    }
    add_end_token(id.get<int64_t>(), source, tokens);
  }
}

std::string base_of_adapter(const std::string& directory) {
  const Json config = read_optional(in_directory(directory, "adapter_config.json"));
  const std::string base = get_string(config, "base_model_name_or_path", "");
  return base.empty() ? get_string(config, "model", "") : base;
}

std::string adapter_weights(const std::string& directory) {
  constexpr const char* kFirst = "adapter_model.safetensors";
  for (const char* name : {kFirst, "adapter_model.bin", "adapters.safetensors"}) {
    std::string path = in_directory(directory, name);
    if (is_regular_file(path)) return path;
  }
  return in_directory(directory, kFirst);
}

ChatTemplates read_chat_templates(const std::string& path) {
  if (is_regular_file(path)) {
    const auto gguf = read_if_gguf(path);
    return gguf != nullptr ? gguf_chat_templates(gguf->metadata) : ChatTemplates();
  }
  return templates_of(path, read_optional(in_directory(path, "tokenizer_config.json")));
}

namespace {

// Older programs say how weights are packed in a file of its own.
void add_packing(const std::string& directory, Json& config) {
  if (!config.is_object() || find_value(config, "quantization_config") != nullptr) return;
  for (const auto& [name, method] :
       {std::pair{"quantize_config.json", "gptq"}, std::pair{"quant_config.json", "awq"}}) {
    Json packing = read_optional(in_directory(directory, name));
    if (packing.empty() || !packing.is_object()) continue;
    packing["quant_method"] = method;
    config["quantization_config"] = std::move(packing);
    return;
  }
}

// The model of a directory that has a config.json, with the weights that `open_weights` gives.
ModelFiles open_directory_model(const std::string& directory,
                                FunctionRef<Weights(const Packing* packing)> open_weights) {
  const std::string config_path = in_directory(directory, "config.json");
  ModelFiles model;
  model.path = directory;
  model.format = ModelFormat::kHuggingFace;
  model.config = read_config(config_path);
  model.generation_config = read_optional(in_directory(directory, "generation_config.json"));
  model.tokenizer_config = read_optional(in_directory(directory, "tokenizer_config.json"));
  add_packing(directory, model.config);
  const auto packing =
      with_context(place_of(config_path), [&] { return packing_of(model.config); });
  const bool reads_more = reads_more_than_text(model.config);
  Weights weights = open_weights(packing.get());
  erase_packing(model.config);
  model.file_bytes = weights.file_bytes;
  model.tensors = with_prefix(reads_more ? of_language_model(std::move(weights.tensors))
                                         : std::move(weights.tensors));
  with_context(place_of(config_path), [&] {
    const bool is_llama = is_internlm2(model.config);
    model.config = language_model_config(std::move(model.config));
    if (is_llama) model.tensors = internlm2_as_llama(model.config, std::move(model.tensors));
    const std::string type = get_string(model.config, "model_type");
    with_context(str("model type ", quoted(type)), [&] {
      if (has_backbone(model.config)) {
        model.tensors = with_usual_names(model.config, std::move(model.tensors));
      }
      if (type == "gpt_neox" || type == "gptj") erase_masks(model.tensors);
      if (type == "stablelm") join_head_norms(model.tensors);
      if (type == "olmo_hybrid") part_convolutions(model.tensors);
      model.config = classic_config(model.config, model.tensors.contains("lm_head.weight"));
      set_guessing_layers_apart(model.config, model.tensors);
      if (expert_count(model.config) > 0) split_experts(model.config, model.tensors);
    });
  });
  untie_own_head(model);
  model.tokenizer_file = find_tokenizer(directory);
  model.chat_templates = templates_of(directory, model.tokenizer_config);
  collect_end_tokens(directory, model);
  return model;
}

}  // namespace

std::string find_tokenizer(const std::string& directory) {
  for (const std::string_view file : kVocabularyFiles) {
    const std::string path = in_directory(directory, std::string(file));
    if (is_regular_file(path)) return path;
  }
  return "";
}

std::string only_gguf(const std::string& directory) {
  const std::vector<std::string> found = gguf_models(directory);
  return found.size() == 1 ? in_directory(directory, found[0]) : "";
}

ModelFiles open_directory_model(const std::string& directory) {
  if (!is_regular_file(in_directory(directory, "config.json"))) {
    if (const std::string gguf = only_gguf(directory); !gguf.empty()) {
      return open_gguf_model(gguf, read_gguf(gguf));
    }
    fail_no_model(directory);
  }
  return open_directory_model(
      directory, [&](const Packing* packing) { return open_weights(directory, packing); });
}

ModelFiles open_torch_model(const std::string& path, std::shared_ptr<const Buffer> buffer) {
  const auto file = parse_torch(std::move(buffer), path);
  const size_t slash = path.find_last_of('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (!is_regular_file(in_directory(directory, "config.json"))) {
    fail(ErrorKind::kMissing, place_of(path), ": a PyTorch checkpoint does not say what model it ",
         "is of: put the model's config.json beside it");
  }
  return open_directory_model(directory, [&](const Packing*) { return weights_of(file); });
}

}  // namespace lumen::io
