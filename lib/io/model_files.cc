#include "lib/io/model_files.h"

#include <cstring>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/foreign_model.h"
#include "lib/io/llama2c.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_formats.h"
#include "lib/io/torch_file.h"

namespace lumen::io {
namespace {

ModelFiles open_file(const std::string& path) {
  if (auto gguf = read_if_gguf(path)) return open_gguf_model(path, std::move(gguf));
  const auto buffer = map_file(path);
  const std::span<const std::byte> content(buffer->data, buffer->bytes);
  // Other archives begin like PyTorch checkpoints, and those of llama2.c have no magic number: they
  // may look like anything.
  try {
    return is_torch_file(content) ? open_torch_model(path, buffer)
                                  : open_llama2c_model(path, buffer);
  } catch (const Error& error) {
    fail_foreign_file(path, content, error);
  }
}

}  // namespace

std::string_view name(ModelFormat format) {
  switch (format) {
    case ModelFormat::kGguf:
      return "GGUF";
    case ModelFormat::kHuggingFace:
      return "Hugging Face";
    case ModelFormat::kLlama2c:
      return "llama2.c";
  }
  return "";
}

bool is_behind_layers(std::string_view name, std::string_view place, const Json& config) {
  int64_t layer = 0;
  if (!name.starts_with(place)) return false;
  const std::string_view rest = name.substr(place.size());
  return parse_number(rest.substr(0, rest.find('.')), layer) &&
         layer >= get_int(config, "num_hidden_layers", 1, limits::kLayers);
}

std::optional<bool> head_is_embedding(const NamedArrays& tensors) {
  const auto head = tensors.find("lm_head.weight");
  if (head == tensors.end()) return std::nullopt;
  for (const char* name : {"model.embed_tokens.weight", "transformer.wte.weight"}) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) continue;
    const Array &embedding = found->second, &output = head->second;
    if (embedding.shape() != output.shape() || output.bytes() == 0) return std::nullopt;
    return embedding.dtype() == output.dtype() &&
           (embedding.data() == output.data() ||
            std::memcmp(embedding.data(), output.data(), output.bytes()) == 0);
  }
  return std::nullopt;
}

void erase_lumen_keys(Json& config) {
  if (!config.is_object()) return;
  for (const char* key : {"rope_interleaved", "rms_norm_offset", "linear_heads_tiled",
                          "linear_inputs_apart", "multipliers_in_weights", "conv1d_out_in",
                          "mrope_section", "n_deepstack_layers", "language_model_part"}) {
    config.erase(key);
  }
}

void check_config(const Json& config) {
  get_int(config, "hidden_size", 1, limits::kDim);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t kv_heads = get_int(config, "num_key_value_heads", 1, limits::kHeads);
  get_int(config, "intermediate_size", 1, limits::kDim);
  get_int(config, "num_hidden_layers", 1, limits::kLayers);
  get_int(config, "head_dim", 1, limits::kDim);
  get_int(config, "vocab_size", 1, static_cast<int64_t>(limits::kVocab));
  get_int(config, "max_position_embeddings", 1, limits::kContext);
  get_int(config, "sliding_window", 1, limits::kContext, 1);
  get_number(config, "rms_norm_eps", 0, 1);
  get_number(config, "rope_theta", 1e-3, 1e15);
  get_bool(config, "tie_word_embeddings");
  get_bool(config, "attention_bias", false);
  if (heads % kv_heads != 0) {
    fail(ErrorKind::kMalformed, "num_attention_heads ", heads,
         " is no multiple of num_key_value_heads ", kv_heads);
  }
  if (const Json* scaling = find_value(config, "rope_scaling")) {
    if (!scaling->is_object()) {
      fail(ErrorKind::kMalformed, "key 'rope_scaling': found ", describe(scaling),
           ", expected an object");
    }
    get_string(*scaling, "rope_type");
  }
}

ModelFiles open_llama2c_model(const std::string& path, std::shared_ptr<const Buffer> buffer) {
  Llama2cFile file = parse_llama2c(std::move(buffer), path);
  ModelFiles model;
  model.path = path;
  model.format = ModelFormat::kLlama2c;
  model.config = {{"model_type", "llama"},
                  {"hidden_size", file.dim},
                  {"intermediate_size", file.hidden_dim},
                  {"num_hidden_layers", file.layers},
                  {"num_attention_heads", file.heads},
                  {"num_key_value_heads", file.kv_heads},
                  {"head_dim", file.dim / file.heads},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 10000.0},
                  {"rope_interleaved", true},
                  {"vocab_size", file.vocab},
                  {"max_position_embeddings", file.context},
                  {"tie_word_embeddings", file.tied},
                  {"attention_bias", false},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2}};
  model.generation_config = Json::object();
  model.tokenizer_config = Json::object();
  model.tensors = std::move(file.tensors);
  // llama2.c trains on texts that each begin with BOS, so that BOS ends the one before.
  model.end_tokens = {{1, "llama2.c: BOS separates texts"}, {2, "llama2.c: EOS"}};
  model.file_bytes = file.file_bytes;
  return model;
}

ModelFiles open_model(const std::string& path, std::shared_ptr<const GgufFile> gguf) {
  if (gguf) return open_gguf_model(path, std::move(gguf));
  return is_directory(path) ? open_directory_model(path) : open_file(path);
}

}  // namespace lumen::io
