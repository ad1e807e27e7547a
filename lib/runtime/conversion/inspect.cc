#include "lib/runtime/conversion/inspect.h"

#include <algorithm>
#include <span>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/hf_cache.h"
#include "lib/io/importance_matrix.h"
#include "lib/io/mapped_file.h"
#include "lib/io/sha256.h"
#include "lib/io/torch_file.h"
#include "lib/runtime/adapters/lora.h"
#include "lib/runtime/adapters/mlx_adapter.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/tool/output.h"

namespace lumen::runtime {
namespace {

// A metadata value; of a long array only its length and first elements.
io::Json value_json(const io::GgufValue& value) {
  constexpr size_t kShown = 8;
  if (!value.is_array()) {
    switch (value.type()) {
      case io::GgufType::kString:
        return to_valid_utf8(value.as_string());
      case io::GgufType::kBool:
        return value.as_bool();
      case io::GgufType::kF32:
      case io::GgufType::kF64:
        return value.as_number();
      case io::GgufType::kU64:
        return value.as_number();
      default:
        return value.as_int();
    }
  }
  if (value.element_type() == io::GgufType::kArray) {
    return {{"array_of", "array"}, {"length", value.size()}};
  }
  io::Json first = io::Json::array();
  for (size_t i = 0; i < std::min(kShown, value.size()); ++i) {
    switch (value.element_type()) {
      case io::GgufType::kString:
        first.push_back(to_valid_utf8(value.string_at(i)));
        break;
      case io::GgufType::kBool:
        first.push_back(value.bool_at(i));
        break;
      case io::GgufType::kF32:
      case io::GgufType::kF64:
      case io::GgufType::kU64:
        first.push_back(value.number_at(i));
        break;
      default:
        first.push_back(value.int_at(i));
    }
  }
  return {{"array_of", std::string(name(value.element_type()))},
          {"length", value.size()},
          {"first", std::move(first)}};
}

io::Json tensors_json(const io::ModelFiles& files) {
  io::Json tensors = io::Json::array();
  for (const auto& [tensor_name, array] : files.tensors) {
    io::Json shape = io::Json::array();
    for (int i = 0; i < array.shape().rank(); ++i) shape.push_back(array.shape()[i]);
    tensors.push_back(io::Json{{"name", to_valid_utf8(tensor_name)},
                               {"dtype", std::string(name(array.dtype()))},
                               {"shape", std::move(shape)},
                               {"bytes", array.bytes()}});
  }
  return tensors;
}

io::Json token_json(const text::Tokenizer& tokenizer, int32_t id) {
  return {{"id", id}, {"text", to_valid_utf8(tokenizer.token_text(id))}};
}

io::Json tokenizer_json(const io::ModelFiles& files, const std::string& tokenizer_path) {
  const auto format = PromptFormat::load(files, tokenizer_path);
  const text::Tokenizer& tokenizer = *format.tokenizer();
  const text::SpecialIds& ids = tokenizer.special_ids();
  io::Json special = io::Json::object();
  const std::pair<const char*, std::optional<int32_t>> named[] = {
      {"bos", ids.bos}, {"eos", ids.eos}, {"unk", ids.unk},
      {"pad", ids.pad}, {"sep", ids.sep}, {"mask", ids.mask}};
  for (const auto& [role, id] : named) {
    if (id) special[role] = token_json(tokenizer, *id);
  }
  io::Json end_tokens = io::Json::array();
  for (const io::EndToken& end : format.end_tokens()) {
    io::Json token = token_json(tokenizer, end.id);
    token["source"] = end.source;
    end_tokens.push_back(std::move(token));
  }
  return {{"kind", tokenizer.kind()},
          {"vocab_size", tokenizer.vocab_size()},
          {"adds_bos", tokenizer.adds_bos()},
          {"special_tokens", std::move(special)},
          {"end_tokens", std::move(end_tokens)}};
}

// One line for a value: the terminal is safe, long texts are cut.
std::string value_text(const io::Json& value) {
  constexpr size_t kColumns = 72;
  if (value.is_string()) return quoted(value.get_ref<const std::string&>(), kColumns);
  const std::string text = value.dump();
  return text.size() <= kColumns ? text : quoted(text, kColumns);
}

std::string section_text(const char* title, const io::Json& object) {
  std::string out = str(title, " (", object.size(), ")\n");
  for (const auto& [key, value] : object.items()) {
    out += str("  ", printable(key), ": ", value_text(value), "\n");
  }
  return out;
}

// What there is to say of any files.
io::Json content_json(const io::ModelFiles& files) {
  io::Json metadata = io::Json::object();
  if (files.gguf) {
    for (size_t i = 0; i < files.gguf->metadata.size(); ++i) {
      const io::GgufValue value = files.gguf->metadata[i];
      metadata[to_valid_utf8(value.key())] = value_json(value);
    }
  }
  io::Json templates = io::Json::object();
  for (const auto& [name, source] : files.chat_templates) {
    templates[to_valid_utf8(name)] = to_valid_utf8(source);
  }
  return {{"schema", 1},
          {"path", to_valid_utf8(files.path)},
          {"format", std::string(name(files.format))},
          {"file_bytes", files.file_bytes},
          {"metadata", std::move(metadata)},
          {"chat_templates", std::move(templates)},
          {"tensors", tensors_json(files)}};
}

// A GGUF file with the names that it has itself.
void add_tensors(std::shared_ptr<const io::GgufFile> gguf, io::ModelFiles& files) {
  files.gguf = std::move(gguf);
  files.file_bytes = files.gguf->file_bytes;
  for (const io::GgufTensor& tensor : files.gguf->tensors) {
    files.tensors[tensor.name] = files.gguf->array(tensor);
  }
}

}  // namespace

std::string inspection_text(const io::Json& model) {
  std::string out =
      str(quoted(model["path"].get<std::string>(), 200), ": ", model["format"].get<std::string>(),
          ", ", human_bytes(model["file_bytes"].get<uint64_t>()), "\n");
  const auto section = [&](const char* title, const char* key, bool even_if_empty) {
    const io::Json* object = io::find(model, key);
    if (object && (even_if_empty || !object->empty())) out += section_text(title, *object);
  };
  section("config", "config", true);
  section("generation config", "generation_config", false);
  section("metadata", "metadata", false);
  section("tokenizer", "tokenizer", true);
  section("chat templates", "chat_templates", model.contains("tokenizer"));
  out += str("tensors (", model["tensors"].size(), ")\n");
  for (const io::Json& tensor : model["tensors"]) {
    out += str("  ", printable(tensor["name"].get<std::string>()), "  ",
               tensor["dtype"].get<std::string>(), " ", tensor["shape"].dump(), "  ",
               human_bytes(tensor["bytes"].get<uint64_t>()));
    if (tensor.contains("sha256")) out += str("  ", tensor["sha256"].get<std::string>());
    out += '\n';
  }
  return out;
}

io::Json inspect_model(const io::ModelFiles& files, const std::string& tokenizer_path) {
  io::Json model = content_json(files);
  model["config"] = files.config;
  model["generation_config"] = files.generation_config;
  try {
    model["tokenizer"] = tokenizer_json(files, tokenizer_path);
  } catch (const Error& error) {
    if (!tokenizer_path.empty()) throw;  // the one that was asked for
    model["tokenizer"] = {{"error", error.what()}};
  }
  return model;
}

void add_hashes(const io::ModelFiles& files, io::Json& model) {
  size_t i = 0;
  for (const auto& [tensor_name, array] : files.tensors) {
    model["tensors"][i++]["sha256"] = io::sha256(std::span(array.data(), array.bytes()));
  }
}

io::Json inspect_adapter(const std::string& path, std::shared_ptr<const io::GgufFile> gguf) {
  io::ModelFiles files;
  files.path = path;
  files.chat_templates = io::read_chat_templates(path);
  if (gguf) {
    add_tensors(std::move(gguf), files);
    io::Json adapter = content_json(files);
    adapter["format"] = "LoRA adapter, GGUF";
    return adapter;
  }
  files.tensors = io::read_tensors(io::adapter_weights(path));
  for (const auto& [name, array] : files.tensors) files.file_bytes += array.bytes();
  io::Json adapter = content_json(files);
  adapter["config"] = io::read_json(path + "/adapter_config.json");
  adapter["format"] =
      is_mlx_adapter(adapter["config"]) ? "LoRA adapter, MLX" : "LoRA adapter, PEFT";
  return adapter;
}

io::Json inspect_importance_matrix(const std::string& path,
                                   std::shared_ptr<const io::GgufFile> gguf) {
  io::ModelFiles files;
  files.path = path;
  if (gguf) {
    add_tensors(std::move(gguf), files);
    io::Json matrix = content_json(files);
    matrix["format"] = "importance matrix, GGUF";
    return matrix;
  }
  const io::ImportanceMatrix content = io::read_importance_matrix(path);
  files.file_bytes = io::map_file(path)->bytes;
  for (const auto& [name, means] : content.columns) {
    files.tensors[name] = Array::from<float>(means, {static_cast<int64_t>(means.size())});
  }
  io::Json matrix = content_json(files);
  matrix["format"] = "importance matrix";
  matrix["metadata"]["chunks"] = content.chunks;
  matrix["metadata"]["texts"] = io::Json::array();
  for (const std::string& text : content.texts) {
    matrix["metadata"]["texts"].push_back(to_valid_utf8(text));
  }
  return matrix;
}

}  // namespace lumen::runtime
