// What a model's or an adapter's files hold: lumen-convert --inspect.
#pragma once

#include <memory>
#include <string>

#include "lib/io/json.h"
#include "lib/io/model_files.h"

namespace lumen::runtime {

// Format, config, metadata, tensors, tokenizer, special and end tokens, chat templates. Reads
// headers only. A tokenizer of the model that cannot be loaded is reported under "tokenizer",
// "error"; for one at `tokenizer_path` (unless "") throws as text::load_tokenizer.
io::Json inspect_model(const io::ModelFiles& files, const std::string& tokenizer_path);

// The same of the LoRA adapter in `path`, a directory or the GGUF file `gguf` (else null),
// which has no tokenizer: "config" is its adapter_config.json. Throws Error as the readers.
io::Json inspect_adapter(const std::string& path, std::shared_ptr<const io::GgufFile> gguf);

// The same of an importance matrix (io/importance_matrix.h), in the GGUF file `gguf` or, if that is
// null, in the older format: its tensors are the means of the columns of each matrix.
io::Json inspect_importance_matrix(const std::string& path,
                                   std::shared_ptr<const io::GgufFile> gguf);

// Adds "sha256" to each of the tensors of what inspect_model gave: of their bytes as they are
// stored.
void add_hashes(const io::ModelFiles& files, io::Json& model);

// Any of them for people.
std::string inspection_text(const io::Json& model);

}  // namespace lumen::runtime
