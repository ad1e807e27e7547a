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

// The name of the pre-tokenizer that splits as `split`, which spells bytes, judged by a long text
// of many kinds of characters; "" if none does.
std::string gguf_pre_tokenizer_name(const PreTokenizer& split, bool ignore_merges);

}  // namespace lumen::text
