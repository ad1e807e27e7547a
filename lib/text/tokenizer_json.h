// Reading tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/io/json.h"
#include "lib/text/added_tokens.h"
#include "lib/text/tokenizer.h"

namespace lumen::text {

// What the files beside a tokenizer say; each may be null.
struct TokenizerConfig {
  io::Json config;        // tokenizer_config.json
  io::Json special_map;   // special_tokens_map.json
  io::Json added_tokens;  // added_tokens.json
};

// The spelling that the files beside give for "bos_token" and the like, or "".
std::string configured_token(const TokenizerConfig& config, const char* role);

// The tokens that the files beside add to a vocabulary, by ascending id, which is the file's.
std::vector<AddedToken> configured_added_tokens(const TokenizerConfig& config);

// The two tokens of a merge, "left right" or ["left", "right"], which must outlive them. Throws
// Error(kMalformed).
std::pair<std::string_view, std::string_view> split_merge(const io::Json& merge);

// Throws Error as load_tokenizer.
std::shared_ptr<const Tokenizer> parse_tokenizer_json(const io::Json& json,
                                                      const TokenizerConfig& config);

}  // namespace lumen::text
