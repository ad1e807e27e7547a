// Decoders: how the spellings of tokens become text, token by token.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"

namespace lumen::text {

// A running stage of a decoder: takes tokens, gives tokens to the next stage. What it gives is
// certain: no later token changes it.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string_view token) = 0;
  // Passes on what is held back, finishes the next stage and returns to the initial state.
  virtual void finish() = 0;
  // Whether tokens that are no UTF-8 shall arrive as they are instead of as U+FFFD.
  virtual bool takes_bytes() const = 0;
};

// Makes a stage in front of `next`, which must outlive it.
using Decoder = std::function<std::unique_ptr<DecodeStage>(DecodeStage& next)>;

// The last stage: appends to a string.
class OutputStage : public DecodeStage {
 public:
  void push(std::string_view token) override { *out += token; }
  void finish() override {}
  bool takes_bytes() const override { return takes_any_bytes; }
  std::string* out = nullptr;
  bool takes_any_bytes = false;
};

// The decoders that the value "decoder" of tokenizer.json describes, in order; for null the tokens
// are joined by spaces. Throws Error(kUnsupported) for an unknown type, kMalformed for wrong
// members.
std::vector<Decoder> parse_decoders(const io::Json& json);

// Joins tokens of raw bytes to characters; what is not UTF-8 becomes U+FFFD.
Decoder make_utf8_decoder();
// Removes up to `count` characters `content` from the beginning of the whole text, whose tokens are
// only parts.
Decoder make_leading_strip(std::string content, size_t count);

}  // namespace lumen::text
