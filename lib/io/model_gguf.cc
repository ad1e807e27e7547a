// GGUF models in the vocabulary of Hugging Face.
// Keys and tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <limits>

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

}  // namespace

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
  const bool of_heads = architecture == "command-r" && (name.ends_with(".attn_q_norm.weight") ||
                                                        name.ends_with(".attn_k_norm.weight"));
  const bool is_vector = (name.ends_with(".bias") && !of_experts) ||
                         (name.ends_with("_norm.weight") && !of_heads) ||
                         name.ends_with("_sinks.weight") || name.starts_with("rope_f");
  const int64_t columns = shape[-1], rows = shape.elements() / columns;
  // Of each head a row, or of each group.
  if (name.ends_with(".ssm_a") || name.ends_with(".ssm_d") || name.ends_with(".ssm_norm.weight")) {
    return array.reshaped({shape.elements()});
  }
  if (is_vector) return rows == 1 ? array.reshaped({columns}) : array;
  if (name.ends_with(".ssm_conv1d.weight") || name.ends_with(".shortconv.conv.weight"))
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

// The matrices of all experts of a layer, one behind the other, each under its own name.
void add_experts(const std::string& name, const GgufTensor& tensor, Array array,
                 ModelFiles& model) {
  const int64_t count = expert_count(model.config);
  const Shape& shape = tensor.shape;
  if (count == 1 && shape.rank() == 2) array = array.reshaped({1, shape[0], shape[1]});
  if (array.shape().rank() != 3 || array.shape()[0] != count) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " has shape ", to_string(shape),
         ", expected [", count, ", rows, columns]: as many matrices as expert_count says");
  }
  for (int64_t e = 0; e < count; ++e) {
    add_tensor(name_of_expert(name, e), tensor, array.part(e), model);
  }
}

}  // namespace

std::string gguf_model_tensor(const std::string& gguf_name, const Json& config) {
  constexpr std::string_view kLayers = "blk.";
  const int64_t more = get_int(config, "mtp_num_hidden_layers", 0, limits::kLayers, 0);
  if (more > 0 && is_behind_layers(gguf_name, kLayers, config)) return str("mtp.", gguf_name);
  return hugging_face_name(gguf_name, gguf_architecture(config));
}

ModelFiles open_gguf_model(const std::string& path, std::shared_ptr<const GgufFile> file) {
  ModelFiles model;
  model.path = path;
  model.format = ModelFormat::kGguf;
  model.gguf = std::move(file);
  model.generation_config = Json::object();
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
    translate_tokens(metadata, model);
    check_config(model.config);
    model.chat_templates = gguf_chat_templates(metadata);
  });
  const std::string_view architecture = model.gguf->metadata.get_string("general.architecture");
  for (const GgufTensor& tensor : model.gguf->tensors) {
    const std::string name = gguf_model_tensor(tensor.name, model.config);
    with_context(place_of(path), [&] {
      if (is_of_all_experts(name)) {
        add_experts(name, tensor, model.gguf->array(tensor), model);
      } else {
        add_tensor(name, tensor, usual_shape(tensor, architecture, model.gguf->array(tensor)),
                   model);
      }
    });
  }
  return model;
}

}  // namespace lumen::io
