// What open_model is made of: one function per format. For this room only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/io/model_files.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {

// `file`: what read_gguf gives for `path`.
ModelFiles open_gguf_model(const std::string& path, std::shared_ptr<const GgufFile> file);
ModelFiles open_directory_model(const std::string& directory);
// A PyTorch checkpoint; the other files of the model lie beside it.
ModelFiles open_torch_model(const std::string& path, std::shared_ptr<const Buffer> buffer);
ModelFiles open_llama2c_model(const std::string& path, std::shared_ptr<const Buffer> buffer);

// Checks the keys of a config that every format promises, for type and range.
void check_config(const Json& config);

// Whether the output has the embedding's numbers; none without both, of one shape.
std::optional<bool> head_is_embedding(const NamedArrays& tensors);

// Adds the end tokens of `value`, an id or an array of ids, unless they are there already.
void add_end_tokens(const Json& value, const std::string& source, std::vector<EndToken>& tokens);
void add_end_token(int64_t id, const std::string& source, std::vector<EndToken>& tokens);

// Whether `name`, which begins with `place` and a layer's number, is of a layer behind those of the
// model: one that guesses further tokens.
bool is_behind_layers(std::string_view name, std::string_view place, const Json& config);

// A GGUF file's keys in those of a config.json. Throws Error as open_model.
Json config_of_gguf(const GgufFile& file);
// Adds tensors that files of this architecture have as keys (write_gguf.h, is_gguf_number). Throws
// Error(kMalformed) for keys that are missing or of another length than the model has layers.
void add_gguf_numbers(const GgufMetadata& metadata, const Json& config, NamedArrays& tensors);
// The chat templates in the metadata of a GGUF file.
ChatTemplates gguf_chat_templates(const GgufMetadata& metadata);

}  // namespace lumen::io
