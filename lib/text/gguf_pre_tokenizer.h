// The pre-tokenizers that GGUF files name by "tokenizer.ggml.pre".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/pre_tokenizer.h"

namespace lumen::text {

struct GgufPreTokenizer {
  std::unique_ptr<PreTokenizer> split;
  std::vector<std::string> patterns;  // what `split` cuts by, one after the other
  bool ignore_merges = false;         // a word that is a token is that token
  bool add_bos = false;               // unless the file says otherwise
  bool add_sep = false;               // a separator follows the text
};

// Throws Error(kUnsupported) for a name that is not known.
GgufPreTokenizer gguf_pre_tokenizer(std::string_view name);

}  // namespace lumen::text
