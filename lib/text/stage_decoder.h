// The TokenDecoder that all tokenizers share: a chain of decoder stages.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/decoder.h"
#include "lib/text/tokenizer.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {

class StageDecoder : public TokenDecoder {
 public:
  // `push_token` pushes the spelling of a token, if it has one, to the stage. What it refers to
  // must outlive the decoder.
  using PushToken = std::function<void(int32_t id, DecodeStage& stage)>;

  StageDecoder(const std::vector<Decoder>& decoders, PushToken push_token);
  void push(int32_t id, std::string& out) override;
  void finish(std::string& out) override;

 private:
  DecodeStage& first() { return stages_.empty() ? output_ : *stages_.back(); }

  OutputStage output_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // the last one first
  PushToken push_token_;
};

// The decoder of a vocabulary whose tokens have the texts `pieces`. It refers to all three.
std::unique_ptr<TokenDecoder> make_piece_decoder(const Tokenizer& tokenizer,
                                                 const std::vector<Decoder>& decoders,
                                                 const Vocabulary& pieces, bool skip_special);

// The bytes that tokens add to a text that has begun, through the same stages. Not thread-safe.
class BytesDecoder {
 public:
  explicit BytesDecoder(const std::vector<Decoder>& decoders);
  // Of the token so spelled. Throws Error(kUnsupported) if they depend on the tokens beside it.
  std::string bytes(std::string_view token);

 private:
  std::string text_of(std::initializer_list<std::string_view> tokens);

  std::string out_;
  OutputStage output_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // the last one first
};

}  // namespace lumen::text
