#include "lib/text/tokenizer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/text/stage_decoder.h"

namespace lumen::text {

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  const std::unique_ptr<TokenDecoder> decoder = make_decoder(skip_special);
  for (const int32_t id : ids) decoder->push(id, out);
  decoder->finish(out);
  return out;
}

void Tokenizer::encode_rest(std::string_view text, size_t begin, std::optional<bool> parse_special,
                            std::vector<int32_t>& ids, std::vector<Checkpoint>*) const {
  LUMEN_CHECK(begin == 0);
  const auto all = encode(text, {.add_special = false, .parse_special = parse_special});
  ids.insert(ids.end(), all.begin(), all.end());
}

void Tokenizer::check_length(std::string_view text) {
  if (text.size() > limits::kPromptBytes) {
    fail(ErrorKind::kResource, "text of ", text.size(), " bytes, the limit is ",
         limits::kPromptBytes);
  }
}

std::string dropped_characters(const Tokenizer& tokenizer, std::string_view text) {
  constexpr size_t kShown = 8;
  std::vector<std::string> dropped;
  std::set<std::string_view> seen = {" ", "\t", "\r", "\n"};
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    next_code_point(text, end);
    const std::string_view character = text.substr(begin, end - begin);
    if (!seen.insert(character).second) continue;
    const EncodeOptions options = {.add_special = false, .parse_special = false};
    if (tokenizer.encode(character, options).empty()) dropped.push_back(quoted(character));
  }
  const size_t more = dropped.size() - std::min(dropped.size(), kShown);
  dropped.resize(dropped.size() - more);
  return join(dropped, ", ") + (more > 0 ? str(" and ", more, " more") : "");
}

TokenStream::TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), decoder_(tokenizer_->make_decoder(skip_special)) {}

void TokenStream::push(int32_t id, std::string& out) {
  decoder_->push(id, out);
}

void TokenStream::finish(std::string& out) {
  decoder_->finish(out);
}

StageDecoder::StageDecoder(const std::vector<Decoder>& decoders, PushToken push_token)
    : push_token_(std::move(push_token)) {
  for (size_t i = decoders.size(); i-- > 0;) stages_.push_back(decoders[i](first()));
}

void StageDecoder::push(int32_t id, std::string& out) {
  output_.out = &out;
  push_token_(id, first());
}

void StageDecoder::finish(std::string& out) {
  output_.out = &out;
  first().finish();
}

std::unique_ptr<TokenDecoder> make_piece_decoder(const Tokenizer& tokenizer,
                                                 const std::vector<Decoder>& decoders,
                                                 const Vocabulary& pieces, bool skip_special) {
  return std::make_unique<StageDecoder>(
      decoders, [&tokenizer, &pieces, skip_special](int32_t id, DecodeStage& stage) {
        if (!(skip_special && tokenizer.is_special(id))) stage.push(pieces.text(id));
      });
}

BytesDecoder::BytesDecoder(const std::vector<Decoder>& decoders) {
  output_.out = &out_;
  output_.takes_any_bytes = true;
  for (size_t i = decoders.size(); i-- > 0;) {
    stages_.push_back(decoders[i](stages_.empty() ? output_ : *stages_.back()));
  }
}

std::string BytesDecoder::text_of(std::initializer_list<std::string_view> tokens) {
  out_.clear();
  DecodeStage& first = stages_.empty() ? output_ : *stages_.back();
  for (const std::string_view token : tokens) first.push(token);
  first.finish();
  return out_;
}

// Its bytes after one neighbour must be those after, and before, another.
std::string BytesDecoder::bytes(std::string_view token) {
  if (token.empty()) return "";
  const std::string before = text_of({"a"}), other = text_of({"b"}), both = text_of({"b", "c"});
  std::string bytes = text_of({"a", token});
  const bool extends = bytes.starts_with(before) && both.starts_with(other);
  if (extends) bytes.erase(0, before.size());
  if (!extends || text_of({"b", token, "c"}) != other + bytes + both.substr(other.size())) {
    fail(ErrorKind::kUnsupported, "the text of token ", quoted(token),
         " depends on the tokens beside it, so it has no bytes of its own");
  }
  return bytes;
}

}  // namespace lumen::text
