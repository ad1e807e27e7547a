// The vocabulary of a GGUF file as its keys state it, checked.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/io/gguf.h"
#include "lib/text/tokenizer.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {

// tokenizer.ggml.token_type
enum class GgufTokenType : uint8_t {
  kUndefined,
  kNormal,
  kUnknown,
  kControl,
  kUserDefined,
  kUnused,
  kByte,
};

struct GgufVocabulary {
  std::string model;  // "llama", "gpt2", "gemma4", "bert", "t5"
  std::string pre;    // of gpt2; "default" if the file names none
  std::unique_ptr<Vocabulary> tokens = std::make_unique<Vocabulary>();
  std::vector<float> scores;         // one per token; 0 if the file has none
  std::vector<GgufTokenType> types;  // one per token; normal if the file has none
  SpecialIds special;
  std::vector<int32_t> ends;  // end of text, turn or message
  bool add_bos = false, add_eos = false, add_sep = false, add_space_prefix = false;
  std::vector<bool> lstrip, rstrip;  // per token: takes the white space before, after it along

  bool is(int32_t id, GgufTokenType type) const {
    return static_cast<size_t>(id) < types.size() && types[static_cast<size_t>(id)] == type;
  }
};

// Throws Error(kMalformed) for missing keys, arrays of wrong length or element type, scores that
// are not finite, ids out of range; kUnsupported for another tokenizer.ggml.model.
GgufVocabulary read_gguf_vocabulary(const io::GgufFile& file);

}  // namespace lumen::text
