// The vocabulary of a Hugging Face directory as the keys of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "lib/io/model_files.h"
#include "lib/io/write_gguf.h"

namespace lumen::text {

// Sets the keys tokenizer.* for the vocabulary, chat templates and end tokens of a Hugging Face
// directory: model "llama" for BPE with byte fallback (Llama 2, Mistral; tokenizer.json or a
// sentencepiece BPE model), "gpt2" for byte-level BPE whose split has a name in
// gguf_pre_tokenizer.h, "t5" for unigram (tokenizer.json or a sentencepiece model). config.json
// says how many tokens there are, unused ones being added, and which are BOS and EOS where the
// tokenizer names none. Of end tokens beside EOS there is room for two.
//
// The vocabulary is read again: load_tokenizer of the file gives the same ids for plain text and
// for every token of the vocabulary. What GGUF cannot say and is different therefore, such as
// spaces beside control tokens, is returned, one sentence each.
//
// Throws Error: as load_tokenizer; kUnsupported for other vocabularies, and where reading the keys
// gives other tokens; kMismatch if the model has fewer tokens than the vocabulary.
std::vector<std::string> set_gguf_tokenizer(const io::ModelFiles& model, io::GgufWriter& writer);

}  // namespace lumen::text
