// GGUF models in the vocabulary of Hugging Face.
// Keys and tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <cmath>
#include <limits>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_adapter.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_formats.h"

namespace lumen::io {
namespace {

struct Architecture {
  std::string_view name;
  bool interleaved;     // q and k rows are in the order of interleaved rotary pairs
  bool sliding_window;  // attends only to the last attention.sliding_window positions
};
constexpr Architecture kArchitectures[] = {
    {"llama", true, true}, {"qwen2", false, false}, {"qwen3", false, false}};

const Architecture& find_architecture(const GgufMetadata& metadata) {
  const std::string_view wanted = metadata.get_string("general.architecture");
  std::string supported;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == wanted) return architecture;
    supported += str(supported.empty() ? "" : ", ", architecture.name);
  }
  fail(ErrorKind::kUnsupported, "the architecture ", quoted(wanted),
       " is not supported; supported are ", supported);
}

struct Renaming {
  std::string_view gguf, hugging_face;
};

// Names of tensors that are there once, and inside a layer "blk.N." → "model.layers.N.".
constexpr Renaming kModelTensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr Renaming kLayerTensors[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr std::string_view kTemplate = "tokenizer.chat_template";  // with ".NAME": another one

// Reads "ARCHITECTURE.key" values.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(str(architecture, ".")) {}

  bool has(std::string_view key) const {
    return metadata_.find(prefix_ + std::string(key)).has_value();
  }
  int64_t integer(std::string_view key, int64_t hi) const {
    return metadata_.get_int(prefix_ + std::string(key), 1, hi);
  }
  int64_t integer(std::string_view key, int64_t hi, int64_t fallback) const {
    return has(key) ? integer(key, hi) : fallback;
  }
  double number(std::string_view key) const {
    return metadata_.get_number(prefix_ + std::string(key));
  }
  double number(std::string_view key, double fallback) const {
    return has(key) ? number(key) : fallback;
  }
  std::string_view text(std::string_view key, std::string_view fallback) const {
    return metadata_.get_string(prefix_ + std::string(key), fallback);
  }

  // A count per model. Some files have an array with one per layer, which must then agree.
  int64_t uniform(std::string_view key, int64_t hi) const {
    const auto value = metadata_.find(prefix_ + std::string(key));
    if (!value || !value->is_array()) return integer(key, hi);
    for (size_t i = 0; i < value->size(); ++i) {
      if (value->int_at(i) != value->int_at(0)) {
        fail(ErrorKind::kUnsupported, "key ", quoted(value->key()),
             ": layers of different sizes are not supported");
      }
    }
    const int64_t count = value->size() > 0 ? value->int_at(0) : 0;
    if (count < 1 || count > hi) {
      fail(ErrorKind::kMalformed, "key ", quoted(value->key()), ": found ", count,
           ", expected an integer from 1 to ", hi);
    }
    return count;
  }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

constexpr Renaming kYarnOriginal = {"rope.scaling.original_context_length",
                                    "original_max_position_embeddings"};
constexpr Renaming kYarnNumbers[] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                     {"rope.scaling.yarn_beta_slow", "beta_slow"}};
// Multiplies the default of Hugging Face's attention_factor, which is given in its place.
constexpr std::string_view kYarnAttention = "rope.scaling.attn_factor";

double yarn_attention(double factor) {
  return factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}

// {rope_type, factor, …}, or null. Scaling of Llama 3 is not in keys but in rope_freqs.weight.
Json rope_scaling(const ArchitectureKeys& keys) {
  const std::string type(
      keys.text("rope.scaling.type", keys.has("rope.scale_linear") ? "linear" : "none"));
  if (type == "none" || type.empty()) return nullptr;
  const double linear = keys.number("rope.scale_linear", 1.0);
  Json scaling = {{"rope_type", type}, {"factor", keys.number("rope.scaling.factor", linear)}};
  if (keys.has(kYarnOriginal.gguf)) {
    scaling[std::string(kYarnOriginal.hugging_face)] =
        keys.integer(kYarnOriginal.gguf, limits::kContext);
  }
  for (const Renaming& number : kYarnNumbers) {
    if (keys.has(number.gguf)) scaling[std::string(number.hugging_face)] = keys.number(number.gguf);
  }
  if (keys.has(kYarnAttention)) {
    scaling["attention_factor"] =
        keys.number(kYarnAttention) * yarn_attention(scaling["factor"].get<double>());
  }
  return scaling;
}

int64_t vocabulary(const GgufFile& file, const ArchitectureKeys& keys) {
  const auto limit = static_cast<int64_t>(limits::kVocab);
  if (keys.has("vocab_size")) return keys.integer("vocab_size", limit);
  if (const GgufTensor* embedding = file.find_tensor("token_embd.weight")) {
    return embedding->shape[0];
  }
  const auto tokens = file.metadata.find("tokenizer.ggml.tokens");
  return tokens ? static_cast<int64_t>(tokens->size()) : 0;
}

Json translate_config(const GgufFile& file, const Architecture& architecture) {
  const ArchitectureKeys keys(file.metadata, architecture.name);
  if (keys.integer("expert_count", limits::kLayers, 0) > 0) {
    fail(ErrorKind::kUnsupported, "models with experts (mixtures of experts) are not supported");
  }
  const int64_t dim = keys.integer("embedding_length", limits::kDim);
  const int64_t heads = keys.uniform("attention.head_count", limits::kHeads);
  const int64_t kv_heads = keys.has("attention.head_count_kv")
                               ? keys.uniform("attention.head_count_kv", limits::kHeads)
                               : heads;
  const int64_t head_dim = keys.integer("attention.key_length", limits::kDim, dim / heads);
  const int64_t value_dim = keys.integer("attention.value_length", limits::kDim, head_dim);
  const int64_t rotary_dim = keys.integer("rope.dimension_count", limits::kDim, head_dim);
  if (value_dim != head_dim || rotary_dim != head_dim) {
    fail(ErrorKind::kUnsupported, "keys of size ", head_dim, " with values of size ", value_dim,
         " and rotation of ", rotary_dim, " elements: only equal sizes are supported");
  }
  Json config = {
      {"model_type", architecture.name},
      {"hidden_size", dim},
      {"intermediate_size", keys.uniform("feed_forward_length", limits::kDim)},
      {"num_hidden_layers", keys.integer("block_count", limits::kLayers)},
      {"num_attention_heads", heads},
      {"num_key_value_heads", kv_heads},
      {"head_dim", head_dim},
      {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon")},
      {"rope_theta", keys.number("rope.freq_base", 10000.0)},
      {"rope_scaling", rope_scaling(keys)},
      {"rope_interleaved", architecture.interleaved},
      {"vocab_size", vocabulary(file, keys)},
      {"max_position_embeddings", keys.integer("context_length", limits::kContext)},
      {"tie_word_embeddings", file.find_tensor("output.weight") == nullptr},
      {"attention_bias", file.find_tensor("blk.0.attn_q.bias") != nullptr},
      {"mlp_bias", file.find_tensor("blk.0.ffn_up.bias") != nullptr},
  };
  if (architecture.sliding_window && keys.has("attention.sliding_window")) {
    config["sliding_window"] = keys.integer("attention.sliding_window", limits::kContext);
    // What Llama with a window is called: a Llama has none.
    if (architecture.name == "llama") config["model_type"] = "mistral";
  }
  return config;
}

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

std::string hugging_face_name(const std::string& name) {
  for (const Renaming& renaming : kModelTensors) {
    if (renaming.gguf == name) return std::string(renaming.hugging_face);
  }
  if (!name.starts_with("blk.")) return name;
  const size_t layer_end = name.find('.', 4), suffix = name.rfind('.');
  if (layer_end == std::string::npos || suffix <= layer_end) return name;
  const std::string_view part =
      std::string_view(name).substr(layer_end + 1, suffix - layer_end - 1);
  for (const Renaming& renaming : kLayerTensors) {
    if (renaming.gguf == part) {
      return str("model.layers.", name.substr(4, layer_end - 4), ".", renaming.hugging_face,
                 name.substr(suffix));
    }
  }
  return name;
}

bool gguf_rotates_interleaved(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture.interleaved;
  }
  return false;
}

void set_gguf_rope_scaling(const Json& scaling, const std::string& architecture,
                           GgufWriter& writer) {
  const std::string type = get_string(scaling, "rope_type", "default");
  // Llama 3's is a tensor, and "dynamic" changes nothing within the trained context.
  if (type == "default" || type == "llama3" || type == "dynamic") return;
  if (type != "linear" && type != "yarn") {
    fail(ErrorKind::kUnsupported, "rope_scaling type ", quoted(type),
         " cannot be written as GGUF; possible are linear, yarn, llama3 and dynamic");
  }
  const auto set = [&](std::string_view key, GgufWriter::Value value) {
    writer.set(str(architecture, ".", key), std::move(value));
  };
  constexpr double kMax = 1e6;
  const double factor = get_number(scaling, "factor", 1e-6, kMax);
  set("rope.scaling.type", type);
  set("rope.scaling.factor", static_cast<float>(factor));
  if (type == "linear") return;
  if (!get_bool(scaling, "truncate", true)) {
    fail(ErrorKind::kUnsupported,
         "rope_scaling yarn with truncate false cannot be written as GGUF: there is no key for it");
  }
  if (find_value(scaling, kYarnOriginal.hugging_face) != nullptr) {
    set(kYarnOriginal.gguf,
        static_cast<uint32_t>(get_int(scaling, kYarnOriginal.hugging_face, 1, limits::kContext)));
  }
  for (const Renaming& number : kYarnNumbers) {
    if (find_value(scaling, number.hugging_face) == nullptr) continue;
    set(number.gguf, static_cast<float>(get_number(scaling, number.hugging_face, 1e-6, kMax)));
  }
  if (find_value(scaling, "attention_factor") != nullptr) {
    const double attention = get_number(scaling, "attention_factor", 1e-6, kMax);
    set(kYarnAttention, static_cast<float>(attention / yarn_attention(factor)));
  }
}

std::string gguf_tensor_name(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  for (const Renaming& renaming : kModelTensors) {
    if (renaming.hugging_face == name) return std::string(renaming.gguf);
  }
  if (!name.starts_with(kLayers)) return "";
  const size_t layer_end = name.find('.', kLayers.size()), suffix = name.rfind('.');
  if (layer_end == std::string::npos || suffix <= layer_end) return "";
  const std::string_view part =
      std::string_view(name).substr(layer_end + 1, suffix - layer_end - 1);
  for (const Renaming& renaming : kLayerTensors) {
    if (renaming.hugging_face == part) {
      return str("blk.", name.substr(kLayers.size(), layer_end - kLayers.size()), ".",
                 renaming.gguf, name.substr(suffix));
    }
  }
  return "";
}

namespace {

// Files say a shape with more or fewer extents of 1 than is usual: [64, 1] or [64]. Norms, biases
// and the factors of rotary embeddings are vectors, all others matrices.
Array usual_shape(const GgufTensor& tensor, Array array) {
  const Shape& shape = tensor.shape;
  const std::string_view name = tensor.name;
  const bool is_vector =
      name.ends_with(".bias") || name.ends_with("_norm.weight") || name == "rope_freqs.weight";
  const int64_t columns = shape[-1], rows = shape.elements() / columns;
  if (is_vector) return rows == 1 ? array.reshaped({columns}) : array;
  const bool has_more = shape.rank() > 1 && rows != shape[-2];  // as experts have
  return has_more ? array : array.reshaped({rows, columns});
}

}  // namespace

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
    model.config = translate_config(*model.gguf, find_architecture(metadata));
    translate_tokens(metadata, model);
    check_config(model.config);
    model.chat_templates = gguf_chat_templates(metadata);
  });
  for (const GgufTensor& tensor : model.gguf->tensors) {
    const auto [at, is_new] = model.tensors.emplace(hugging_face_name(tensor.name),
                                                    usual_shape(tensor, model.gguf->array(tensor)));
    if (!is_new) {
      fail(ErrorKind::kMalformed, place_of(path), ": tensor ", quoted(tensor.name),
           " is there twice, once as ", quoted(at->first));
    }
  }
  return model;
}

}  // namespace lumen::io
