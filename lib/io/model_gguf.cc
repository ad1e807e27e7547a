// GGUF models in the vocabulary of Hugging Face.
// Keys and tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <limits>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_adapter.h"
#include "lib/io/gguf_architecture.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_formats.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {
namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template";  // with ".NAME": another one

// ids of special tokens; some writers give all ones for "none".
std::optional<int64_t> token_id(const GgufMetadata& metadata, std::string_view key) {
  const auto value = metadata.find(key);
  if (!value) return std::nullopt;
  const int64_t id = value->as_int();
  if (id < 0 || id == std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return metadata.get_int(key, 0, std::numeric_limits<int32_t>::max());
}

void translate_tokens(const GgufMetadata& metadata, ModelFiles& model) {
  for (const char* kind : {"bos", "eos"}) {
    if (const auto id = token_id(metadata, str("tokenizer.ggml.", kind, "_token_id"))) {
      model.config[str(kind, "_token_id")] = *id;
    }
  }
  for (const char* kind : {"eos", "eot", "eom"}) {
    const std::string key = str("tokenizer.ggml.", kind, "_token_id");
    if (const auto id = token_id(metadata, key)) add_end_token(*id, key, model.end_tokens);
  }
}

// What a model proposes for sampling: keys of GGUF, and of a generation_config.json.
constexpr std::pair<std::string_view, const char*> kSampling[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"}};

// These keys as a generation_config.json. Temperatures of 0 and below are do_sample false there,
// and a top_k below 0 is 0, all tokens.
Json sampling_of_gguf(const GgufMetadata& metadata) {
  Json config = Json::object();
  for (const auto& [key, name] : kSampling) {
    if (!metadata.find(key)) continue;
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (key.ends_with("top_k")) {
      config[name] = std::max<int64_t>(0, metadata.get_int(key, -kMost, kMost));
    } else {
      config[name] = metadata.get_number(key);
    }
  }
  const Json* const temperature = find_value(config, "temperature");
  const bool is_greedy = temperature != nullptr && temperature->get<double>() <= 0;
  if (is_greedy) config.erase("temperature");
  if (is_greedy || !config.empty()) config["do_sample"] = !is_greedy;
  return config;
}

}  // namespace

void set_gguf_sampling(const Json& generation_config, GgufWriter& writer) {
  const bool is_greedy = !get_bool(generation_config, "do_sample", true);
  if (is_greedy) writer.set(std::string(kSampling[0].first), 0.0F);
  for (const auto& [key, name] : kSampling) {
    const Json* const value = find_value(generation_config, name);
    if (value == nullptr || (is_greedy && key == kSampling[0].first)) continue;
    if (key.ends_with("top_k")) {
      const int64_t most = std::numeric_limits<int32_t>::max();
      writer.set(std::string(key), static_cast<int32_t>(get_int(generation_config, name, 0, most)));
    } else {
      const double number = get_number(generation_config, name, 0, 100, 0);
      writer.set(std::string(key), static_cast<float>(number));
    }
  }
}

ChatTemplates gguf_chat_templates(const GgufMetadata& metadata) {
  ChatTemplates templates;
  for (size_t i = 0; i < metadata.size(); ++i) {
    const std::string_view key = metadata[i].key();
    if (!key.starts_with(kTemplate) || !metadata[i].is_string()) continue;
    std::string_view name = key.substr(kTemplate.size());
    if (!name.empty() && name[0] != '.') continue;  // tokenizer.chat_templates: the list of names
    name = name.empty() ? "default" : name.substr(1);
    templates.emplace(name, metadata[i].as_string());
  }
  return templates;
}

void set_gguf_chat_templates(const ChatTemplates& templates, GgufWriter& writer) {
  std::vector<std::string> names;
  for (const auto& [name, source] : templates) {
    const bool is_default = name == "default";
    writer.set(is_default ? std::string(kTemplate) : str(kTemplate, ".", name), source);
    if (!is_default) names.push_back(name);
  }
  if (!names.empty()) writer.set(str(kTemplate, "s"), names);
}

namespace {

// Files say a shape with more or fewer extents of 1 than is usual: [64, 1] or [64]. Norms, biases
// and the factors of rotary embeddings are vectors, all others matrices, as are norms of each head.
Array usual_shape(const GgufTensor& tensor, std::string_view architecture, Array array) {
  const Shape& shape = tensor.shape;
  const std::string_view name = tensor.name;
  const bool of_experts = name.ends_with("_exps.bias");  // a row for each
  const bool has_them = architecture == "command-r" || architecture == "stablelm";
  const bool of_heads =
      has_them && (name.ends_with(".attn_q_norm.weight") || name.ends_with(".attn_k_norm.weight"));
  const bool is_vector =
      (name.ends_with(".bias") && !of_experts) || (name.ends_with("_norm.weight") && !of_heads) ||
      name.ends_with("_norm_1.weight") || name.ends_with("_norm_2.weight") ||
      name.ends_with("_sinks.weight") || name.starts_with("rope_f") ||
      name.ends_with(".layer_output_scale.weight") ||
      name.ends_with(".altup_correct_scale.weight") || name.ends_with(".exp_probs_b") ||
      name.ends_with(".ffn_norm") || name.ends_with(".scale");
  const int64_t columns = shape[-1], rows = shape.elements() / columns;
  if (architecture == "ernie4_5-moe" && name.ends_with(".exp_probs_b.bias")) {
    return array.reshaped({1, shape.elements()});
  }
  if (name.ends_with(".ssm_a") && architecture == "kimi-linear") {
    return array.reshaped({1, 1, shape.elements(), 1});
  }
  // Of each channel a row.
  if (name.ends_with(".ssm_a") && (architecture == "mamba" || architecture == "jamba")) {
    return array.reshaped({rows, columns});
  }
  // Of each head a row, or of each group.
  if (name.ends_with(".ssm_a") || name.ends_with(".ssm_d") || name.ends_with(".ssm_norm.weight")) {
    return array.reshaped({shape.elements()});
  }
  if (is_vector) return rows == 1 ? array.reshaped({columns}) : array;
  constexpr std::string_view kConvolutions[] = {".ssm_conv1d.weight", ".ssm_conv1d_q.weight",
                                                ".ssm_conv1d_k.weight", ".ssm_conv1d_v.weight",
                                                ".shortconv.conv.weight"};
  if (std::ranges::any_of(kConvolutions, [&](std::string_view end) { return name.ends_with(end); }))
    return array.reshaped({rows, 1, columns});
  const bool has_more = shape.rank() > 1 && rows != shape[-2];
  return has_more ? array : array.reshaped({rows, columns});
}

void add_tensor(const std::string& name, const GgufTensor& tensor, Array array, ModelFiles& model) {
  const auto [at, is_new] = model.tensors.emplace(name, std::move(array));
  if (is_new) return;
  fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " is there twice, once as ",
       quoted(at->first));
}

// The array of a tensor with several matrices, one behind the other.
Array of_stack(const GgufTensor& tensor, Array array, const StackSize& size) {
  const Shape& shape = tensor.shape;
  if (size.count == 1 && shape.rank() == 2) array = array.reshaped({1, shape[0], shape[1]});
  if (array.shape().rank() == 3 && array.shape()[0] == size.count) return array;
  fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " has shape ", to_string(shape),
       ", expected [", size.count, ", rows, columns]: as many matrices as ", size.key, " says");
}

// Adds each of them under its own name.
void add_stack(const std::string& name, const GgufTensor& tensor, Array array, ModelFiles& model) {
  const StackSize size = stack_size(name, model.config);
  array = of_stack(tensor, std::move(array), size);
  for (int64_t i = 0; i < size.count; ++i) {
    add_tensor(name_in_stack(name, i), tensor, array.part(i), model);
  }
}

// The same of two in one, as gguf_gate_and_up says.
void add_gates_and_ups(const std::array<std::string, 2>& names, const GgufTensor& tensor,
                       Array array, ModelFiles& model) {
  const StackSize size = stack_size(names[0], model.config);
  array = of_stack(tensor, std::move(array), size);
  const int64_t count = size.count;
  const int64_t rows = array.shape()[1], columns = array.shape()[2];
  if (rows % 2 != 0) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " has ", rows,
         " rows for an expert, expected as many for its gate as for its up");
  }
  array = array.reshaped({2 * count, rows / 2, columns});
  for (int64_t i = 0; i < 2 * count; ++i) {
    const std::string& name = names[static_cast<size_t>(i % 2)];
    add_tensor(name_in_stack(name, i / 2), tensor, array.part(i), model);
  }
}

// The same of their biases, a row for each expert.
void add_gate_and_up_biases(const std::array<std::string, 2>& names, const GgufTensor& tensor,
                            const Array& array, ModelFiles& model) {
  const int64_t count = expert_count(model.config), elements = array.shape().elements();
  if (array.shape()[0] != count || elements % (2 * count) != 0) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " has shape ",
         to_string(tensor.shape), ", expected [", count,
         ", biases of a gate, then of an up]: as many rows as expert_count says");
  }
  const Array rows = array.reshaped({2 * count, elements / (2 * count)});
  const size_t bytes = array.bytes() / static_cast<size_t>(2 * count);
  for (int64_t part = 0; part < 2; ++part) {
    Array biases = Array::zeros(array.dtype(), {count, elements / (2 * count)});
    for (int64_t e = 0; e < count; ++e) {
      std::copy_n(rows.part(2 * e + part).data(), bytes,
                  biases.mutable_data() + static_cast<size_t>(e) * bytes);
    }
    add_tensor(names[static_cast<size_t>(part)], tensor, std::move(biases), model);
  }
}

// The same of queries, keys and values in one, as gguf_query_key_value says.
void add_query_key_value(const std::array<std::string, 3>& names, const GgufTensor& tensor,
                         const Array& array, ModelFiles& model) {
  const Json& config = model.config;
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t kv_heads = get_int(config, "num_key_value_heads", 1, limits::kHeads);
  const int64_t rows = array.shape()[0], all = heads + 2 * kv_heads;
  if (rows % all != 0) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " has ", rows,
         " rows, expected a multiple of ", all, ", the heads of ", heads, " queries and of ",
         kv_heads, " keys and values");
  }
  int64_t begin = 0;
  for (const auto& [name, count] :
       {std::pair(names[0], heads), std::pair(names[1], kv_heads), std::pair(names[2], kv_heads)}) {
    const int64_t length = count * (rows / all);
    add_tensor(name, tensor, array.parts(begin, length), model);
    begin += length;
  }
}

}  // namespace

std::string gguf_model_tensor(const std::string& gguf_name, const Json& config) {
  constexpr std::string_view kLayers = "blk.";
  const int64_t more = get_int(config, "mtp_num_hidden_layers", 0, limits::kLayers, 0);
  if (more > 0 && is_behind_layers(gguf_name, kLayers, config)) return str("mtp.", gguf_name);
  return hugging_face_name(gguf_name, gguf_architecture(config));
}

constexpr std::string_view kBoth = ".ffn_gate_up_exps.", kGates = ".ffn_gate_exps.",
                           kUps = ".ffn_up_exps.", kQueryKeyValue = ".attn_qkv.";

std::array<std::string, 2> gguf_gate_and_up(const std::string& gguf_name, const Json& config) {
  const size_t at = gguf_name.find(kBoth);
  if (at == gguf_name.npos) return {};
  const std::string layer = gguf_name.substr(0, at), kind = gguf_name.substr(at + kBoth.size());
  if (kind != "weight" && kind != "bias") return {};
  std::array<std::string, 2> names;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string part = str(layer, i == 0 ? kGates : kUps, kind);
    names[i] = gguf_model_tensor(part, config);
    if (names[i] == part || is_stack(names[i]) != (kind == "weight")) return {};
  }
  return names;
}

std::array<std::string, 3> gguf_query_key_value(const std::string& gguf_name, const Json& config) {
  const std::string_view name = gguf_name;
  const size_t at = name.find(kQueryKeyValue);
  if (at == name.npos || gguf_model_tensor(gguf_name, config) != gguf_name) return {};
  const std::string_view layer = name.substr(0, at);
  const std::string_view kind = name.substr(at + kQueryKeyValue.size());
  if (kind != "weight" && kind != "bias") return {};
  std::array<std::string, 3> names;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string part = str(layer, ".attn_", "qkv"[i], ".", kind);
    names[i] = gguf_model_tensor(part, config);
    if (names[i] == part) return {};  // no attention of this kind
  }
  return names;
}

std::string gguf_holding_tensor(const std::string& gguf_name, std::string_view architecture) {
  if (architecture != "gemma4") return gguf_name;
  for (const std::string_view part : {kGates, kUps}) {
    const std::string end = str(part, "weight");
    if (!gguf_name.ends_with(end)) continue;
    return str(gguf_name.substr(0, gguf_name.size() - end.size()), kBoth, "weight");
  }
  return gguf_name;
}

ModelFiles open_gguf_model(const std::string& path, std::shared_ptr<const GgufFile> file) {
  ModelFiles model;
  model.path = path;
  model.format = ModelFormat::kGguf;
  model.gguf = std::move(file);
  model.tokenizer_config = Json::object();
  model.file_bytes = model.gguf->file_bytes;
  with_context(place_of(path), [&] {
    const GgufMetadata& metadata = model.gguf->metadata;
    if (is_adapter(*model.gguf)) {
      fail(ErrorKind::kUnsupported,
           "this is a LoRA adapter, not a whole model: open its base model and name this file with "
           "--lora");
    }
    model.config = config_of_gguf(*model.gguf);
    model.generation_config = sampling_of_gguf(metadata);
    translate_tokens(metadata, model);
    check_config(model.config);
    model.chat_templates = gguf_chat_templates(metadata);
  });
  const std::string_view architecture = model.gguf->metadata.get_string("general.architecture");
  for (const GgufTensor& tensor : model.gguf->tensors) {
    const std::string name = gguf_model_tensor(tensor.name, model.config);
    const std::array<std::string, 2> both = gguf_gate_and_up(tensor.name, model.config);
    const std::array<std::string, 3> qkv = gguf_query_key_value(tensor.name, model.config);
    with_context(place_of(path), [&] {
      if (!qkv[0].empty()) {
        add_query_key_value(qkv, tensor,
                            usual_shape(tensor, architecture, model.gguf->array(tensor)), model);
      } else if (!both[0].empty() && !is_stack(both[0])) {
        add_gate_and_up_biases(both, tensor, model.gguf->array(tensor), model);
      } else if (!both[0].empty()) {
        add_gates_and_ups(both, tensor, model.gguf->array(tensor), model);
      } else if (is_stack(name)) {
        add_stack(name, tensor, model.gguf->array(tensor), model);
      } else {
        add_tensor(name, tensor, usual_shape(tensor, architecture, model.gguf->array(tensor)),
                   model);
      }
    });
  }
  with_context(place_of(path),
               [&] { add_gguf_numbers(model.gguf->metadata, model.config, model.tensors); });
  // Files of GPT-2 have the embedding twice.
  if (head_is_embedding(model.tensors) == true) model.config["tie_word_embeddings"] = true;
  return model;
}

}  // namespace lumen::io
