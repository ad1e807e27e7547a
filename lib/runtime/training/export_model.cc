#include "lib/runtime/training/export_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/backbone_names.h"
#include "lib/io/mapped_file.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/adapters/adapter_names.h"
#include "lib/runtime/adapters/lora.h"
#include "lib/runtime/generation/prompt_format.h"

namespace lumen::runtime {
namespace {

NamedArrays stored(const NamedArrays& weights, DType dtype) {
  NamedArrays result;
  for (const auto& [name, array] : weights) result[name] = nn::stored_as(array, dtype);
  return result;
}

// What PEFT is to add to: the last parts of the names of layers, or, if some of those are not meant
// everywhere, all names.
std::vector<std::string> target_modules(const LoraRecipe& lora, const NamedArrays& tensors) {
  const bool by_path = lora.adapter || !lora.exclude.empty() ||
                       std::ranges::any_of(lora.targets, [](std::string_view target) {
                         return target.find('.') != target.npos && !target.starts_with("experts.");
                       });
  return by_path ? paths_of_additions(tensors) : lora_targets(tensors);
}

void write_json(const std::string& path, const io::Json& json) {
  io::write_file_atomically(path, json.dump(2) + "\n");
}

// tokenizer.json that puts the start token before every text, or nothing.
void set_start(io::Json& json, const text::Tokenizer& tokenizer, bool starts) {
  json["post_processor"] = nullptr;
  if (!starts) return;
  const int32_t id = *tokenizer.special_ids().bos;
  const std::string bos(tokenizer.token_text(id));
  const io::Json start = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const auto sequence = [](const char* name, int type) -> io::Json {
    return {{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", io::Json::array({start, sequence("A", 0)})},
      {"pair", io::Json::array({start, sequence("A", 0), sequence("B", 1)})},
      {"special_tokens",
       {{bos, {{"id", bos}, {"ids", io::Json::array({id})}, {"tokens", io::Json::array({bos})}}}}}};
}

// The tokenizer's files, and the chat template as a file of its own, which wins over any other.
void write_tokenizer(const std::string& directory, const TrainingData& data) {
  if (data.chat_template) {
    io::write_file_atomically(directory + "/chat_template.jinja", data.chat_template->source());
  }
  // A vocabulary inside a GGUF file that has no such files: --tokenizer names it.
  if (data.tokenizer_files.empty()) return;
  const std::string config = directory + "/tokenizer_config.json";
  for (const text::TokenizerFile& file : data.tokenizer_files) {
    io::write_file_atomically(str(directory, "/", file.name), file.content);
  }
  io::Json json = io::is_regular_file(config) ? io::read_json(config) : io::Json::object();
  json.erase("chat_template");
  const std::optional<bool> add_bos = data.options.add_bos;
  if (add_bos) json["add_bos_token"] = *add_bos;
  if (data.options.add_eos) json["add_eos_token"] = *data.options.add_eos;
  const std::string pipeline = directory + "/tokenizer.json";
  if (add_bos && *add_bos != data.tokenizer->adds_bos() && io::is_regular_file(pipeline)) {
    io::Json changed = io::read_json(pipeline);
    set_start(changed, *data.tokenizer, *add_bos && data.tokenizer->special_ids().bos);
    write_json(pipeline, changed);
  }
  write_json(config, json);
}

// Adds the ids of the tokenizer's special tokens; what a base says of its own tokenizer stays. What
// a new model lacks is null, or transformers would take the numbers of another vocabulary.
void add_token_ids(const ExportedModel& model, io::Json& json) {
  const text::SpecialIds& special = model.data->tokenizer->special_ids();
  for (const auto& [key, id] :
       {std::pair("bos_token_id", special.bos), std::pair("eos_token_id", special.eos),
        std::pair("pad_token_id", special.pad)}) {
    const bool is_known = model.base != nullptr && io::find_value(json, key) != nullptr;
    if (is_known) continue;
    if (id || model.base == nullptr) json[key] = id ? io::Json(*id) : io::Json();
  }
}

// generation_config.json: the base's, with all tokens that end an answer.
io::Json generation_config(const ExportedModel& model) {
  io::Json json = model.base != nullptr ? model.base->generation_config : io::Json::object();
  json.erase("_from_model_config");  // or transformers would make it again from config.json
  add_token_ids(model, json);
  const PromptFormat format(
      model.data->tokenizer, model.data->chat_template,
      model.base != nullptr ? model.base->end_tokens : std::vector<io::EndToken>());
  if (!format.end_token_ids().empty()) json["eos_token_id"] = format.end_token_ids();
  return json;
}

}  // namespace

void set_dtype(const std::string& dtype, io::Json& config) {
  const bool is_new =
      io::find(config, "torch_dtype") == nullptr && io::find(config, "dtype") == nullptr;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (io::find(config, key) == nullptr && !(is_new && key == std::string_view("torch_dtype"))) {
      continue;
    }
    config[key] = dtype == "f16" ? "float16" : dtype == "bf16" ? "bfloat16" : "float32";
  }
}

std::vector<std::string> exported_names() {
  std::vector<std::string> names = {"model.safetensors",      "config.json",
                                    "generation_config.json", "preprocessor_config.json",
                                    "adapter_config.json",    "adapter_model.safetensors",
                                    "tokenizer_config.json",  "chat_template.jinja"};
  names.insert(names.end(), std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  return names;
}

void write_model(const std::string& directory, const ExportedModel& model) {
  io::Json config = model.config;
  if (model.data->tokenizer) {
    add_token_ids(model, config);
    write_tokenizer(directory, *model.data);
    write_json(directory + "/generation_config.json", generation_config(model));
  }
  if (!model.data->data.info.classes.empty()) {
    io::Json labels = io::Json::object();
    for (size_t i = 0; i < model.data->data.info.classes.size(); ++i) {
      labels[str(i)] = model.data->data.info.classes[i];
    }
    config["id2label"] = labels;
  }
  if (!model.data->data.info.mean.empty()) {
    io::Json preprocessing{{"image_mean", model.data->data.info.mean},
                           {"image_std", model.data->data.info.std},
                           {"feature_names", model.data->data.info.feature_names}};
    if (!model.data->data.info.has_header) preprocessing["header"] = false;
    write_json(directory + "/preprocessor_config.json", preprocessing);
  }
  set_dtype(model.dtype, config);
  write_json(directory + "/config.json", config);
  io::write_safetensors(directory + "/model.safetensors",
                        stored(model.weights, *dtype_named(model.dtype)), {{"format", "pt"}});
}

io::Json adapter_config(const std::string& base, int64_t rank, double alpha,
                        const std::vector<std::string>& targets, const io::Json& model_config) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", to_valid_utf8(base)},
          {"r", rank},
          {"lora_alpha", alpha},
          {"lora_dropout", 0.0},
          {"target_modules", targets},
          {"use_rslora", false},
          {"use_dora", false},
          {"bias", "none"},
          {"fan_in_fan_out", nn::has_conv1d(model_config)},
          {"inference_mode", true}};
}

FusedExperts name_as_peft(const io::Json& model_config, NamedArrays& tensors,
                          nn::LoraOptions& options) {
  join_shared_layers(model_config, tensors, options);
  FusedExperts experts = fuse_additions(model_config, options, tensors);
  NamedArrays named;
  for (auto& [name, array] : tensors) {
    named.emplace(router_name_in_peft(name, model_config), std::move(array));
  }
  tensors = std::move(named);
  std::map<std::string, nn::LoraOptions::Own> own;
  for (const auto& [place, rank] : options.own) {
    own[router_name_in_peft(place, model_config)] = rank;
  }
  options.own = std::move(own);
  return experts;
}

void name_parameters(const io::Json& model_config, const NamedArrays& tensors, io::Json& config) {
  constexpr std::string_view kMlp[] = {"gate_proj", "up_proj", "down_proj"};
  constexpr std::string_view kTypes[] = {"qwen3_moe",      "qwen3_vl_moe_text", "qwen3_next",
                                         "deepseek_v2",    "deepseek_v3",       "glm4_moe_lite",
                                         "glm4_moe",       "ernie4_5_moe",      "dots1",
                                         "hunyuan_v1_moe", "exaone_moe"};
  constexpr std::pair<std::string_view, std::string_view> kRouters[] = {
      {"gpt_oss", ".mlp.router"},         {"granitemoe", ".block_sparse_moe.router"},
      {"lfm2_moe", ".feed_forward.gate"}, {"nemotron_h", ".mixer.gate"},
      {"phimoe", ".mlp.router"},          {"qwen2_moe", ".mlp.gate"},
      {"qwen3_5_moe", ".mlp.gate"}};
  const std::string type = io::get_string(model_config, "model_type", "");
  const auto is_parameter = [&](std::string_view path) {
    if (!io::name_in_language_model(path).empty()) return path.ends_with(".mlp.gate");
    for (const auto& [family, router] : kRouters) {
      if (type.starts_with(family)) return path.ends_with(router);
    }
    if (std::ranges::find(kTypes, type) == std::end(kTypes)) return false;
    return std::ranges::any_of(kMlp, [&](std::string_view part) {
      return std::ranges::any_of(
          std::array{".mlp.", ".mlp.shared_expert.", ".mlp.shared_experts.", ".mlp.shared_mlp."},
          [&](const char* place) { return path.ends_with(str(place, part)); });
    });
  };
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  std::set<std::string> parameters, modules;
  for (const auto& [name, array] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const std::string path = name.substr(0, name.size() - kLoraA.size() - 1);
    if (is_parameter(path)) {
      parameters.insert(path + ".weight");
    } else {
      modules.insert(last_part(path));
    }
  }
  if (parameters.empty()) return;
  io::Json targets = io::Json::array();
  for (const io::Json& target : config["target_modules"]) {
    const auto path = target.get<std::string>();
    if (modules.contains(last_part(path)) && !parameters.contains(path + ".weight")) {
      targets.push_back(target);
    }
  }
  config["target_modules"] = targets;
  config["target_parameters"] = parameters;
  config["lora_dropout"] = 0.0;  // which matters in training only, and is refused beside these
}

void name_experts(const FusedExperts& experts, io::Json& config) {
  if (experts.parameters.empty()) return;
  const int64_t rank = config["r"];
  const double alpha = config["lora_alpha"];
  const bool rslora = config["use_rslora"];
  const double scale = nn::lora_scale(alpha, rank, rslora);
  const auto same = [](const nn::LoraOptions::Own& a, const nn::LoraOptions::Own& b) {
    return a.rank == b.rank && std::fabs(a.scale - b.scale) <= 1e-9 * std::fabs(b.scale);
  };
  for (const auto& [path, own] : experts.parameters) {
    config["target_parameters"].push_back(path);
    if (same(own, {rank, scale})) continue;
    // "experts.down_proj", if they are alike in all layers.
    const std::string part = path.substr(path.rfind(".experts.") + 1);
    const bool alike = std::ranges::all_of(experts.parameters, [&, &own = own](const auto& other) {
      return !other.path.ends_with(part) || same(other.own, own);
    });
    const std::string key = alike ? part : path;
    const auto own_rank = static_cast<double>(own.rank);
    config["rank_pattern"][key] = own.rank;
    config["alpha_pattern"][key] = own.scale * (rslora ? std::sqrt(own_rank) : own_rank);
  }
  config["lora_dropout"] = 0.0;
}

namespace {

// Adds to rank_pattern and alpha_pattern the layers among `paths` whose rank and scale are not
// those that the config has: by their last name, if all of that name are alike.
void name_patterns(const nn::LoraOptions& options, const std::vector<std::string>& paths,
                   io::Json& config) {
  const bool rslora = config["use_rslora"];
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  const auto own_of = [&](const std::string& path) {
    const nn::LoraOptions::Own own = options.of(path + ".");
    return std::pair(own.rank, own.scale);
  };
  for (const std::string& path : paths) {
    const auto own = own_of(path);
    if (own == std::pair(options.rank, options.scale)) continue;
    const bool alike = std::ranges::all_of(paths, [&](const std::string& other) {
      return last_part(other) != last_part(path) || own_of(other) == own;
    });
    const std::string key = alike ? last_part(path) : path;
    const auto rank = static_cast<double>(own.first);
    config["rank_pattern"][key] = own.first;
    config["alpha_pattern"][key] = own.second * (rslora ? std::sqrt(rank) : rank);
  }
}

}  // namespace

void write_adapter_files(const std::string& directory, const io::Json& config,
                         const NamedArrays& tensors, DType dtype) {
  NamedArrays named;
  for (const auto& [name, array] : tensors) named["base_model.model." + name] = array;
  write_json(directory + "/adapter_config.json", config);
  io::write_safetensors(directory + "/adapter_model.safetensors", stored(named, dtype),
                        {{"format", "pt"}});
}

PeftAdapter peft_adapter(const ExportedModel& model, const LoraRecipe& lora,
                         nn::LoraOptions options, const std::string& base_path) {
  NamedArrays tensors, whole;
  for (const auto& [name, array] : model.weights) {
    (name.find(".lora_") == name.npos ? whole : tensors)[name] = array;
  }
  for (const std::string& path : paths_of_additions(tensors)) {
    const std::string place = path + ".";
    const int64_t rank = tensors.at(place + std::string(kLoraA)).shape()[0];
    nn::LoraOptions::Own own = options.of(place);
    // Two additions that have become one (joined_additions.h) have the sum of their ranks.
    if (own.rank != rank) own = {rank, options.scale};
    options.own[place] = own;
  }
  FusedExperts experts = name_as_peft(model.config, tensors, options);
  const double times = static_cast<double>(options.rank) / static_cast<double>(*lora.rank);
  const double alpha = lora.alpha * (lora.rslora ? std::sqrt(times) : times);
  io::Json config =
      adapter_config(base_path, options.rank, alpha, target_modules(lora, tensors), model.config);
  config["bias"] = lora.bias;
  config["lora_dropout"] = lora.dropout;
  config["use_rslora"] = lora.rslora;
  config["use_dora"] = lora.dora;
  name_parameters(model.config, tensors, config);
  name_experts(experts, config);
  name_patterns(options, paths_of_additions(tensors), config);
  if (lora.layers > 0) {
    std::set<int64_t> layers;
    for (const auto& [name, array] : tensors) layers.insert(nn::layer_number(name));
    config["layers_to_transform"] = layers;
  }
  std::set<std::string> modules;
  for (auto& [name, array] : whole) {
    const std::string path = name.substr(0, name.rfind('.'));
    const bool is_saved = nn::is_of_module(name, lora.modules_to_save);
    if (is_saved) modules.insert(path);
    // What has an addition is a layer in a layer in PEFT.
    const bool is_inner = !is_saved && tensors.contains(str(path, ".", kLoraA));
    tensors[is_inner ? str(path, ".base_layer", name.substr(path.size())) : name] = array;
  }
  if (!modules.empty()) config["modules_to_save"] = modules;
  tensors.merge(experts.tensors);
  return {config, tensors};
}

void write_adapter(const std::string& directory, const ExportedModel& model,
                   const PeftAdapter& adapter) {
  write_tokenizer(directory, *model.data);
  write_adapter_files(directory, adapter.config, adapter.tensors, *dtype_named(model.dtype));
}

}  // namespace lumen::runtime
